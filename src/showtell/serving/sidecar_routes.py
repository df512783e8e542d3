"""The routes that give corrections back to the photos of a folder, as XMP sidecars beside them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from showtell.config import Config
from showtell.datasets.corrections import match_corrections
from showtell.errors import DataError, ImageError, StorageError
from showtell.images.photo_files import find_photos
from showtell.sidecars import SidecarPlan, XmpSidecars

WithKeywords = Annotated[bool, Query(alias="keywords", description="Write the things that captions name, too.")]


class Sidecars(Config):
    """What is written beside photos, or would be."""

    folder: str = Field(description="Of the photos.")
    written: list[str] = Field(description="Photos whose sidecar is written, or to be written.")
    same: list[str] = Field(description="Photos whose sidecar has the caption already.")
    left_out: list[str] = Field(description="A sentence for each correction that is not written.")


def sidecar_router(corrections: Path, photos: Path) -> APIRouter:
    """The routes over a folder of corrections and a folder of photos."""
    router = APIRouter(prefix="/v1/sidecars", tags=["corrections"])
    lock = threading.Lock()  # two browsers write one after the other

    def run(with_keywords: bool, *, writes: bool) -> Sidecars:
        try:
            own = corrections.resolve()
            files = [photo for photo in find_photos([str(photos)]) if not photo.resolve().is_relative_to(own)]
        except ImageError:  # no photo is left there, and each correction is listed as missing
            files = []
        with lock:
            matched = match_corrections(corrections, files)
            kind = XmpSidecars("", with_keywords=with_keywords)
            plan = SidecarPlan.of(matched.by_photo, kind, matched.by_photo)
            written = list(plan.files)
            if writes:
                try:
                    plan.write()
                except DataError as error:
                    raise StorageError(f"{error} {len(plan.written)} sidecars are written; repeat it.") from error
                written = plan.written
        left_out = [
            *(f"{row.name} is not in {photos}." for row in matched.missing),
            *(f"{photo} was edited after its caption was corrected; correct it again." for photo in matched.edited),
            *(f"{photo} keeps what a person wrote in {there.file}." for photo, there in plan.taken.items()),
            *plan.failures,
        ]
        return Sidecars(
            folder=str(photos), written=[*map(str, written)], same=[*map(str, plan.done)], left_out=left_out
        )

    @router.get("", summary="Say which sidecars would be written")
    def look(with_keywords: WithKeywords = False) -> Sidecars:
        """Look, and write nothing."""
        return run(with_keywords, writes=False)

    @router.post("", summary="Write corrections into sidecars")
    def write(with_keywords: WithKeywords = False) -> Sidecars:
        """Write what people accepted or corrected beside the photos."""
        return run(with_keywords, writes=True)

    return router
