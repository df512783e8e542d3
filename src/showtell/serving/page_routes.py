"""The routes of the live page: the page itself, and the cards of explanations that it asks for.

GET  /                      the page
POST /page/explanation      a photo and settings, as /v1/explanations takes them, of one captioner or of several
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from showtell.captions import ModelExplanation
from showtell.explanations import Explanation
from showtell.explanations.explanation import photo_to_show
from showtell.reports.live_page import explanation_card, live_page, live_policy
from showtell.serving import problems
from showtell.serving.engine import Engine, Question
from showtell.serving.photo_requests import read_photo_request
from showtell.serving.routes import ask, captioner_named, describe_captioner, describe_explanation
from showtell.serving.settings import ServeSettings


def page_router(engine: Engine, settings: ServeSettings) -> APIRouter:
    """The routes of the page."""
    router = APIRouter(tags=["page"])

    @cache
    def content() -> str:
        captioners = [describe_captioner(one) for one in engine.captioners.values()]
        return live_page(captioners, has_corrections=settings.corrections is not None, max_body=settings.max_body)

    @router.get("/", summary="The page", response_class=HTMLResponse, responses=problems.describe())
    async def page() -> HTMLResponse:
        """Photos, their captions, where the model looked, and corrections."""
        return HTMLResponse(content(), headers={"Content-Security-Policy": live_policy()})

    @router.post(
        "/page/explanation",
        summary="The card of an explanation",
        response_class=HTMLResponse,
        responses=problems.describe(*problems.OF_PHOTOS),
        openapi_extra=describe_explanation(),
    )
    async def explanation(request: Request) -> HTMLResponse:
        """The best caption of a photo by each captioner that is named, explained, as HTML for the page."""
        asked = await read_photo_request(request)
        names = asked.take("captioner", tuple[str, ...], (None,))
        occlusion = asked.take("occlusion", str)
        given = {**asked.settings(), "num_return_sequences": 1}
        captioners = [captioner_named(engine, name) for name in dict.fromkeys(names)]
        questions = [
            Question("explanation", one.name, asked.photo, one.settings(**given), occlusion=occlusion)
            for one in captioners
        ]
        answers = await asyncio.gather(*(ask(request, engine, question, asked.name) for question in questions))
        photo, size = await request.app.state.thumbnails(photo_to_show, asked.photo)
        models = tuple(
            replace(answer, model=one.name)
            for one, answer in zip(captioners, answers, strict=True)
            if isinstance(answer, ModelExplanation)
        )
        return HTMLResponse(explanation_card(Explanation(asked.name, size, photo, models)))

    return router
