"""What a request has to pass before a route sees it: plain ASGI, each guard one rule, the outermost first.

    SecurityHeaders   on every answer: nothing is loaded from elsewhere, nothing is framed, types are not guessed
    HostGuard         the name in Host is one of ours, so that a foreign name that resolves here (DNS rebinding) is not
    OriginGuard       what changes something or costs time does not come from a page of another site
    TokenGuard        where there is a token: Authorization: Bearer, or the cookie that /?token=... sets
    BodyGuard         a body is as large as allowed and comes in time
    LoadGuard         a question that the engine would not take is answered before anything is made of its body

Headers that trickle in never get so far: `protocol.py` cuts them.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import html
import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from showtell.serving.engine import Engine
from showtell.serving.problems import refuse
from showtell.serving.settings import ServeSettings

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
MAX_CHANGE = 100_000  # bytes of a PATCH, which has a few texts; JSON of many megabytes takes seconds to be read
OPEN_PATHS = ("/healthz", "/readyz")  # that need no token
ASKING_PATHS = ("/v1/captions", "/v1/logprobs", "/v1/explanations", "/v1/chat/completions", "/page/explanation")
SMALL = 1_000_000  # bytes of a body that is read although it is refused
LINGER = 2.0  # seconds that the rest of a refused body is read and dropped, so that the client gets to read the answer
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
_SIGN_IN = """<!doctype html><html lang="en"><meta charset="utf-8"><title>showtell</title>
<meta name="viewport" content="width=device-width"><h1>showtell</h1><p>{sentence}</p>
<form action="/" autocomplete="off"><label>Token <input name="token" type="password" required autofocus></label>
<button>Open</button></form></html>"""
_ONWARD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>showtell</title>
<meta http-equiv="refresh" content="0; url={target}"><p><a href="{target}">Open the page</a></p></html>"""


