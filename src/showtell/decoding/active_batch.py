"""The images of a batch that are not finished; the others are dropped where that pays, and shapes are not static."""

from __future__ import annotations

import torch
from torch import Tensor

from showtell.cuda_graphs import Steps, Until, is_static
from showtell.types import RecordT, map_tensors

MAX_ACTIVE = 0.75  # finished images are dropped once no more than this share is active; 0.5 to 0.99 cost the same
SYNC_EVERY = 4  # steps between looks at what is finished, which wait for a GPU; on a CPU they cost nothing


class ActiveBatch:
    """The images of a batch that are not finished."""

    def __init__(self, images: int, device: torch.device) -> None:
        self.images = torch.arange(images, device=device)  # (b,) indices into the whole batch
        self.sync_is_free = device.type == "cpu" and not is_static()

    def remaining(self, is_done: Tensor, step: int, *, last: bool) -> Tensor | None:
        """Indices of the active images to keep, by `is_done` (b,): empty after the last step; None: all for now."""
        if last:
            return self.images[:0]
        if is_static() or (not self.sync_is_free and (step + 1) % SYNC_EVERY):
            return None
        if int((~is_done).sum()) > MAX_ACTIVE * len(is_done):
            return None
        return (~is_done).nonzero().squeeze(-1)

    def advance(self, whole: RecordT, part: RecordT, is_done: Tensor, step: int, *, last: bool) -> Steps[Tensor | None]:
        """Copy results (b, ...) into those of the whole batch, (B, ...), where images leave; returns `remaining`."""
        keep = self.remaining(is_done, step, last=last)
        may_end = is_static() and (step + 1) % SYNC_EVERY == 0
        if keep is not None or may_end:
            map_tensors(whole, lambda all_, some: all_.index_copy_(0, self.images, some), part)
        if may_end:
            yield Until(is_done.all())
        if keep is not None:
            self.images = self.images.index_select(0, keep)
        return keep


def take_images(record: RecordT, indices: Tensor) -> RecordT:
    """Some images of a record, or of a tuple of records, whose tensors are (b, ...)."""
    return map_tensors(record, lambda x: x.index_select(0, indices))
