"""The settings of the server, declared once for its options, its routes and its documentation.

The module loads without torch and without the extra `serve`, so that help can be made from it.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from showtell.config import Config


class ServeSettings(Config):
    """How photos are taken in and how many wait. Times are in seconds, sizes in bytes."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        max_length=253,
        description="Address to listen on; any but this machine's own needs `token`, or `open`.",
    )
    port: int = Field(7860, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    token: str | None = Field(
        None, min_length=16, max_length=1000, description="What clients must show to be answered."
    )
    open: bool = Field(False, description="Listen beyond this machine without a token.")
    max_batch: int = Field(32, ge=1, le=1024, description="Largest number of photos in a batch.")
    max_wait: float = Field(0.005, ge=0, le=10, description="Most seconds that a photo waits for others to join it.")
    queue: int = Field(256, ge=1, le=100_000, description="Largest number of photos that wait; more are sent away.")
    max_body: int = Field(20_000_000, ge=1_000, le=1_000_000_000, description="Largest body of a request, in bytes.")
    max_words: int = Field(
        5_000,
        ge=20,
        le=10_000_000,
        description="Largest number of words that a question may ask for: beams or samples times their length.",
    )
    timeout: float = Field(60.0, gt=0, le=3600, description="Seconds after which nobody waits for an answer any more.")
    corrections: Path | None = Field(None, description="Folder that keeps the photos and captions that people correct.")
    photos: Path | None = Field(
        None, description="Folder of the photos themselves: the page writes corrections into XMP sidecars beside them."
    )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @model_validator(mode="after")
    def _is_guarded(self) -> Self:
        if not self.is_local and self.token is None and not self.open:
            raise ValueError(
                f"host={self.host} lets other machines connect; give a token of 16 characters or more, or open=true to "
                "let anyone in"
            )
        if self.photos is not None and (self.corrections is None or not self.photos.is_dir()):
            problem = "is no folder" if self.corrections is not None else "needs corrections=FOLDER, too"
            raise ValueError(f"photos={self.photos} {problem}; name the folder that your photos are in")
        return self
