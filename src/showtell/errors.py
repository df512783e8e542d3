"""The errors that people can mend, and how their messages are printed.

Every message is one sentence: what was given, what is allowed, what to do. The command line prints it and exits with
status 2. Any other exception is a defect of showtell.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")
JOINERS = "\u200c\u200d"  # within words of Persian and Hindi, and within emoji


class ShowtellError(Exception):
    """A mistake that a person can mend. The message is one sentence."""


class UsageError(ShowtellError):
    """An option, argument or name that does not exist."""


class DataError(ShowtellError):
    """A dataset, image or file of predictions that cannot be used."""


class ImageError(DataError):
    """One image that cannot be read. The others of its batch are used."""


class NoAnswerError(ImageError):
    """A photo about which a server gave no answer; asking again may help."""


class NoCaptionError(ImageError):
    """A photo of which a captioner says nothing but gibberish."""

    def __init__(self, name: str, reason: str, captions: Sequence[Any] = ()) -> None:
        """The photo's name, why it has no caption, and the `Caption`s, for scores and whoever wants to look."""
        super().__init__(f"{name} has no caption, for {reason}.")
        self.reason, self.captions = reason, captions


class StorageError(DataError):
    """A database that is damaged, of another program, or cannot be written. What it holds is left as it is."""


class RecipeError(ShowtellError):
    """A recipe with unknown keys or values out of range."""


class CheckpointError(ShowtellError):
    """A checkpoint that is damaged or does not fit what it is used with."""


class WeightsError(ShowtellError):
    """Encoder weights that cannot be found, read or loaded."""


class TrainingError(ShowtellError):
    """A run that cannot continue, such as one whose loss is not finite."""


class ExtensionError(ShowtellError):
    """An installed package whose entry point cannot be loaded, is no valid entry, or takes a name that is taken."""


class MissingDependencyError(ShowtellError):
    """An optional package that is not installed. The message has the install command."""


def install_command(extra: str) -> str:
    """The command that installs an extra of showtell: its packages by name, so that it works in a clone, too."""
    needed: list[str] = []
    with suppress(PackageNotFoundError):
        needed = [one for one in requires("showtell") or () if re.search(rf"extra == .{extra}.$", one)]
    packages = [one.partition(";")[0].strip() for one in needed] or [f"showtell[{extra}]"]
    return f"pip install {' '.join(map(json.dumps, packages))}"


def fetch_elsewhere(repository: str, use: str) -> str:
    """The second line of a message about a model that the Hugging Face hub does not give: how to get it elsewhere.

    `repository` is owner/name or owner/name@revision; `use` is what to give in its place, with FOLDER in it.
    """
    name, _, revision = repository.partition("@")
    options = f" --revision {revision}" if revision else ""
    return f"\n  Where there is a network: hf download {name}{options} --local-dir FOLDER; then give {use}."


def or_raise(result: ResultT | ImageError) -> ResultT:
    """What was made of a photo; if it could not be read, its error is raised."""
    if isinstance(result, ImageError):
        raise result
    return result


def first_line(error: object) -> str:
    """The first line of an error's message, without a full stop; the name of its type if it says nothing."""
    return str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__


def nearest(given: str, allowed: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest allowed one, then all of them.

    >>> nearest("adm", ["adam", "sgd"])
    'did you mean "adam"? Known: adam, sgd'
    """
    names = sorted(allowed)
    close = difflib.get_close_matches(given, names, n=1)
    known = "Known: " + ", ".join(names)
    return f'did you mean "{close[0]}"? {known}' if close else known


def summarise(items: Iterable[object], limit: int = 5) -> str:
    """The first few items as text, with the number of those left out.

    >>> summarise(["a", "b", "c"], limit=2)
    'a, b and 1 more'
    """
    listed = [str(item) for item in items]
    shown = ", ".join(listed[:limit])
    return shown if len(listed) <= limit else f"{shown} and {len(listed) - limit} more"


def printable(text: str, kept: str = "") -> str:
    r"""Text in one line for any terminal: control characters, line ends and lone surrogates are escaped.

    >>> print(printable("There is no file a\nb."))
    There is no file a\nb.
    """
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


def escaped(text: str) -> str:
    """A text for a file, whose control characters are escaped; a file name that is no UTF-8 keeps its bytes."""
    return "".join(char if "\udc80" <= char <= "\udcff" else printable(char, JOINERS) for char in text)


def shorten(text: str, limit: int = 200) -> str:
    """Text of at most `limit` characters; the middle of a longer one is left out.

    >>> shorten("a" * 9 + "b" * 9, limit=9)
    'aaa...bbb'
    """
    if len(text) <= limit:
        return text
    head = (limit - 3) // 2
    return f"{text[:head]}...{text[len(text) - (limit - 3 - head) :]}"


def one_line(message: str) -> str:
    """A message as it is printed: escaped, and shortened where it quotes something long."""
    line = re.sub(r'"([^"]{201,})"', lambda match: f'"{shorten(match[1])}"', printable(message))
    return shorten(re.sub(r"[^\s\"]{301,}", lambda match: shorten(match[0], limit=300), line), limit=2000)


def notify(message: str) -> None:
    """Print a message to standard error, in one line."""
    sys.stderr.write(f"showtell: {one_line(message)}\n")
