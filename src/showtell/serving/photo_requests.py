"""What a request says: a photo, and fields about it. The photo comes as the body, in a form, or in JSON.

    image/jpeg, image/png, ...    the body is the photo, the fields are in the address
    multipart/form-data           `image` is the photo, the other parts are fields
    application/json              {"image": "data:image/jpeg;base64,...", fields ...}

Fields of the body win over those of the address. Nothing is fetched, and a file's name is a text to be shown.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NoReturn, get_origin

from pydantic import TypeAdapter, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from showtell.decoding_config import DecodingConfig
from showtell.errors import UsageError, printable, shorten

MAX_FIELDS = 100  # of a form
MAX_FIELD = 65_536  # bytes of a field of a form, characters of a text in JSON; a photo may have more
MAX_JSON = 50_000  # values of JSON, roughly: to read millions takes seconds, in which nobody else is answered
MAX_NAME = 200  # characters of a photo's name that are shown
UNNAMED = "photo"
_HALF = "The body ended before its end."
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


class _FormInMemory(MultiPartParser):
    """A form whose files stay in memory, as the limit of the body allows."""

    spool_max_size = 2**62

    def close(self) -> None:
        """Free what was read; `FormData.close` knows no file that came in half."""
        for file in self._files_to_close_on_error:
            file.close()


async def read_photo_request(request: Request) -> PhotoRequest:
    """What a request says.

    Raises:
        HTTPException: it cannot be read, or is of another type.
        UsageError: its JSON lacks a photo, or has one that is none.
    """
    fields = _gather(request.query_params.multi_items())
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
    read.fields = {**fields, **read.fields}
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
        raise HTTPException(400, _HALF) from error


def parse_json(body: bytes, photo: tuple[str, ...]) -> dict[str, Any]:
    """A JSON object.

    Args:
        body: of the request.
        photo: the last two keys on the way to the photo, or its only one; all other texts are short.

    Raises:
        HTTPException: it is none.
        UsageError: a text is too long.
    """
    if sum(map(body.count, (b",", b":", b"[", b"{"))) > MAX_JSON:
        raise HTTPException(400, f"The JSON has more than {MAX_JSON:,} values, which no question needs.")
    try:
        content = json.loads(body.decode(), parse_constant=_refuse_constant)  # of bytes, json lets surrogates pass
        if b"\\u" in body:
            json.dumps(content, ensure_ascii=False).encode()  # a lone surrogate is no text, and is written like this
    except (ValueError, RecursionError) as error:
        problem = "it is nested too deep" if isinstance(error, RecursionError) else str(error).split("\n")[0]
        raise HTTPException(400, f"The body is no JSON in UTF-8: {shorten(problem)}.") from error
    if not isinstance(content, dict):
        raise HTTPException(400, f"The body should be a JSON object, not {shorten(json.dumps(content), 60)}.")
    _require_short(content, photo)
    return content


def _require_short(content: Mapping[str, Any], photo: tuple[str, ...]) -> None:
    """Make sure that no text is so long that a sentence about it takes seconds, in which nobody else is answered.

    Raises:
        UsageError: one is.
    """
    left: list[tuple[tuple[str, ...], Any]] = [((), content)]
    while left:
        where, value = left.pop()
        if isinstance(value, dict):
            require_length("a key", max(map(len, value), default=0))
            left += [((*where[-1:], key), one) for key, one in value.items()]
        elif isinstance(value, list):
            left += [((*where[-1:], ""), one) for one in value]
        elif isinstance(value, str) and where != photo:
            name = next((key for key in reversed(where) if key), "a text")
            require_length(shorten(name, 60), len(value))


def require_length(name: str, length: int) -> None:
    """Make sure that a text is no longer than a field of a form.

    Args:
        name: of the text, for the sentence.
        length: its characters.

    Raises:
        UsageError: it is longer.
    """
    if length > MAX_FIELD:
        raise UsageError(f"{name} has {length:,} characters, and only a photo may have more than {MAX_FIELD:,}.")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


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
        shown = shorten(str(url), 60)
        is_url = isinstance(url, str) and re.match(r"[a-z][a-z0-9+.-]*:", url, re.IGNORECASE)
        why = "this server fetches nothing and reads no files" if is_url else "that is no photo"
        raise UsageError(
            f'{where} is "{shown}", and {why}; send the photo itself as "data:image/jpeg;base64,...", or as the body '
            "of the request."
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
        value = [value] if isinstance(value, str) else value
    elif isinstance(value, list):
        raise UsageError(f"{name} is given {len(value)} times, and has one value.")
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise UsageError(f"{name}: {error.errors()[0]['msg']}.") from error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _gather(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Names with their values; what is given several times is a list."""
    several: dict[str, list[str]] = {}
    for name, value in pairs:
        several.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 else values[0] for name, values in several.items()}


def _require_utf8(content_type: str) -> None:
    """Make sure that the texts of a form are in UTF-8; others hold surrogates, or are no encodings of texts.

    Raises:
        HTTPException: they are not.
    """
    _, options = parse_options_header(content_type)
    charset = options.get(b"charset", b"utf-8").decode("latin-1")
    try:
        is_utf8 = codecs.lookup(charset).name == "utf-8"
    except (LookupError, ValueError):
        is_utf8 = False
    if not is_utf8:
        raise HTTPException(415, f'The form has charset "{shorten(charset, 60)}"; send its texts in UTF-8.')


async def _read_form(request: Request) -> PhotoRequest:
    _require_utf8(request.headers["content-type"])
    form = _FormInMemory(request.headers, request.stream(), max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD)
    try:
        items = (await form.parse()).multi_items()
        files = [(name, value) for name, value in items if isinstance(value, UploadFile)]
        if [name for name, _ in files] != ["image"]:
            given = f'a file "{shorten(files[0][0], 60)}"' if files else "no file"
            raise HTTPException(400, f'The form has {given}; send the photo as a file in the field "image".')
        (_, file), *_ = files
        fields = _gather([(name, value) for name, value in items if isinstance(value, str)])
        return PhotoRequest(await file.read(), file.filename or UNNAMED, fields)
    except ClientDisconnect as error:
        raise HTTPException(400, _HALF) from error
    except MultiPartException as error:
        raise HTTPException(400, f"The form cannot be read: {error.message.rstrip('.')}.") from error
    finally:
        form.close()


def _read_json(body: bytes) -> PhotoRequest:
    content: Mapping[str, Any] = parse_json(body, photo=("image",))
    if "image" not in content:
        raise UsageError('The JSON has no "image"; put the photo there as "data:image/jpeg;base64,...".')
    fields = {name: value for name, value in content.items() if name != "image"}
    return PhotoRequest(photo_of_url(content["image"], "image"), fields=fields)
