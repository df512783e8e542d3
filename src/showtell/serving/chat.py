"""Captions in the shape of OpenAI's chat completions, for photo libraries and other programs that speak it.

    POST /v1/chat/completions     one photo as a data: URL in the messages; its caption is the answer
    GET  /v1/models               the captioners

A captioner that takes a prompt gets the text of the messages; the others caption the photo whatever the text says. A
`temperature` above 0 samples the caption; otherwise it is that of the captioner's default search. Other fields of
OpenAI's change nothing.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, field_validator
from starlette.responses import JSONResponse, Response

from showtell.captions import Caption
from showtell.decoding_config import DecodingConfig
from showtell.errors import UsageError, shorten
from showtell.serving.engine import Engine, Question
from showtell.serving.photo_requests import MAX_FIELD, UNNAMED
from showtell.serving.routes import ask, captioner_named

_DATA_URL = re.compile(
    r"\s*data:\s*(?:image/[\w.+-]+|application/octet-stream)?\s*(?:;[^,;]*)*?;?\s*base64\s*,", re.ASCII | re.IGNORECASE
)
_BASE64 = str.maketrans("-_", "+/", " \t\n\f\r=")  # as browsers read it, and in the alphabet of URLs


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _Text(_Part):
    type: Literal["text", "input_text"]
    text: str = Field(max_length=MAX_FIELD)


class _Image(_Part):
    type: Literal["image_url", "input_image"]
    image_url: str = Field(description='data:image/jpeg;base64,..., or {"url": it}; no other URL is fetched.')

    @field_validator("image_url", mode="before")
    @classmethod
    def _find_url(cls, value: Any) -> Any:
        return value.get("url") if isinstance(value, dict) else value


class Message(_Part):
    """A message; those of the assistant are ignored."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: list[Annotated[_Text | _Image, Field(discriminator="type")]] | None = None

    @field_validator("content", mode="before")
    @classmethod
    def _text_to_part(cls, value: Any) -> Any:
        return [{"type": "text", "text": value}] if isinstance(value, str) else value


class ChatRequest(BaseModel):
    """A request for a caption; other fields of OpenAI's are ignored."""

    model: str | None = Field(
        None, max_length=MAX_FIELD, description="Name of a captioner of /v1/models (default: the first)."
    )
    messages: list[Message] = Field(description="With exactly one photo in them.", min_length=1, max_length=1000)
    max_tokens: int | None = Field(None, ge=1, le=10**9, description="Maximum number of tokens of a caption.")
    max_completion_tokens: int | None = Field(None, ge=1, le=10**9, description="The same.")
    temperature: float | None = Field(None, ge=0, le=2, description="Above 0 the caption is sampled.")
    top_p: float | None = Field(None, gt=0, le=1, description="Of sampling.")
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="Of sampling.")
    n: int | None = Field(None, ge=1, le=100, description="Number of different captions.")
    logprobs: bool | None = Field(None, description='Add the log-probability of each token; that of the end is of "".')
    stream: bool | None = Field(None, description="Send each caption as a server-sent event.")


def chat_router(engine: Engine) -> APIRouter:
    """The routes in OpenAI's shape."""
    router = APIRouter(prefix="/v1", tags=["chat"])

    summary = "Caption a photo, in the shape of OpenAI's chat completions"

    @router.post("/chat/completions", summary=summary, response_model=None)
    async def completions(asked: ChatRequest, request: Request) -> Response:
        """The caption of the one photo in the messages, as the answer of an assistant."""
        name, captioner = captioner_named(engine, asked.model)
        text, photo = await asyncio.to_thread(text_and_photo, asked.messages)
        settings = captioner.settings(**_settings(asked, captioner.decoding, text))
        answer = await ask(request, engine, Question("captions", name, photo, settings), UNNAMED)
        return _completion(name, answer, asked)

    @router.get("/models", summary="List the captioners in OpenAI's shape")
    async def models() -> dict[str, Any]:
        """The captioners as models."""
        return {"object": "list", "data": [_model(name) for name in engine.captioners]}

    @router.get("/models/{name:path}", summary="Get a captioner in OpenAI's shape")
    async def model(name: str) -> dict[str, Any]:
        """A captioner as a model."""
        return _model(captioner_named(engine, name)[0])

    return router


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "showtell"}


