"""Images that are done leave the batch: which ones are still at work, and when it pays to go on without the others."""

from __future__ import annotations

import torch
from torch import Tensor

from showtell.types import RecordT, map_tensors

STAY = 0.75  # the others leave once no more than this share is at work; 0.5 to 0.99 cost the same, 0 twice as much
ASK_EVERY = 4  # steps; asking a GPU waits for it, asking a CPU costs nothing


class ActiveBatch:
    """The images of a batch that are still at work."""

    def __init__(self, images: int, device: torch.device, *, together: bool = False) -> None:
        """All images of a batch; `together` if none leaves before all are done."""
        self.images = torch.arange(images, device=device)  # (b,) their places in the whole batch
        self.stay = 0.0 if together else STAY
        self.asks_freely = device.type == "cpu"

    def leave(self, is_done: Tensor, step: int, *, last: bool) -> Tensor | None:
        """The places within the present batch of those that stay, when it is time for the others to leave.

        Args:
            is_done: (b,) bool, for the images at work.
            step: how many steps were done before this one.
            last: whether there is no further step, so that all leave.

        Returns:
            int64, empty where all are done; None where all stay for now.
        """
        if last:
            return self.images[:0]
        if not self.asks_freely and (step + 1) % ASK_EVERY:
            return None
        staying = len(is_done) - int(is_done.sum())
        if staying > self.stay * len(is_done):
            return None
        return (~is_done).nonzero().squeeze(-1)

    def store(self, whole: RecordT, part: RecordT) -> None:
        """Write what the images at work have so far, tensors (b, ...), into a record of the whole batch, (B, ...)."""
        map_tensors(whole, lambda all_, some: all_.index_copy_(0, self.images, some), part)


def take_images(record: RecordT, places: Tensor) -> RecordT:
    """Some images of a record or a tuple of records whose tensors are (b, ...)."""
    return map_tensors(record, lambda x: x.index_select(0, places))
