"""The routes of corrections. What was answered is on disk."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import FileResponse, JSONResponse, Response

from showtell.datasets.corrections import Correction, Status
from showtell.images.photo import photo_media_type
from showtell.serving.corrections import CorrectionBatch, CorrectionPage, CorrectionStore, thumbnail_of
from showtell.serving.photo_requests import UNNAMED, read_photo
from showtell.serving.routes import Body, describe_photo

MAX_PAGE = 1_000  # rows
MAX_CAPTION = 65_536  # characters
_FOREVER = {"Cache-Control": "private, max-age=31536000, immutable"}  # an id names these bytes and no others

Statuses = Annotated[list[Status] | None, Query(alias="status", description="Of the rows (default: any).")]


class CorrectionChange(Body):
    """A change of a row."""

    revision: int = Field(ge=1, description="Of the row that was looked at.")
    caption: str | None = Field(None, max_length=MAX_CAPTION, description="The caption as it should be.")
    status: Status | None = Field(
        None, description='Default: a new caption is "corrected", or "accepted" if it is the one that was proposed.'
    )


class NamedChange(CorrectionChange):
    """A change of the row with an id."""

    id: str = Field(description="Of the row.")


class CorrectionChanges(Body):
    """Changes that are kept together."""

    changes: list[NamedChange] = Field(description="One for each row.")


def correction_router(store: CorrectionStore) -> APIRouter:
    """The routes over a store."""
    router = APIRouter(prefix="/v1/corrections", tags=["corrections"])

    @router.get("", summary="List corrections")
    def rows(
        status: Statuses = None,
        offset: Annotated[int, Query(ge=0, le=2**53, description="Rows to leave out.")] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Rows to return at most.")] = 100,
    ) -> CorrectionPage:
        """Rows, in the order in which they came."""
        return store.page(status or (), offset, limit)

    @router.get("/export", summary="Export corrections", response_class=Response)
    def exported(status: Statuses = None) -> Response:
        """The table of corrections (CSV), which `showtell train` takes as a dataset beside the photos."""
        headers = {"Content-Disposition": 'attachment; filename="corrections.csv"'}
        return Response("".join(store.table(status or ())), media_type="text/csv; charset=utf-8", headers=headers)

    @router.post(
        "/photos",
        summary="Keep a photo",
        response_model=Correction,
        responses={201: {"model": Correction, "description": "It is new."}},
        openapi_extra=describe_photo({}),
    )
    async def keep(
        request: Request,
        name: Annotated[str, Query(description="What the client calls the photo.")] = UNNAMED,
        captioner: Annotated[str, Query(description="Who proposes the caption.")] = "",
        caption: Annotated[str, Query(description="The caption that is proposed.")] = "",
        confidence: Annotated[float | None, Query(ge=0, le=1, description="Of the caption.")] = None,
        doubt: Annotated[str | None, Query(description="Why the captioner would not rely on it.")] = None,
    ) -> Response:
        """Keep a photo and the caption that is proposed for it; a photo that is stored already keeps its row."""
        photo = await read_photo(request)
        row, is_new = await asyncio.to_thread(
            store.add, photo, name=name, captioner=captioner, caption=caption, confidence=confidence, doubt=doubt
        )
        return JSONResponse(row.model_dump(), 201 if is_new else 200)

    @router.get("/photos/{id}", summary="Get a photo", response_class=FileResponse)
    def photo(id: str) -> FileResponse:
        """The bytes that were sent."""
        path = store.photo(id)
        return FileResponse(path, media_type=photo_media_type(path.suffix), headers=_FOREVER)

    @router.get("/photos/{id}/thumbnail", summary="Get a small photo", response_class=Response)
    def thumbnail(id: str) -> Response:
        """A JPEG of at most 256 pixels a side."""
        small = thumbnail_of(store.photo(id).read_bytes())
        return Response(small, media_type="image/jpeg", headers=_FOREVER)

    @router.patch("/{id}", summary="Correct, accept or skip a caption")
    def change(id: str, change: CorrectionChange) -> Correction:
        """Change a row, if nobody else has since the revision that is named."""
        return store.change(id, change.revision, caption=change.caption, status=change.status)

    @router.patch("", summary="Change many captions")
    def change_many(changes: CorrectionChanges) -> CorrectionBatch:
        """Change all rows that nobody else has changed since, or none; the others are returned as they are."""
        return store.change_many((one.id, one.revision, one.caption, one.status) for one in changes.changes)

    return router
