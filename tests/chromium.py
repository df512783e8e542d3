"""A real Chromium for tests of pages, driven over a pipe with the DevTools protocol; nothing to install beside it."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-sync", "--disable-component-update", "--disable-dev-shm-usage", "--force-device-scale-factor=1"),
)
KEYS = {
    "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "Escape": 27, "Tab": 9,
    "Enter": 13, "Backspace": 8, " ": 32,
}  # fmt: skip
TEXTS = {"Enter": "\r", " ": " "}  # of keys that write something, beside letters
AXE = Path(__file__).parent / "axe" / "axe.min.js"  # axe-core 4.14.1, with its licences beside it
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


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
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, pass_fds=(to_browser, from_browser), **silent)
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
        number = self._send(method, parameters)
        while (answer := self._read()).get("id") != number:
            self._note(answer)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def open(self, page: Path | str) -> None:
        """Open a file or an address and wait until it has loaded."""
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        loaded = "document.readyState == 'complete' ? done() : addEventListener('load', () => done())"
        self.ask(f"new Promise(done => {loaded})")

    def ask(self, expression: str) -> Any:
        """The value of an expression, or of the promise that it gives, in the page."""
        response = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in response, response["exceptionDetails"]
        return response["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 60) -> None:
        """Wait until an expression is true, on this page or on the next one."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.ask(f"Boolean({expression})"):
                return
            time.sleep(0.01)
        raise AssertionError(f"never true: {expression}")

    def resize(self, width: int, height: int, scheme: str = "light") -> None:
        """The size of the window, a phone's if it is narrow, and the colours that people prefer."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def choose_files(self, selector: str, files: Sequence[Path]) -> None:
        """Files of an input, as from its dialog."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def drop(self, files: Sequence[Path], x: float = 400, y: float = 300) -> None:
        """Files and folders dropped from the desktop."""
        data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def type(self, text: str) -> None:
        """A text where the focus is."""
        self.call("Input.insertText", text=text)

    def accessibility_problems(self) -> list[str]:
        """What axe-core finds wrong with the page as it is: names, roles, contrasts and more."""
        self.ask(f"{AXE.read_text(encoding='utf-8')}; 0")
        options = json.dumps({"runOnly": RULES, "resultTypes": ["violations"]})
        found = self.ask(f"axe.run({options}).then(result => result.violations)")
        return [f"{one['id']}: {node['html']}: {node['failureSummary']}" for one in found for node in one["nodes"]]

    def press(self, key: str, modifiers: int = 0) -> None:
        """A key, as from a keyboard."""
        code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS.get(key, ord(key[0].upper()))}
        code["modifiers"] = modifiers
        text = {"text": TEXTS.get(key, key)} if key in TEXTS or len(key) == 1 else {}
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

    def _send(self, method: str, parameters: dict[str, Any]) -> int:
        """Send a command; its number."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        content = json.dumps(message).encode() + b"\0"
        while content:
            content = content[os.write(self._out, content) :]
        return self._last

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
            case "Page.javascriptDialogOpening":  # such as "leave the page?"
                self._send("Page.handleJavaScriptDialog", {"accept": True})
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]  # of a script of a file there is no more than a text
                self.complaints.append(details.get("exception", {}).get("description", details["text"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(params["entry"]["text"])
