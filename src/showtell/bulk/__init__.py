"""Very many photos: an input becomes parts, parts are captioned by actors of Ray Data, whatever machine they are on."""

from showtell.bulk.actors import caption_parts, require_ray
from showtell.bulk.parts import Part, plan_parts

__all__ = ["Part", "caption_parts", "plan_parts", "require_ray"]