def text_and_photo(messages: Sequence[Message]) -> tuple[str, bytes]:
    """The text of the messages and the one photo in them."""
    texts, urls = [], []
    for message in messages:
        for part in message.content or () if message.role in ("system", "developer", "user") else ():
            if isinstance(part, _Text):
                texts.append(part.text.strip())
            else:
                urls.append(part.image_url)
    if len(urls) != 1:
        raise UsageError(
            f"The messages have {len(urls) or 'no'} photo{'s' if urls else ''}; send exactly one, as "
            '{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,..."}}.'
        )
    return "\n".join(filter(None, texts)), _photo_of_url(urls[0])


def _photo_of_url(url: str) -> bytes:
    start = _DATA_URL.match(url)
    if start is None:
        raise UsageError(
            f'image_url is "{shorten(url, 60)}", and this server fetches nothing and reads no files; send the photo '
            'itself as "data:image/jpeg;base64,...".'
        )
    try:
        content = unquote(url[start.end() :]).translate(_BASE64)
        return base64.b64decode(content + "=" * (-len(content) % 4), validate=True)
    except ValueError as error:
        raise UsageError(f"image_url is a data: URL whose base64 is broken: {str(error).lower()}.") from error


def _settings(asked: ChatRequest, own: DecodingConfig, text: str) -> dict[str, Any]:
    """The decoding settings of a request."""
    limits = [limit for limit in (asked.max_tokens, asked.max_completion_tokens) if limit is not None]
    settings: dict[str, Any] = {"max_length": min([own.max_length, *limits])}
    settings["min_length"] = min(own.min_length, settings["max_length"])
    if text and own.prompt is not None:
        settings["prompt"] = text
    if asked.temperature:
        settings |= {"search": "sample", "temperature": asked.temperature, "num_return_sequences": asked.n or 1}
        settings |= {name: value for name in ("top_p", "seed") if (value := getattr(asked, name)) is not None}
    elif asked.n and asked.n > 1:
        settings |= {"num_return_sequences": asked.n, "num_beams": max(own.num_beams, asked.n)}
    return settings


def _completion(model: str, captions: Sequence[Caption], asked: ChatRequest) -> Response:
    """Captions as a completion, whole or as server-sent events, one for each caption; the last has the usage too."""
    about = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
    tokens = sum(len(caption.tokens or caption.words) for caption in captions)
    usage = {"prompt_tokens": 0, "completion_tokens": tokens, "total_tokens": tokens}
    choices = [
        {
            "index": index,
            "delta" if asked.stream else "message": {"role": "assistant", "content": caption.text, "refusal": None},
            "finish_reason": "stop" if caption.finished else "length",
            "logprobs": _logprobs(caption) if asked.logprobs else None,
        }
        for index, caption in enumerate(captions)
    ]
    if not asked.stream:
        return JSONResponse({**about, "object": "chat.completion", "choices": choices, "usage": usage})
    about["object"] = "chat.completion.chunk"
    chunks = [{**about, "choices": [choice]} for choice in choices]
    chunks[-1]["usage"] = usage
    lines = [*(json.dumps(chunk, ensure_ascii=False) for chunk in chunks), "[DONE]"]
    return Response("".join(f"data: {line}\n\n" for line in lines), media_type="text/event-stream")


def _logprobs(caption: Caption) -> dict[str, Any]:
    """The tokens of a caption, or its words, with their log-probabilities; the last, "", is the end."""
    words = ((f"{' ' * (index > 0)}{word.word}", word.logprob) for index, word in enumerate(caption.words))
    tokens: list[tuple[str, float]] = [(token.token, token.logprob) for token in caption.tokens] or list(words)
    if caption.finished and caption.logprob is not None:
        tokens.append(("", caption.logprob - sum(logprob for _, logprob in tokens)))
    content: list[dict[str, Any]] = [
        {"token": token, "logprob": logprob, "bytes": None, "top_logprobs": []} for token, logprob in tokens
    ]
    return {"content": content, "refusal": None}
