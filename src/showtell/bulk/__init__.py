"""Very many photos: an input becomes parts, parts are captioned by actors of Ray Data, whatever machine they are on."""

from showtell.bulk.actors import CaptionedBatch, caption_parts
from showtell.bulk.cluster import connected, require_ray
from showtell.bulk.parts import Part, part_from_json, part_to_json, read_part
from showtell.bulk.planning import plan_parts

__all__ = [
    "CaptionedBatch",
    "Part",
    "caption_parts",
    "connected",
    "part_from_json",
    "part_to_json",
    "plan_parts",
    "read_part",
    "require_ray",
]
