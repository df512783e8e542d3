"""Commands in a real terminal: what they print, and that as a picture whose text can be searched and copied (SVG)."""

from __future__ import annotations

import fcntl
import itertools
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

COLUMNS, ROWS = 100, 50
LONGEST = 1000  # lines of a recording
PROMPT, CONTINUED = "$ ", "> "
# A line of a command that runs until it is stopped: it is ready.
READY = re.compile(rb"Ctrl-C.*\n")
STOP = b"\x03"
BYTE_ORDER_MARK = "\ufeff".encode()

# Pixels of the picture. A character of a monospaced font is 0.6 of its size wide; textLength makes it so in any font.
SIZE, LINE, MARGIN = 12, 17, 12
WIDTH = 0.6 * SIZE
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
BACKGROUND, TEXT = "#15181e", "#d5d9e0"
# Colours by the emulator's names, each readable on the background (WCAG AA); the rest come as RGB.
COLOURS = {
    "default": TEXT,
    "black": "#8b929e",
    "red": "#ff7b72",
    "green": "#7ee787",
    "brown": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#76e3ea",
    "white": "#d5d9e0",
    "brightblack": "#8b929e",
    "brightred": "#ffa198",
    "brightgreen": "#aff5b4",
    "brightbrown": "#f2cc60",
    "brightblue": "#a5d6ff",
    "brightmagenta": "#e2c5ff",
    "brightcyan": "#b3f0ff",
    "brightwhite": "#ffffff",
}


def record(
    commands: Sequence[str], folder: Path, when_ready: Callable[[str], None] | None = None, status: int = 0
) -> bytes:
    """What a terminal receives, prompts included, in which commands of bash are typed one after the other.

    `when_ready` gets what the last command has printed once that is ready, and the command is then interrupted; it
    ends with `status`, those before it with 0."""
    received = b""
    for number, command in enumerate(commands, start=1):
        head, *more = command.split("\n")
        typed = "".join([f"\x1b[32m{PROMPT}\x1b[0m\x1b[1m{head}\r\n", *(f"{CONTINUED}{line}\r\n" for line in more)])
        is_last = number == len(commands)
        ended, output = _run(command, folder, when_ready if is_last else None)
        if ended != (status if is_last else 0):
            raise SystemExit(f"{command} ended with status {ended}:\n{output.decode(errors='replace')}")
        received += f"{typed}\x1b[0m".encode() + output
    return received


def _run(command: str, folder: Path, when_ready: Callable[[str], None] | None) -> tuple[int, bytes]:
    """The exit status of a command, 0 if it was to be interrupted, and what the terminal received from it."""
    process, terminal = pty.fork()
    if process == 0:  # the child, whose terminal this is
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        settings = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        settings["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        os.chdir(folder)
        os.execvpe("bash", ["bash", "-c", command], settings | {"TERM": "xterm-256color"})
    output, waits = b"", when_ready is not None
    try:
        while part := _read(terminal):
            output += part
            if waits and when_ready is not None and READY.search(output):
                waits = False
                when_ready(output.decode())
                os.write(terminal, STOP)
    finally:
        os.close(terminal)  # which ends a command that is still there
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return 0 if when_ready is not None and not waits else status, output


def _read(terminal: int) -> bytes:
    """What a terminal received since the last time; nothing once nobody writes to it any more."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how Linux says that the other end is closed
        return b""


def draw(received: bytes, description: str) -> str:
    """An SVG of all lines that a terminal shows in the end, in the fonts of whoever looks at it; nothing is fetched."""
    import pyte

    screen = pyte.Screen(COLUMNS, LONGEST)
    pyte.ByteStream(screen).feed(received.replace(BYTE_ORDER_MARK, b""))  # at which the emulator would drop the line
    texts = [line.rstrip() for line in screen.display]
    last = max((number for number, text in enumerate(texts) if text), default=0)
    width = 2 * MARGIN + WIDTH * max(map(len, texts))
    height = 2 * MARGIN + LINE * (last + 1)
    lines = [_line(number, text, screen.buffer[number]) for number, text in enumerate(texts) if text]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}"'
            f' viewBox="0 0 {width:.0f} {height}">',
            f"<desc>{escape(description)}</desc>",
            f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
            f'<g fill="{TEXT}" font-family="{FONTS}" font-size="{SIZE}">',
            *lines,
            "</g>",
            "</svg>\n",
        ]
    )


def _line(number: int, text: str, row: Mapping[int, Any]) -> str:
    """A line of the screen, as wide in every font."""
    position = f'x="{MARGIN}" y="{MARGIN + LINE * number + SIZE}"'
    width = f'textLength="{WIDTH * len(text):.1f}" lengthAdjust="spacingAndGlyphs"'
    return f'<text xml:space="preserve" {position} {width}>{"".join(_spans(row, len(text)))}</text>'


def _spans(row: Mapping[int, Any], length: int) -> Iterator[str]:
    """The text of a row of the emulator's screen, in spans of one style."""
    for (colour, bold), characters in itertools.groupby(
        (row[column] for column in range(length)), key=lambda one: (one.fg, one.bold)
    ):
        text = escape("".join(one.data for one in characters), quote=False)
        style = "" if colour == "default" else f' fill="{COLOURS.get(colour, f"#{colour}")}"'
        style += ' font-weight="bold"' if bold else ""
        yield f"<tspan{style}>{text}</tspan>" if style else text
