"""What a request says: a photo, and fields about it. The photo comes as the body, in a form, or in JSON.

    image/jpeg, image/png, ...    the body is the photo, the fields are in the address
    multipart/form-data           `image` is the photo, the other parts are fields
    application/json              {"image": "data:image/jpeg;base64,...", fields ...}

Fields of the body win over those of the address. Nothing is fetched, and a file's name is a text to be shown.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_origin

from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from showtell.decoding_config import DecodingConfig
from showtell.errors import UsageError, printable, shorten

MAX_FIELDS = 100  # of a form
MAX_FIELD = 65_536  # bytes of a field of a form, characters of a text in JSON; a photo may have more
MAX_JSON = 50_000  # values of JSON, roughly: to read millions takes seconds, in which nobody else is answered
MAX_NAME = 200  # characters of a photo's name that are shown
UNNAMED = "photo"
_DATA_URL = re.compile(r"data:(image/[\w.+-]+);base64,", re.ASCII | re.IGNORECASE)


@dataclass
class PhotoRequest:
    """A photo and the fields about it, as they came: texts or, in JSON, any value; several of a name are a list."""

    photo: bytes
    name: str = UNNAMED  # for people
    fields: dict[str, Any] = field(default_factory=dict)

    def take(self, name: str, kind: Any, default: Any = None) -> Any:
        """The value of a field, which is then none of the settings.

        Raises:
            UsageError: it is not of its type.
        """
        return convert(name, kind, self.fields.pop(name)) if name in self.fields else default

    def settings(self) -> dict[str, Any]:
        """The fields that are left, those that settings have in their types.

        Raises:
            UsageError: one is not of its type.
        """
        known = DecodingConfig.model_fields
        return {
            name: convert(name, known[name].annotation, value) if name in known else value
            for name, value in self.fields.items()
        }


async def read_photo_request(request: Request) -> PhotoRequest:
    """What a request says.

    Raises:
        HTTPException: it cannot be read, or is of another type.
        UsageError: its JSON lacks a photo, or has one that is none.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        read = await _read_form(request)
    elif kind == "application/json":
        read = _read_json(await read_body(request))
    elif kind == "application/octet-stream" or kind.startswith("image/"):
        read = PhotoRequest(await read_body(request))
    else:
        given = f'"{shorten(kind, 60)}"' if kind else "missing"
        raise HTTPException(
            415,
            f"Content-Type is {given}; send the photo as image/jpeg (or another image type), as the field image of "
            "multipart/form-data, or as a data: URL in application/json.",
        )
    read.fields = {**_gather(request.query_params.multi_items()), **read.fields}
    for name, value in read.fields.items():
        longest = max([name, *(one for one in _as_list(value) if isinstance(one, str))], key=len)
        if len(longest) > MAX_FIELD:
            short = shorten(name, 60)
            raise UsageError(f"{short} has {len(longest):,} characters, and only a photo may have over {MAX_FIELD:,}.")
    name = read.take("name", str, read.name)
    read.name = shorten(printable(name), MAX_NAME) or UNNAMED
    return read


async def read_body(request: Request) -> bytes:
    """The body of a request.

    Raises:
        HTTPException: the client went away in the middle of it.
    """
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise HTTPException(400, "The body ended before its end.") from error


def parse_json(body: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        HTTPException: it is none.
    """
    if sum(map(body.count, (b",", b":", b"[", b"{"))) > MAX_JSON:
        raise HTTPException(400, f"The JSON has more than {MAX_JSON:,} values, which no question needs.")
    try:
        content = json.loads(body.decode())  # of bytes, json lets surrogates pass
        json.dumps(content, ensure_ascii=False, allow_nan=False).encode()  # nor are lone ones, or NaN, JSON
    except (ValueError, RecursionError) as error:
        problem = "it is nested too deep" if isinstance(error, RecursionError) else str(error).split("\n")[0]
        raise HTTPException(400, f"The body is no JSON in UTF-8: {shorten(problem)}.") from error
    if not isinstance(content, dict):
        raise HTTPException(400, f"The body should be a JSON object, not {shorten(json.dumps(content), 60)}.")
    return content


def photo_of_url(url: object, where: str) -> bytes:
    """The photo in a data: URL; no other URL is looked at.

    Args:
        url: what came.
        where: its key, for the sentence.

    Raises:
        UsageError: it is another URL, or broken.
    """
    start = _DATA_URL.match(url) if isinstance(url, str) else None
    if not isinstance(url, str) or start is None:
        raise UsageError(
            f'{where} is "{shorten(str(url), 60)}", and this server fetches nothing and reads no files; send the photo '
            'itself as "data:image/jpeg;base64,...", or as the body of the request.'
        )
    try:
        return base64.b64decode(url[start.end() :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"{where} is a data: URL whose base64 is broken: {str(error).lower()}.") from error


def convert(name: str, kind: Any, value: Any) -> Any:
    """A field in the type that it has; a text stands for a list of one where a list is meant.

    Raises:
        UsageError: it is not of its type.
    """
    if get_origin(kind) in (tuple, list):
        value = _as_list(value)
    elif isinstance(value, list):
        raise UsageError(f"{name} is given {len(value)} times, and has one value.")
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise UsageError(f"{name}: {error.errors()[0]['msg']}.") from error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _gather(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Names with their values; what is given several times is a list."""
    several: dict[str, list[str]] = {}
    for name, value in pairs:
        several.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 else values[0] for name, values in several.items()}


async def _read_form(request: Request) -> PhotoRequest:
    async with request.form(max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD) as form:
        items = form.multi_items()
        files = [(name, value) for name, value in items if isinstance(value, UploadFile)]
        if [name for name, _ in files] != ["image"]:
            given = f'a file "{shorten(files[0][0], 60)}"' if files else "no file"
            raise HTTPException(400, f'The form has {given}; send the photo as a file in the field "image".')
        ((_, file),) = files
        fields = _gather([(name, value) for name, value in items if isinstance(value, str)])
        return PhotoRequest(await file.read(), file.filename or UNNAMED, fields)


def _read_json(body: bytes) -> PhotoRequest:
    content: Mapping[str, Any] = parse_json(body)
    if "image" not in content:
        raise UsageError('The JSON has no "image"; put the photo there as "data:image/jpeg;base64,...".')
    fields = {name: value for name, value in content.items() if name != "image"}
    return PhotoRequest(photo_of_url(content["image"], "image"), fields=fields)
