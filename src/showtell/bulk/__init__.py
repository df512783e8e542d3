"""Very many photos: an input becomes parts, parts are captioned by actors of Ray Data, whatever machine they are on."""

from showtell.bulk.actors import Captioned, caption_parts, require_ray
from showtell.bulk.parts import Part, part_from_json, part_to_json, photos_of
from showtell.bulk.planning import plan_parts

__all__ = [
    "Captioned",
    "Part",
    "caption_parts",
    "part_from_json",
    "part_to_json",
    "photos_of",
    "plan_parts",
    "require_ray",
]
