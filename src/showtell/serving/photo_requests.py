"""What a request says: a photo, and fields about it. The photo comes as the body or in a form.

    image/jpeg, image/png, ...    the body is the photo, the fields are in the address
    multipart/form-data           `image` is the photo, the other parts are fields

Fields of the body win over those of the address. Nothing is fetched, and a file's name is a text to be shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_origin

from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import ImmutableMultiDict, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from showtell.decoding_config import DecodingConfig
from showtell.errors import UsageError, printable, shorten

MAX_FIELDS = 100  # of a form
MAX_FIELD = 65_536  # bytes of a field of a form, characters of a text in JSON; a photo may have more
MAX_NAME = 200  # characters of a photo's name that are shown
UNNAMED = "photo"


@dataclass
class PhotoRequest:
    """A photo and the fields about it, as they came: texts, of which several of a name are a list."""

    photo: bytes
    name: str = UNNAMED  # for people
    fields: dict[str, str | list[str]] = field(default_factory=dict)

    def take(self, name: str, kind: Any, default: Any = None) -> Any:
        """The value of a field, which is then none of the settings."""
        return convert(name, kind, self.fields.pop(name)) if name in self.fields else default

    def settings(self) -> dict[str, Any]:
        """The fields that are left, those that settings have in their types."""
        known = DecodingConfig.model_fields
        return {
            name: convert(name, known[name].annotation, value) if name in known else value
            for name, value in self.fields.items()
        }


async def read_photo_request(request: Request) -> PhotoRequest:
    """What a request says, or an HTTPException that says why it cannot be read."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        read = await _read_form(request)
    elif kind == "application/octet-stream" or kind.startswith("image/"):
        try:
            read = PhotoRequest(await request.body())
        except ClientDisconnect as error:
            raise HTTPException(400, "The body ended before its end.") from error
    else:
        given = f'"{shorten(kind, 60)}"' if kind else "missing"
        raise HTTPException(
            415,
            f"Content-Type is {given}; send the photo as image/jpeg (or another image type), or as the field image of "
            "multipart/form-data.",
        )
    read.fields = {**_gather(request.query_params), **read.fields}
    read.name = shorten(printable(read.take("name", str, read.name)), MAX_NAME) or UNNAMED
    return read


def convert(name: str, kind: Any, value: Any) -> Any:
    """A field in the type that it has; a text stands for a list of one where a list is meant.

    Raises:
        UsageError: it is not of its type.
    """
    if get_origin(kind) in (tuple, list):
        value = value if isinstance(value, list) else [value]
    elif isinstance(value, list):
        raise UsageError(f"{name} is given {len(value)} times, and has one value.")
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise UsageError(f"{name}: {error.errors()[0]['msg']}.") from error


def _gather(fields: ImmutableMultiDict[str, Any]) -> dict[str, str | list[str]]:
    """Names with their texts; what is given several times is a list."""
    texts = {name: [one for one in fields.getlist(name) if isinstance(one, str)] for name in fields}
    return {name: some if len(some) > 1 else some[0] for name, some in texts.items() if some}


async def _read_form(request: Request) -> PhotoRequest:
    async with request.form(max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD) as form:
        files = [(name, value) for name, value in form.multi_items() if isinstance(value, UploadFile)]
        if [name for name, _ in files] != ["image"]:
            given = f'a file "{shorten(files[0][0], 60)}"' if files else "no file"
            raise HTTPException(400, f'The form has {given}; send the photo as a file in the field "image".')
        file = files[0][1]
        return PhotoRequest(await file.read(), file.filename or UNNAMED, _gather(form))
