"""Very many photos: an input becomes parts, parts are captioned by actors of Ray Data, whatever machine they are on."""

from showtell.bulk.actors import CaptionedBatch, caption_parts, require_ray
from showtell.bulk.parts import Part, part_from_json, part_to_json, read_part
from showtell.bulk.planning import plan_parts

__all__ = [
    "CaptionedBatch",
    "Part",
    "caption_parts",
    "part_from_json",
    "part_to_json",
    "plan_parts",
    "read_part",
    "require_ray",
]
