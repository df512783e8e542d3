"""A request about a photo: the body is the photo, and its query parameters are fields about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_origin

from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from showtell.decoding_config import DecodingConfig
from showtell.errors import UsageError, printable, shorten

MAX_NAME = 200  # characters of a photo's name that are shown
UNNAMED = "photo"


@dataclass
class PhotoRequest:
    """A photo and the fields about it."""

    photo: bytes
    name: str  # only to be shown
    fields: dict[str, list[str]]  # texts by name, as they came

    def take(self, name: str, kind: Any, default: Any = None) -> Any:
        """Remove a field, and return its value."""
        return convert(name, kind, self.fields.pop(name)) if name in self.fields else default

    def settings(self) -> dict[str, Any]:
        """The remaining fields, in the types of the decoding settings."""
        known = DecodingConfig.model_fields
        return {
            name: convert(name, known[name].annotation, texts) if name in known else texts[0]
            for name, texts in self.fields.items()
        }


async def read_photo(request: Request) -> bytes:
    """The body, or an HTTPException."""
    if request.headers.get("content-type", "").startswith("multipart/"):
        raise HTTPException(415, "A form is not read; send the photo itself as the body, its fields in the address.")
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise HTTPException(400, "The body ended before its end.") from error


async def read_photo_request(request: Request) -> PhotoRequest:
    """The photo of a request, and the fields about it."""
    fields = {name: request.query_params.getlist(name) for name in request.query_params}
    asked = PhotoRequest(await read_photo(request), UNNAMED, fields)
    asked.name = shorten(printable(asked.take("name", str, UNNAMED)), MAX_NAME) or UNNAMED
    return asked


def convert(name: str, kind: Any, texts: list[str]) -> Any:
    """The texts of a field in its type; a UsageError if they are not of that type."""
    if get_origin(kind) not in (tuple, list) and len(texts) > 1:
        raise UsageError(f"{name} is given {len(texts)} times, and has one value.")
    try:
        return TypeAdapter(kind).validate_python(texts if get_origin(kind) in (tuple, list) else texts[0])
    except ValidationError as error:
        raise UsageError(f"{name}: {error.errors()[0]['msg']}.") from error
