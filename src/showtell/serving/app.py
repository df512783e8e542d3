"""The web application: guards, routes, and an engine that is started and closed with it.

app = create_app(engine, ServeSettings(token="..."))
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.responses import HTMLResponse

from showtell import __version__
from showtell.images.loading import READERS
from showtell.reports.api_page import api_page, api_policy
from showtell.serving.chat import ChatRequest, chat_router
from showtell.serving.correction_routes import correction_router
from showtell.serving.corrections import CorrectionStore
from showtell.serving.engine import Engine
from showtell.serving.guard import BodyGuard, HostGuard, LoadGuard, OriginGuard, SecurityHeaders, TokenGuard
from showtell.serving.page_routes import page_router
from showtell.serving.problems import Problem, handle_problems
from showtell.serving.routes import health_router, v1_router
from showtell.serving.settings import ServeSettings

ABOUT = """Captions of photos, their words with probabilities, and where the model looked.

Settings are those of `showtell caption`: given in the address, beside the photo in a form, or in JSON. Defaults are the
captioner's own. Errors are problem details (RFC 9457) whose `detail` is one sentence."""


def create_app(engine: Engine, settings: ServeSettings) -> FastAPI:
    """The application.

    Args:
        engine: answers questions; it is started and closed with the application.
        settings: of the server.
    """

    store = None if settings.corrections is None else CorrectionStore(settings.corrections)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with ThreadPoolExecutor(READERS, thread_name_prefix="thumbnails") as threads:

            async def thumbnails(function: Callable[..., Any], *arguments: Any) -> Any:
                call = functools.partial(function, *arguments)
                return await asyncio.get_running_loop().run_in_executor(threads, call)

            app.state.thumbnails = thumbnails  # photos are decoded by few threads: each may need much memory
            await engine.start()
            try:
                yield
            finally:
                await engine.close()
                if store is not None:
                    store.close()

    app = FastAPI(
        title="showtell",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,  # these would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.max_words = settings.max_words
    handle_problems(app)
    app.include_router(v1_router(engine))
    app.include_router(chat_router(engine))
    app.include_router(health_router(engine))
    app.include_router(page_router(engine, settings))
    if store is not None:
        app.include_router(correction_router(store))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(documentation(), headers={"Content-Security-Policy": api_policy()})

    @functools.cache
    def documentation() -> str:
        return api_page(app.openapi())

    app.openapi = functools.partial(_openapi, app, settings)  # type: ignore[method-assign]
    # The last one is the outermost.
    app.add_middleware(LoadGuard, engine=engine)
    app.add_middleware(BodyGuard, settings=settings)
    if settings.token is None:
        app.add_middleware(OriginGuard)
        app.add_middleware(HostGuard, names=[settings.host])
    else:
        app.add_middleware(TokenGuard, token=settings.token)
        app.add_middleware(OriginGuard)
    app.add_middleware(SecurityHeaders)
    return app


def _openapi(app: FastAPI, settings: ServeSettings) -> dict[str, Any]:
    """The description of the API, with the shape of problems and the token."""
    if app.openapi_schema is None:
        content = FastAPI.openapi(app)
        components = content.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        for model in (Problem, ChatRequest):
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= {**schema.pop("$defs", {}), model.__name__: schema}
        if settings.token is not None:
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            content["security"] = [{"token": []}]
    assert app.openapi_schema is not None
    return app.openapi_schema
