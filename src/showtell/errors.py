"""The error tree. Every message is one sentence: what was given, what is allowed, what to do.

    ShowtellError              a mistake a person can mend; the command line prints it and exits with 2
    ├── UsageError             an option, an argument or a name that does not exist
    ├── DataError              a dataset, an image or a file of predictions that cannot be used
    │   └── ImageError         one image that cannot be read; a batch goes on without it
    ├── RecipeError            a recipe with unknown keys or values out of range
    ├── CheckpointError        a checkpoint that is damaged or does not fit what it is used with
    ├── WeightsError           weights of an encoder that cannot be found, read or fitted
    ├── TrainingError          a run that cannot go on, such as one whose loss is no number any more
    ├── ExtensionError         an installed package whose entry point cannot be used
    └── MissingDependencyError an optional package that is not installed; the message has the install line

Anything else that is raised is a defect of showtell.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ShowtellError(Exception):
    """A mistake that a person can mend. The message is one clear sentence."""


class UsageError(ShowtellError):
    """An option, an argument or a name that does not exist."""


class DataError(ShowtellError):
    """A dataset, an image or a file of predictions that cannot be used."""


class ImageError(DataError):
    """One image that cannot be read. A batch goes on without it."""


class RecipeError(ShowtellError):
    """A recipe with unknown keys or values out of range."""


class CheckpointError(ShowtellError):
    """A checkpoint that is damaged or does not fit what it is used with."""


class WeightsError(ShowtellError):
    """Weights of an encoder that cannot be found, read or fitted."""


class TrainingError(ShowtellError):
    """A run that cannot go on, such as one whose loss is no number any more."""


class ExtensionError(ShowtellError):
    """An installed package whose entry point cannot be loaded, is no valid entry, or takes a name that is taken."""


class MissingDependencyError(ShowtellError):
    """An optional package that is not installed. The message has the install line."""


def nearest(given: str, allowed: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest allowed one, then all of them.

    >>> nearest("adm", ["adam", "sgd"])
    'did you mean "adam"? Known: adam, sgd'
    """
    names = sorted(allowed)
    close = difflib.get_close_matches(given, names, n=1)
    known = "Known: " + ", ".join(names)
    return f'did you mean "{close[0]}"? {known}' if close else known


def printable(sentence: str) -> str:
    r"""A sentence in one line that any terminal takes, whatever stands in the names that it quotes.

    >>> print(printable("There is no file a\nb."))
    There is no file a\nb.
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in sentence)


def summarise(items: Iterable[object], limit: int = 5) -> str:
    """The first few items as text, with the number of those left out.

    >>> summarise(["a", "b", "c"], limit=2)
    'a, b and 1 more'
    """
    listed = [str(item) for item in items]
    shown = ", ".join(listed[:limit])
    return shown if len(listed) <= limit else f"{shown} and {len(listed) - limit} more"
