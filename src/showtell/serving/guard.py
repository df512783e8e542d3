"""What a request has to pass before a route sees it, as plain ASGI middleware."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
import socket

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from showtell.serving.problems import to_response
from showtell.serving.settings import ServeSettings

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
OPEN_PATHS = ("/healthz", "/readyz")  # that need no token
# Nothing else is looked at: programs disagree on where the name is in "a@b", "a#b" or "[::1].b".
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+))(?::\d{0,5})?", re.ASCII)
# FastAPI's own page loads Swagger UI from elsewhere; no other page loads anything.
DOCS_POLICY = (
    "default-src 'none'; connect-src 'self'; img-src data: https://fastapi.tiangolo.com; "
    "script-src 'unsafe-inline' https://cdn.jsdelivr.net; style-src 'unsafe-inline' https://cdn.jsdelivr.net; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Guard:
    """Checks host, origin and token of a request, and sets the headers of every answer.

    Without a token the name in Host has to be one of this machine, or an address: a page of another site can make
    its own name resolve to this machine (DNS rebinding). `/?token=TOKEN` sets a cookie with a hash of the token.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self._app = app
        machine = socket.gethostname().lower()
        self._names = {"localhost", machine, f"{machine.split('.')[0]}.local", settings.host.lower()}
        self._digest = None if settings.token is None else _digest(settings.token)
        # Cookies are shared by all ports of a host, where other servers may have other tokens.
        self._cookie = f"showtell_{_digest(self._digest or '')[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if scope["path"] == "/docs":
                    headers["Content-Security-Policy"] = DOCS_POLICY
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        answer: ASGIApp = self._app
        try:
            self._check_host(request.headers.get("host", ""))
            _check_origin(request.method, request.headers)
            if self._digest is not None and request.url.path not in OPEN_PATHS:
                answer = self._check_token(request, self._digest) or self._app
        except HTTPException as problem:
            answer = to_response(problem, request.url.path)
        try:
            await answer(scope, receive, send_with_headers)
        except asyncio.CancelledError:  # the server ends
            ended = HTTPException(503, "The server ended before it had the answer; ask again once it is back.")
            await to_response(ended, request.url.path)(scope, receive, send_with_headers)

    def _check_host(self, host: str) -> None:
        match = _HOST.fullmatch(host)
        name = (match[1] or match[2]).lower() if match else ""
        if self._digest is None and name.removesuffix(".") not in self._names and not _is_address(name):
            raise HTTPException(
                421,
                f'The host "{host}" is not a name of this server; open it as localhost or by its address, or start it '
                "with --token, which lets any name in.",
            )

    def _check_token(self, request: Request, wanted: str) -> RedirectResponse | None:
        """Refuse a request without the token; a link to the page that has it is answered with the cookie."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(_digest(token.strip()), wanted):
            return None
        tokens = request.query_params.getlist("token")
        if request.url.path == "/" and any(hmac.compare_digest(_digest(token), wanted) for token in tokens):
            answer = RedirectResponse("/", 303)
            is_secure = request.url.scheme == "https"
            answer.set_cookie(self._cookie, wanted, httponly=True, samesite="lax", secure=is_secure)
            return answer
        if hmac.compare_digest(request.cookies.get(self._cookie, "").encode(), wanted.encode()):
            return None
        sentence = "This server asks for its token; send it as Authorization: Bearer TOKEN, or open /?token=TOKEN."
        raise HTTPException(401, sentence, {"WWW-Authenticate": 'Bearer realm="showtell"'})


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _check_origin(method: str, headers: Headers) -> None:
    """Refuse what a page of another site sends: browsers say where a request comes from."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:  # it is right behind a proxy, too, that changes Host
        is_own = site in ("same-origin", "none")
    elif origin is not None:
        scheme, _, host = origin.lower().partition("://")
        port = {"http": ":80", "https": ":443"}.get(scheme)
        own = headers.get("host", "").lower()
        is_own = port is not None and host.removesuffix(port) == own.removesuffix(port)
    else:
        is_own = True  # a program
    if not is_own and method not in SAFE_METHODS:
        where = origin or "another site"
        raise HTTPException(403, f"A page of {where} may not use this server; only its own page and programs may.")


class BodyGuard:
    """Refuses bodies that are too large, as soon as that is known."""

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self._app = app
        self._limit = settings.max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        length = int(Headers(scope=scope).get("content-length", "0")) if scope["type"] == "http" else 0
        if length > self._limit:
            await to_response(self._too_large(f"{length:,} bytes"), scope["path"])(scope, receive, send)
            return
        size = 0

        async def receive_bounded() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._limit:
                raise self._too_large("more than that")
            return message

        await self._app(scope, receive_bounded, send)

    def _too_large(self, given: str) -> HTTPException:
        sentence = f"A body may have {self._limit:,} bytes, and this one has {given}; send a smaller one."
        return HTTPException(413, sentence)
