"""The web application: guards, routes, and an engine that is started and closed with it.

app = create_app(engine, ServeSettings(token="..."))
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.security import HTTPBearer
from starlette.responses import HTMLResponse

from showtell import __version__
from showtell.serving.chat import chat_router
from showtell.serving.correction_routes import correction_router
from showtell.serving.corrections import CorrectionStore
from showtell.serving.engine import Engine
from showtell.serving.guard import BodyGuard, Guard
from showtell.serving.problems import RESPONSES, handle_problems
from showtell.serving.routes import health_router, page_router, v1_router
from showtell.serving.settings import ServeSettings

ABOUT = """Captions of photos, their words with probabilities, and where the model looked.

Settings are those of `showtell caption`, given in the address beside the photo in the body. Defaults are those of
the captioner. Errors are problem details (RFC 9457) whose `detail` is one sentence."""
# FastAPI's own page, the only one that loads something from elsewhere: Swagger UI.
DOCS_POLICY = (
    "default-src 'none'; connect-src 'self'; img-src data: https://fastapi.tiangolo.com; "
    "script-src 'unsafe-inline' https://cdn.jsdelivr.net; style-src 'unsafe-inline' https://cdn.jsdelivr.net; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def create_app(engine: Engine, settings: ServeSettings) -> FastAPI:
    """The application.

    Args:
        engine: answers questions; it is started and closed with the application.
        settings: of the server.
    """
    store = None if settings.corrections is None else CorrectionStore(settings.corrections)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            await engine.start()
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
        docs_url=None,  # below, with a policy of its own
        redoc_url=None,
        redirect_slashes=False,
        responses=RESPONSES,
        # for the description alone; `Guard` asks for the token
        dependencies=[] if settings.token is None else [Depends(HTTPBearer(auto_error=False))],
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    handle_problems(app)
    routers = [v1_router(engine), chat_router(engine), health_router(engine), page_router(engine, settings)]
    for router in [*routers, *([] if store is None else [correction_router(store, engine.turns)])]:
        app.include_router(router)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        page = get_swagger_ui_html(openapi_url="/openapi.json", title="The API of showtell")
        page.headers["Content-Security-Policy"] = DOCS_POLICY
        return page

    app.add_middleware(BodyGuard, settings=settings)
    app.add_middleware(Guard, settings=settings)  # the outermost
    return app
