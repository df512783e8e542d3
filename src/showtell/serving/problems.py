"""Errors as problem details of RFC 9457, each with the sentence that the command line prints.

{"type": "about:blank", "title": "Unprocessable Content", "status": 422, "detail": "photo is empty; ..."}
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from showtell.errors import CheckpointError, ImageError, ShowtellError, StorageError, UsageError, one_line
from showtell.serving.corrections import ConflictError, UnknownCorrectionError
from showtell.serving.engine import ClosingError, QueueFullError, TooLateError

STATUSES: dict[type[ShowtellError], int] = {  # any other error is a defect, 500
    ImageError: 422,
    UsageError: 422,
    CheckpointError: 422,  # its probabilities are no numbers
    QueueFullError: 429,
    TooLateError: 504,
    ClosingError: 503,
    UnknownCorrectionError: 404,
    ConflictError: 409,
    StorageError: 507,
}
DEFECT = "Something failed inside the server; its log has the details."
MEANINGS = {
    400: "The request cannot be read.",
    401: "The token is missing or wrong.",
    403: "The request came from a page of another site.",
    404: "There is no such captioner, photo or path.",
    409: "Somebody else changed it in the meantime; `row` is what it is now.",
    413: "The body is larger than the server takes.",
    415: "The body is a form, which is not read.",
    421: "The host is not a name of the server.",
    422: "The photo cannot be read, or the captioner cannot honour a setting.",
    429: "Too many photos wait; Retry-After says when to come again.",
    500: "A defect of the server.",
    503: "The server is not ready, or is ending.",
    504: "The answer was not there in time.",
    507: "The folder of corrections cannot be read or written; the disk may be full.",
}


class Problem(BaseModel):
    """Why a request was not answered (RFC 9457)."""

    type: str = Field("about:blank", description="The status says what kind of problem it is.")
    title: str = Field(description="The status in words.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="One sentence: what was given, what is allowed, what to do.")


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": meaning, "model": Problem} for status, meaning in MEANINGS.items()
}


def to_response(error: Exception, path: str) -> JSONResponse:
    """The answer to an error at a path: a sentence in one line, escaped for terminals. A defect shows no message."""
    status, detail, headers, extra = 500, DEFECT, None, {}
    if isinstance(error, HTTPException):
        status, detail, headers = error.status_code, f"{error.detail.rstrip('.')}.", error.headers
        if status == 404 and detail == "Not Found.":
            detail = f"There is nothing at {path}; /docs lists what there is."
        if status == 405:
            detail = f"This method is not allowed at {path}; use {(headers or {}).get('Allow', 'another one')}."
    elif isinstance(error, RequestValidationError):
        problem = error.errors()[0]
        where = [".".join(str(part) for part in problem["loc"][1:])] if len(problem["loc"]) > 1 else []
        status, detail = 422, ": ".join([*where, f"{problem['msg'].removeprefix('Value error, ')}."])
    elif isinstance(error, ShowtellError):
        status, detail = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), 500), str(error)
    if isinstance(error, QueueFullError):
        headers = {"Retry-After": "1"}
    if isinstance(error, ConflictError):
        extra = {"row": error.now.model_dump()}
    problem = Problem(title=HTTPStatus(status).phrase, status=status, detail=one_line(detail))
    return JSONResponse({**problem.model_dump(), **extra}, status, headers, "application/problem+json")


def handle_problems(app: FastAPI) -> None:
    """Answer every error that leaves a route of the app with a problem."""

    async def answer(request: Request, error: Exception) -> JSONResponse:
        return to_response(error, request.url.path)

    for kind in (HTTPException, RequestValidationError, ShowtellError, Exception):
        app.add_exception_handler(kind, answer)
