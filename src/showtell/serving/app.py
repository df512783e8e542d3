"""The web application: guards, routes, and an engine that is started and closed with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer

from showtell import __version__
from showtell.serving.correction_routes import correction_router
from showtell.serving.corrections import CorrectionStore
from showtell.serving.engine import Engine
from showtell.serving.guard import BodyGuard, Guard
from showtell.serving.problems import RESPONSES, handle_problems
from showtell.serving.routes import health_router, page_router, v1_router
from showtell.serving.settings import ServeSettings
from showtell.serving.sidecar_routes import sidecar_router

ABOUT = """Captions of photos, their words with probabilities, and where the model looked.

Settings are those of `showtell caption`, given in the address beside the photo in the body. Defaults are those of
the captioner. Errors are problem details (RFC 9457) whose `detail` is one sentence."""


def create_app(engine: Engine, settings: ServeSettings) -> FastAPI:
    """The application over an engine, which it starts and closes."""
    routers = [v1_router(engine), health_router(engine), page_router(engine, settings)]
    if settings.corrections is not None:
        store = CorrectionStore(settings.corrections)
        routers.append(correction_router(store))
        if settings.photos is not None:
            routers.append(sidecar_router(store.folder, settings.photos))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            await engine.start()
            yield
        finally:
            await engine.close()

    app = FastAPI(
        title="showtell",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,
        responses=RESPONSES,
        # only so that /docs has a field for the token, which `Guard` checks
        dependencies=[] if settings.token is None else [Depends(HTTPBearer(auto_error=False))],
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    handle_problems(app)
    for router in routers:
        app.include_router(router)

    app.add_middleware(BodyGuard, settings=settings)
    app.add_middleware(Guard, settings=settings)  # the outermost
    return app