class SecurityHeaders:
    """Adds headers to every answer that does not have them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse a websocket, of which there is none."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


class HostGuard:
    """Refuses requests to names that are none of this machine's.

    A page of another site can make its own name resolve to this machine, and would then be of the same origin; the name
    in Host gives it away. Addresses are let through: a page that was loaded from one has it from here.

    Args:
        app: what comes after.
        names: host names beside localhost and this machine's own.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str] = ()) -> None:
        self._app = app
        machine = socket.gethostname().lower()
        self._names = {"localhost", machine, f"{machine.split('.')[0]}.local", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "http":
            host = Headers(scope=scope).get("host", "")
            if not self._is_ours(host):
                sentence = f'The host "{host}" is none of this server\'s; open it as localhost or by its address.'
                await refuse(HTTPException(421, sentence), scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_ours(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = (match[1] or match[2]).lower()
        return name.removesuffix(".") in self._names or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class OriginGuard:
    """Refuses what pages of other sites send: browsers say where a request comes from."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "http" and scope["method"] not in SAFE_METHODS:
            headers = Headers(scope=scope)
            if not _is_same_origin(headers):
                origin = headers.get("origin", "another site")
                sentence = f"A page of {origin} may not use this server; only its own page and programs may."
                await refuse(HTTPException(403, sentence), scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_same_origin(headers: Headers) -> bool:
    """Whether a request comes from our own page, or from no page at all."""
    site = headers.get("sec-fetch-site")
    if site is not None:  # it is right behind a proxy, too, that changes Host
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    if origin is None:
        return True
    port = {"http://": ":80", "https://": ":443"}
    scheme = origin[: origin.find("//") + 2]
    own = headers.get("host", "").lower().removesuffix(port.get(scheme, ":"))
    return origin.lower().removeprefix(scheme).removesuffix(port.get(scheme, ":")) == own and scheme in port


class TokenGuard:
    """Asks for a token: in `Authorization: Bearer TOKEN`, or in the cookie that `/?token=TOKEN` sets for the page.

    The cookie holds a hash of the token, and cannot be read by scripts nor be sent from other sites.

    Args:
        app: what comes after.
        token: the token.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._digest = _digest(token)
        # Cookies are shared by all ports of a host, where other servers may have other tokens.
        self._cookie = f"showtell_{hashlib.sha256(self._digest.encode()).hexdigest()[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in given if name == "token"]
        if scope["path"] == "/" and scope["method"] == "GET" and any(map(self._is_right, tokens)):
            rest = urlencode([(name, value) for name, value in given if name != "token"])
            await self._signed_in(scope, headers, f"/?{rest}" if rest else "/")(scope, receive, send)
        elif self._has_token(headers):
            await self._app(scope, receive, send)
        else:
            sentence = "This server asks for its token, and the one given is wrong." if tokens else _HOW_TO_SIGN_IN
            if scope["path"] == "/" and "text/html" in headers.get("accept", ""):
                policy = NOTHING.replace("form-action 'none'", "form-action 'self'")
                page = _SIGN_IN.format(sentence=html.escape(sentence))
                answer: Response = HTMLResponse(page, 401, {"Content-Security-Policy": policy})
                await answer(scope, receive, send)
            else:
                error = HTTPException(401, sentence, {"WWW-Authenticate": 'Bearer realm="showtell"'})
                await refuse(error, scope, receive, send)

    def _is_right(self, token: str) -> bool:
        return hmac.compare_digest(_digest(token), self._digest)

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_right(token.strip()):
            return True
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        return hmac.compare_digest(cookie.encode(), self._digest.encode())

    def _signed_in(self, scope: Scope, headers: Headers, target: str) -> Response:
        """On to the page, with the cookie, so that the token does not stay in the address.

        A link on another site is followed by a page of ours: cookies that stay on their site are not sent with a
        redirect that began on another one.
        """
        if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            answer: Response = RedirectResponse(target, 303)
        else:
            answer = HTMLResponse(_ONWARD.format(target=html.escape(target)))
        is_secure = scope.get("scheme") == "https"
        answer.set_cookie(self._cookie, self._digest, httponly=True, samesite="strict", secure=is_secure, path="/")
        return answer


_HOW_TO_SIGN_IN = "This server asks for its token; send it as Authorization: Bearer TOKEN, or open /?token=TOKEN."


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class BodyGuard:
    """Refuses bodies that are larger than allowed, as soon as that is known, and those that do not come in time.

    All bodies that come in at a time share a limit too: what many clients send together must fit into memory.

    Args:
        app: what comes after.
        settings: of the server.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self._app = app
        self.settings = settings
        self.bytes = 0  # of all bodies that are read or worked on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        limit = min(self.settings.max_body, MAX_CHANGE) if scope["method"] == "PATCH" else self.settings.max_body
        body = _Body(self, receive, limit, has_ended=length == "0" and "transfer-encoding" not in headers)
        sender = _Sender(send, body)
        try:
            if not length.isdecimal() or len(length) > 18:
                await refuse(HTTPException(400, "Content-Length is no number of bytes."), scope, receive, sender)
            elif int(length) > limit:
                await refuse(body.too_large(int(length)), scope, receive, sender)
            else:
                await self._app(scope, body.receive, sender)
        finally:
            self.bytes -= body.size


class _Body:
    """The body of a request as it comes."""

    def __init__(self, guard: BodyGuard, receive: Receive, limit: int, has_ended: bool) -> None:
        self._guard = guard
        self._receive = receive
        self._limit = limit
        self._deadline = asyncio.get_running_loop().time() + guard.settings.body_timeout
        self.size = 0
        self.has_ended = has_ended

    def too_large(self, size: int | None = None) -> HTTPException:
        given = "more than that" if size is None else f"{size:,} bytes"
        return HTTPException(
            413, f"A body may have {self._limit:,} bytes, and this one has {given}; send a smaller one."
        )

    async def receive(self) -> Message:
        """The next part.

        Raises:
            HTTPException: it is too large, or late, or comes with too much at a time.
        """
        if self.has_ended:
            return await self._receive()
        settings = self._guard.settings
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError as error:
            raise HTTPException(
                408,
                f"The body has not come within {settings.body_timeout:g} seconds; send it faster, or a smaller photo.",
            ) from error
        size = len(message.get("body", b""))
        self.size += size
        self._guard.bytes += size
        if self.size > self._limit:
            raise self.too_large()
        if self._guard.bytes > settings.photo_bytes and self._guard.bytes > self.size:
            sentence = f"Bodies of {self._guard.bytes / 1e6:,.0f} MB come in already; send the photo again in a moment."
            raise HTTPException(429, sentence, {"Retry-After": "1"})
        self.has_ended = not message.get("more_body", False)
        return message

    async def drop(self) -> None:
        """Read what still comes, for a moment: a connection that is closed while data comes is reset, and the answer
        that is on its way is lost."""
        try:
            async with asyncio.timeout(LINGER):
                while (await self._receive()).get("more_body", False):
                    pass
        except TimeoutError:
            return


class LoadGuard:
    """Answers questions with 429 while the queue is full, before their bodies are parsed: under load that costs most.

    Args:
        app: what comes after.
        engine: that the routes ask.
    """

    def __init__(self, app: ASGIApp, engine: Engine) -> None:
        self._app = app
        self._engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        asks = scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in ASKING_PATHS
        problem: Exception | None = self._engine.refusal() if asks else None
        if problem is None:
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "")
        if length.isdecimal() and int(length) <= SMALL:  # read to its end, so that the connection can be used again
            try:
                while (await receive()).get("more_body", False):
                    pass
            except HTTPException as error:
                problem = error
        await refuse(problem, scope, receive, send)


class _Sender:
    """Sends an answer; where the body has not been read to its end the connection is closed behind the answer."""

    def __init__(self, send: Send, body: _Body) -> None:
        self._send = send
        self._body = body
        self._closes = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and not self._body.has_ended:
            self._closes = True
            MutableHeaders(scope=message)["Connection"] = "close"
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if not self._closes or not is_last:
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        await self._body.drop()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
