"""The routes of version 1 of the API about photos: captions, explanations, and who makes them.

    POST /v1/captions        GET /v1/captioners
    POST /v1/explanations    GET /healthz, /readyz, /metrics

A photo and its settings come in any form of `photo_requests.py`. The answers are those of the command line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

from showtell.captions import Caption, ModelExplanation, caption_result
from showtell.decoding_config import DecodingConfig
from showtell.errors import ImageError, UsageError, nearest
from showtell.explanations import Explanation
from showtell.explanations.explanation import photo_to_show
from showtell.images.photo import IN_MEMORY
from showtell.serving import problems
from showtell.serving.answers import CaptionsAnswer
from showtell.serving.engine import Engine, Question, ServedCaptioner
from showtell.serving.photo_requests import PhotoRequest, read_photo_request

CAPTION_FIELDS = {
    "calibrated": {"type": "boolean", "description": "Give the chance that a caption is good as its confidence."},
}
EXPLANATION_FIELDS = {
    "occlusion": {"type": "string", "description": "Hide each region in turn by this method of the abilities."}
}


def v1_router(engine: Engine) -> APIRouter:
    """The routes that ask an engine."""
    router = APIRouter(prefix="/v1", tags=["captions"])
    of_photos = problems.describe(*problems.OF_PHOTOS)

    @router.post(
        "/captions",
        summary="Caption a photo",
        response_model=None,
        responses={200: {"model": CaptionsAnswer}, **of_photos},
        openapi_extra=describe_photo(CAPTION_FIELDS, setting_schemas()),
    )
    async def captions(request: Request) -> JSONResponse:
        """The captions of a photo, the best first: those of `showtell caption`."""
        asked = await ask_for_photo(request, engine)
        captioner = captioner_named(engine, asked.take("captioner", str))
        is_calibrated = asked.take("calibrated", bool, False)
        settings = captioner.settings(**asked.settings())
        if is_calibrated and not captioner.is_calibrated:
            raise UsageError(f"{captioner.name} has no calibration; run showtell calibrate, or leave calibrated out.")
        question = Question("captions", captioner.name, asked.photo, settings)
        answer = await ask(request, engine, question, asked.name)
        captions = [one for one in answer if isinstance(one, Caption)]
        if is_calibrated and any(one.calibrated_confidence is None for one in captions):
            raise UsageError(f"The calibration of {captioner.name} is about other settings; leave calibrated out.")
        if not is_calibrated:
            captions = [replace(one, calibrated_confidence=None) for one in captions]
        return JSONResponse(caption_result(asked.name, captions))

    @router.post(
        "/explanations",
        summary="Explain a caption",
        response_model=None,
        responses=of_photos,
        openapi_extra=describe_photo(EXPLANATION_FIELDS, setting_schemas("num_return_sequences")),
    )
    async def explanations(request: Request) -> JSONResponse:
        """The best caption, each word with its probability, its runners-up and where the model looked."""
        asked = await ask_for_photo(request, engine)
        return JSONResponse((await explain(request, engine, asked, (asked.take("captioner", str),))).to_json())

    @router.get("/captioners", summary="List the captioners", response_model=None, responses=problems.describe())
    async def captioners() -> JSONResponse:
        """What each is, what it can do, and its default settings; the first is the default."""
        return JSONResponse({"captioners": [describe_captioner(one) for one in engine.captioners.values()]})

    return router


def health_router(engine: Engine) -> APIRouter:
    """What watchers of a server ask; whether it runs and is ready, without a token."""
    router = APIRouter(tags=["health"], responses=problems.describe())

    @router.get("/healthz", summary="Whether the server runs")
    async def healthz() -> dict[str, bool]:
        """It answers, so it runs."""
        return {"alive": True}

    @router.get("/readyz", summary="Whether the server takes questions", responses=problems.describe(503))
    async def readyz() -> dict[str, bool]:
        """Whether its captioners are there."""
        if not engine.is_ready:
            raise HTTPException(503, "The captioners are not ready; ask again in a moment.", {"Retry-After": "1"})
        return {"ready": True}

    @router.get("/metrics", summary="What the server measures of itself", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Queue, batches, latencies by stage, errors and memory, in the text format of Prometheus."""
        return Response(engine.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    return router


def describe_captioner(captioner: ServedCaptioner) -> dict[str, Any]:
    """A captioner as plain data, without the paths of this machine."""
    about = captioner.about.to_json()
    return {
        "name": captioner.name,
        "about": {name: about[name] for name in ("name", "library", "parameters", "revision", "preprocessing")},
        "abilities": captioner.abilities.to_json(),
        "decoding": captioner.decoding.model_dump(mode="json"),
        "is_calibrated": captioner.is_calibrated,
    }


def captioner_named(engine: Engine, name: str | None) -> ServedCaptioner:
    """The captioner of some name; None is the first.

    Raises:
        HTTPException: there is none.
    """
    captioners = engine.captioners
    if name is None:
        return next(iter(captioners.values()))
    if name not in captioners:
        raise HTTPException(404, f'There is no captioner "{name}"; {nearest(name, captioners)}.')
    return captioners[name]


async def ask_for_photo(request: Request, engine: Engine) -> PhotoRequest:
    """What a request says, if the engine would take a question now: under load, reading bodies costs most."""
    engine.require_room()
    return await read_photo_request(request)


async def explain(request: Request, engine: Engine, asked: PhotoRequest, names: tuple[str | None, ...]) -> Explanation:
    """The best caption of a photo by each captioner that is named, explained."""
    captioners = [captioner_named(engine, name) for name in dict.fromkeys(names)]
    occlusion = asked.take("occlusion", str)
    given = {**asked.settings(), "num_return_sequences": 1}
    questions = [
        Question("explanation", one.name, asked.photo, one.settings(**given), occlusion=occlusion) for one in captioners
    ]
    answers = await asyncio.gather(*(ask(request, engine, question, asked.name) for question in questions))
    photo, size = await engine.photos.run(asked.photo, partial(photo_to_show, asked.photo))
    models = tuple(
        replace(answer, model=one.name)
        for one, answer in zip(captioners, answers, strict=True)
        if isinstance(answer, ModelExplanation)
    )
    return Explanation(asked.name, size, photo, models)


async def ask(request: Request, engine: Engine, question: Question, name: str) -> Any:
    """The answer of an engine; if the client goes away first, the question is taken back.

    Args:
        request: where it came from.
        engine: that answers.
        question: what is asked.
        name: of the photo, for messages.

    Raises:
        ImageError: the photo cannot be read.
        UsageError: the question is too large for this server, or not one for its captioner.
    """
    answer = asyncio.ensure_future(engine.ask(question))
    gone = asyncio.ensure_future(_has_gone(request))
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise HTTPException(400, "The client has gone.")  # that nobody reads
        return answer.result()
    except ImageError as error:
        raise ImageError(str(error).replace(IN_MEMORY, name, 1)) from error
    finally:
        answer.cancel()
        gone.cancel()


async def _has_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# --- the description of the API ---


def setting_schemas(*without: str) -> dict[str, dict[str, Any]]:
    """The JSON schema of each decoding setting. Defaults are left out: they are the captioner's."""
    properties: Mapping[str, dict[str, Any]] = DecodingConfig.model_json_schema()["properties"]
    return {
        name: {key: value for key, value in schema.items() if key not in ("title", "default")}
        for name, schema in properties.items()
        if name not in without
    }


def describe_photo(fields: Mapping[str, Any], settings: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The body of a route that takes a photo, as OpenAPI has it.

    Args:
        fields: schemas of its fields beside photo, name and captioner.
        settings: schemas of the decoding settings that it takes.
    """
    properties = {
        "image": {"type": "string", "format": "binary", "description": "The photo."},
        "name": {"type": "string", "description": "Name of the photo, for the answer alone."},
        "captioner": {"type": "string", "description": "Name of a captioner of /v1/captioners (default: the first)."},
        **fields,
        **settings,
    }
    form = {"type": "object", "required": ["image"], "properties": properties}
    return {
        "requestBody": {
            "required": True,
            "description": "A photo as it is, with the other fields in the address; or a form with all.",
            "content": {
                "image/*": {"schema": {"type": "string", "format": "binary"}},
                "multipart/form-data": {"schema": form},
            },
        },
    }
