"""The routes of captions, explanations, captioners, health and the page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse

from showtell.captioners.contract import Captioner
from showtell.captioners.photos import photo_to_show
from showtell.captions import Caption, Explanation, Word, caption_result
from showtell.config import Config
from showtell.decoding_config import DecodingConfig
from showtell.errors import ImageError, nearest
from showtell.images.photo import IN_MEMORY
from showtell.reports.live_page import explanation_card, live_page, live_policy
from showtell.serving.engine import Engine, Question
from showtell.serving.photo_requests import PhotoRequest, read_photo_request
from showtell.serving.settings import ServeSettings
from showtell.text.objects import keywords, matches

_SHOWN = ("name", "library", "parameters", "revision", "preprocessing")  # of what is known about a captioner
OWN_FIELDS = {
    "name": {"type": "string", "description": "Name of the photo, for the answer alone."},
    "captioner": {"type": "string", "description": "Name of a captioner of /v1/captioners (default: the first)."},
}
SALIENCY_FIELD = {"saliency": {"type": "string", "description": "Saliency method, one of the abilities."}}
EXAMPLE = caption_result("photo", [Caption("a dog", -1.5, True, (Word("a", -0.5), Word("dog", -0.75)), -1.5, 0.2)])


class Body(Config):
    """JSON that a route takes."""

    model_config = ConfigDict(defer_build=False)  # FastAPI cannot build it later


class CaptionTexts(Body):
    """Captions that are asked about."""

    captions: list[str] = Field(description="Captions, as a page shows them.")
    query: str = Field("", description="Words that a caption should have, or names of the same thing.")


class CaptionWords(Config):
    """What a caption names."""

    keywords: list[str] = Field(description="Things that the caption names, in the singular.")
    matches: bool = Field(description="Whether it has all words of the query.")


def v1_router(engine: Engine) -> APIRouter:
    """The routes that ask an engine."""
    router = APIRouter(prefix="/v1", tags=["captions"])

    @router.post(
        "/captions",
        summary="Caption a photo",
        responses={200: {"content": {"application/json": {"example": EXAMPLE}}}},
        openapi_extra=describe_photo(OWN_FIELDS | setting_schemas()),
    )
    async def captions(request: Request) -> JSONResponse:
        """The captions of a photo, the best first: those of `showtell caption`."""
        asked = await ask_for_photo(request, engine)
        name, captioner = captioner_named(engine, asked.take("captioner", str))
        question = Question("captions", name, asked.photo, captioner.settings(**asked.settings()))
        return JSONResponse(caption_result(asked.name, await ask(request, engine, question, asked.name)))

    @router.post(
        "/explanations",
        summary="Explain a caption",
        openapi_extra=describe_photo(OWN_FIELDS | SALIENCY_FIELD | setting_schemas("num_return_sequences")),
    )
    async def explanations(request: Request) -> JSONResponse:
        """The best caption, each word with its probability, its runners-up and where the model looked."""
        asked = await ask_for_photo(request, engine)
        return JSONResponse((await explain(request, engine, asked, (asked.take("captioner", str),))).to_json())

    @router.get("/captioners", summary="List the captioners")
    async def captioners() -> JSONResponse:
        """What each is, what it can do, and its default settings; the first is the default."""
        return JSONResponse({"captioners": describe_captioners(engine)})

    return router


def health_router(engine: Engine) -> APIRouter:
    """The routes that monitor a server, which need no token."""
    router = APIRouter(tags=["health"])

    @router.get("/healthz", summary="Whether the server runs")
    async def healthz() -> dict[str, bool]:
        """Always true."""
        return {"alive": True}

    @router.get("/readyz", summary="Whether the server takes questions")
    async def readyz() -> dict[str, bool]:
        """Whether its captioners are ready."""
        if not engine.is_ready:
            raise HTTPException(503, "The captioners are not ready; ask again in a moment.", {"Retry-After": "1"})
        return {"ready": True}

    return router


def page_router(engine: Engine, settings: ServeSettings) -> APIRouter:
    """The routes of the page, which are not part of the API."""
    router = APIRouter(include_in_schema=False)
    folder = None if settings.corrections is None else str(settings.corrections)
    about = {name: captioner.about for name, captioner in engine.captioners.items()}
    trainable = {name: one.source for name, one in about.items() if one.source and one.folder}
    content = live_page(
        describe_captioners(engine),
        corrections=folder,
        has_photos=settings.photos is not None,
        max_body=settings.max_body,
        trainable=trainable,
    )

    @router.get("/")
    async def page() -> HTMLResponse:
        """Photos, their captions, where the model looked, and corrections."""
        return HTMLResponse(content, headers={"Content-Security-Policy": live_policy()})

    @router.post("/page/words")
    def words(asked: CaptionTexts) -> list[CaptionWords]:
        """The keywords of captions, and which of them have all words of a query."""
        return [CaptionWords(keywords=keywords(text), matches=matches(asked.query, text)) for text in asked.captions]

    @router.post("/page/explanation")
    async def explanation(request: Request) -> HTMLResponse:
        """The best caption of a photo by each of some captioners, explained, as HTML for the page."""
        asked = await ask_for_photo(request, engine)
        names = asked.take("captioner", tuple[str, ...], (None,))
        return HTMLResponse(explanation_card(await explain(request, engine, asked, names)))

    return router


def describe_captioners(engine: Engine) -> list[dict[str, Any]]:
    """The captioners as plain data, without the paths of this machine."""
    return [
        {
            "name": name,
            "about": {key: getattr(captioner.about, key) for key in _SHOWN},
            "abilities": asdict(captioner.abilities),
            "decoding": captioner.decoding.model_dump(mode="json"),
            "is_calibrated": captioner.calibration is not None,
        }
        for name, captioner in engine.captioners.items()
    ]


def captioner_named(engine: Engine, name: str | None) -> tuple[str, Captioner]:
    """A captioner by its name, with the name; None is the first. Raises an HTTPException if the name is unknown."""
    captioners = engine.captioners
    if name is None:
        return next(iter(captioners.items()))
    if name not in captioners:
        raise HTTPException(404, f'There is no captioner "{name}"; {nearest(name, captioners)}.')
    return name, captioners[name]


async def ask_for_photo(request: Request, engine: Engine) -> PhotoRequest:
    """A request, read only if the engine would take a question now: under load, reading bodies costs most."""
    engine.require_room()
    return await read_photo_request(request)


async def explain(request: Request, engine: Engine, asked: PhotoRequest, names: tuple[str | None, ...]) -> Explanation:
    """The best caption of a photo by each of some captioners, explained."""
    captioners = dict(captioner_named(engine, name) for name in names)
    saliency = asked.take("saliency", str)
    given = {**asked.settings(), "num_return_sequences": 1}
    questions = [
        Question("explanation", name, asked.photo, captioner.settings(**given), saliency)
        for name, captioner in captioners.items()
    ]
    answers = await asyncio.gather(*(ask(request, engine, question, asked.name) for question in questions))
    photo, size = await asyncio.to_thread(photo_to_show, asked.photo)
    models = tuple(replace(answer, model=name) for name, answer in zip(captioners, answers, strict=True))
    return Explanation(asked.name, size, photo, models)


async def ask(request: Request, engine: Engine, question: Question, name: str) -> Any:
    """The answer of an engine, with the photo's name in its errors; a client that disconnects cancels the question."""
    answer = asyncio.ensure_future(engine.ask(question))
    gone = asyncio.ensure_future(_has_gone(request))
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise HTTPException(400, "The client has gone.")
        return answer.result()
    except ImageError as error:
        raise ImageError(str(error).replace(IN_MEMORY, name, 1)) from error
    finally:
        answer.cancel()
        gone.cancel()


async def _has_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def setting_schemas(*without: str) -> dict[str, dict[str, Any]]:
    """The JSON schema of each decoding setting. Defaults are left out: they are the captioner's."""
    return {
        name: {key: value for key, value in schema.items() if key not in ("title", "default")}
        for name, schema in DecodingConfig.model_json_schema()["properties"].items()
        if name not in without
    }


def describe_photo(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a route that takes a photo, and the schemas of its query parameters, for OpenAPI."""
    photo = {"schema": {"type": "string", "format": "binary"}}
    return {
        "requestBody": {"required": True, "description": "The photo.", "content": {"image/*": photo}},
        "parameters": [
            {"name": name, "in": "query", "description": schema.get("description", ""), "schema": schema}
            for name, schema in fields.items()
        ],
    }
