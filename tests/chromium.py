"""A real Chromium for tests of pages, driven over a pipe with the DevTools protocol; nothing to install beside it.

with Chromium(folder) as browser:
    browser.open(page)
    browser.ask("document.title")
    browser.press("ArrowRight")
    assert browser.requests == [page.as_uri()] and not browser.complaints
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-sync", "--disable-component-update", "--disable-dev-shm-usage", "--force-device-scale-factor=1"),
)
KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Escape": 27, "Tab": 9, "Enter": 13}


class Chromium:
    """A browser with one page. Skips the test aloud where there is none."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("chromium")
        if program is None:
            pytest.skip("chromium is not installed (Debian package chromium)")
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # the browser reads commands from descriptor 3 and writes answers to 4, whatever they are here
        command = ["/bin/bash", "-c", f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}', program, *FLAGS]
        command += ["--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self._rest = b""
        self._last = 0
        self._session: str | None = None
        self.requests: list[str] = []  # every address that the page has asked for
        self.complaints: list[str] = []  # errors and warnings of its console and its security policy

    def __enter__(self) -> Self:
        target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._session = None
        with contextlib.suppress(OSError, EOFError):
            self.call("Browser.close")
        os.close(self._in)
        os.close(self._out)
        self._process.wait(timeout=30)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol and its result."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        content = json.dumps(message).encode() + b"\0"
        while content:
            content = content[os.write(self._out, content) :]
        while (answer := self._read()).get("id") != self._last:
            self._note(answer)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def open(self, page: Path) -> None:
        """Open a file and wait until it has loaded."""
        self.call("Page.navigate", url=page.resolve().as_uri())
        loaded = "document.readyState == 'complete' ? done() : addEventListener('load', () => done())"
        self.ask(f"new Promise(done => {loaded})")

    def ask(self, expression: str) -> Any:
        """The value of an expression, or of the promise that it gives, in the page."""
        response = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in response, response["exceptionDetails"]
        return response["result"].get("value")

    def press(self, key: str) -> None:
        """A key, as from a keyboard."""
        code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def click(self, selector: str) -> None:
        """The mouse, in the middle of the first element that a selector finds."""
        x, y = self.ask(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)}); one.scrollIntoView();"
            " const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, file: Path, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        response = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(response["data"]))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            content = os.read(self._in, 1 << 16)
            if not content:
                raise EOFError("chromium has ended")
            self._rest += content
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(params["exceptionDetails"]["exception"].get("description", "exception"))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(params["entry"]["text"])
