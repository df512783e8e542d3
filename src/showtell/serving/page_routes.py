"""The routes of the live page: the page itself, and the cards of explanations that it asks for.

GET  /                      the page
POST /page/explanation      a photo and settings, as /v1/explanations takes them, of one captioner or of several
"""

from __future__ import annotations

from functools import cache

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from showtell.reports.live_page import explanation_card, live_page, live_policy
from showtell.serving.engine import Engine
from showtell.serving.routes import ask_for_photo, describe_captioners, explain
from showtell.serving.settings import ServeSettings


def page_router(engine: Engine, settings: ServeSettings) -> APIRouter:
    """The routes of the page, which is no part of the API."""
    router = APIRouter(include_in_schema=False)

    @cache
    def content() -> str:
        folder = None if settings.corrections is None else str(settings.corrections)
        return live_page(describe_captioners(engine), corrections=folder, max_body=settings.max_body)

    @router.get("/")
    async def page() -> HTMLResponse:
        """Photos, their captions, where the model looked, and corrections."""
        return HTMLResponse(content(), headers={"Content-Security-Policy": live_policy()})

    @router.post("/page/explanation")
    async def explanation(request: Request) -> HTMLResponse:
        """The best caption of a photo by each captioner that is named, explained, as HTML for the page."""
        asked = await ask_for_photo(request, engine)
        names = asked.take("captioner", tuple[str, ...], (None,))
        return HTMLResponse(explanation_card(await explain(request, engine, asked, names)))

    return router
