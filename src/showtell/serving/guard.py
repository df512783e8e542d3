"""What a request has to pass before a route sees it, as plain ASGI.

    Guard        host, origin and token; headers of every answer
    BodyGuard    a body is as large as allowed

Requests that trickle in never get so far: `protocol.py` cuts them.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import ipaddress
import re
import socket
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from showtell.serving.problems import refuse
from showtell.serving.settings import ServeSettings

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
OPEN_PATHS = ("/healthz", "/readyz")  # that need no token
NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# Nothing else is looked at: programs disagree on where the name is in "a@b", "a#b" or "[::1].b".
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+))(?::\d{0,5})?", re.ASCII)
HEADERS = {
    "Content-Security-Policy": NOTHING,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_HOW_TO_SIGN_IN = "This server asks for its token; send it as Authorization: Bearer TOKEN, or open /?token=TOKEN."
_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>showtell</title>
<meta name="viewport" content="width=device-width">"""
_SIGN_IN = """<h1>showtell</h1><p>{sentence}</p><form action="/" autocomplete="off">
<label>Token <input name="token" type="password" required autofocus></label> <button>Open</button></form></html>"""
_ONWARD = """<meta http-equiv="refresh" content="0; url=/"><p><a href="/">Open the page</a></p></html>"""


class Guard:
    """Lets in who may use the server: from a name of this machine, not from a page of another site, with the token.

    Without a token the name in Host has to be one of this machine: a page of another site can make its own name
    resolve to this machine (DNS rebinding), and would then be of the same origin. Addresses are let through: a page
    that was loaded from one has it from here.

    Args:
        app: what comes after.
        settings: of the server.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self._app = app
        machine = socket.gethostname().lower()
        self._names = {"localhost", machine, f"{machine.split('.')[0]}.local", settings.host.lower()}
        self._token = None if settings.token is None else Token(settings.token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it; of websockets there are none."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        problem = self._check_host(headers) or _check_origin(scope["method"], headers)
        if problem is not None:
            await refuse(problem, scope, receive, send_with_headers)
        elif self._token is not None and (answer := self._token.answer(scope, headers)) is not None:
            await answer(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)

    def _check_host(self, headers: Headers) -> HTTPException | None:
        """Why a request is refused for its host, if it is."""
        host = headers.get("host", "")
        match = _HOST.fullmatch(host)
        name = (match[1] or match[2]).lower() if match else ""
        if self._token is not None or name.removesuffix(".") in self._names or _is_address(name):
            return None
        return HTTPException(
            421, f'The host "{host}" is none of this server\'s; open it as localhost or by its address.'
        )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _check_origin(method: str, headers: Headers) -> HTTPException | None:
    """Why a request is refused for the page that sent it, if it is: browsers say where a request comes from."""
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
    if is_own or method in SAFE_METHODS:
        return None
    where = origin or "another site"
    return HTTPException(403, f"A page of {where} may not use this server; only its own page and programs may.")


class Token:
    """Asks for a token: in `Authorization: Bearer TOKEN`, or in the cookie that `/?token=TOKEN` sets for the page.

    The cookie holds a hash of the token, and cannot be read by scripts nor be sent from other sites.
    """

    def __init__(self, token: str) -> None:
        self._digest = _digest(token)
        # Cookies are shared by all ports of a host, where other servers may have other tokens.
        self._cookie = f"showtell_{_digest(self._digest)[:8]}"

    def answer(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        """What a request is answered with; None: it may pass."""
        if scope["path"] in OPEN_PATHS:
            return None
        given = parse_qsl(scope["query_string"].decode("latin-1"))
        tokens = [value for name, value in given if name == "token"]
        if scope["path"] == "/" and scope["method"] == "GET" and any(map(self._is_right, tokens)):
            return self._signed_in(is_secure=scope.get("scheme") == "https")
        if self._has_token(headers):
            return None
        sentence = "This server asks for its token, and the one given is wrong." if tokens else _HOW_TO_SIGN_IN
        if scope["path"] == "/" and "text/html" in headers.get("accept", ""):
            policy = NOTHING.replace("form-action 'none'", "form-action 'self'")
            page = _HEAD + _SIGN_IN.format(sentence=html.escape(sentence))
            return HTMLResponse(page, 401, {"Content-Security-Policy": policy})
        error = HTTPException(401, sentence, {"WWW-Authenticate": 'Bearer realm="showtell"'})
        return lambda scope, receive, send: refuse(error, scope, receive, send)

    def _is_right(self, token: str) -> bool:
        return hmac.compare_digest(_digest(token), self._digest)

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_right(token.strip()):
            return True
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        return hmac.compare_digest(cookie.encode(), self._digest.encode())

    def _signed_in(self, is_secure: bool) -> Response:
        """On to the page, with the cookie, so that the token does not stay in the address.

        By a page and no redirect: if the link stands on another site, its cookie would not be sent with that.
        """
        answer = HTMLResponse(_HEAD + _ONWARD)
        answer.set_cookie(self._cookie, self._digest, httponly=True, samesite="strict", secure=is_secure, path="/")
        return answer


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class BodyGuard:
    """Refuses bodies that are larger than allowed, as soon as that is known.

    All bodies that come in at a time share a limit too: what many clients send together must fit into memory.

    Args:
        app: what comes after.
        settings: of the server.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self._app = app
        self._limit, self._limit_of_all = settings.max_body, settings.photo_bytes
        self._bytes = 0  # of all bodies that are read or worked on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        length = int(Headers(scope=scope).get("content-length", "0")) if scope["type"] == "http" else 0
        if length > self._limit:
            await refuse(self._too_large(f"{length:,} bytes"), scope, receive, send)
            return
        size = 0

        async def receive_bounded() -> Message:
            nonlocal size
            message = await receive()
            part = len(message.get("body", b""))
            size += part
            self._bytes += part
            if size > self._limit:
                raise self._too_large("more than that")
            if self._bytes > self._limit_of_all and self._bytes > size:
                sentence = f"Bodies of {self._bytes / 1e6:,.0f} MB come in already; send the photo again in a moment."
                raise HTTPException(429, sentence, {"Retry-After": "1"})
            return message

        try:
            await self._app(scope, receive_bounded, send)
        finally:
            self._bytes -= size

    def _too_large(self, given: str) -> HTTPException:
        sentence = f"A body may have {self._limit:,} bytes, and this one has {given}; send a smaller one."
        return HTTPException(413, sentence)
