"""The command line: one program, few verbs, one file per verb.

Progress and logs go to stderr, results to stdout. A person's mistake is one sentence and exit status 2.
"""

from __future__ import annotations

import re
import sys
from io import TextIOWrapper

from showtell.errors import ShowtellError, printable

__all__ = ["main"]

_NO_ROOM = re.compile(r"out of memory|can't allocate memory|calculation overflowed", re.IGNORECASE)  # torch's words


def main(arguments: list[str] | None = None) -> None:
    """Run one command. Exits with 0 on success, 2 for wrong use or bad input, 130 when interrupted."""
    from typer import TyperException

    try:
        from showtell.cli.app import app

        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # names that the terminal's encoding does not have
        status = app(args=arguments, prog_name="showtell", standalone_mode=False)
    except TyperException as error:
        _refuse(_usage_in_words(error))
    except ShowtellError as error:
        _refuse(str(error))
    except OSError as error:  # of the machine and its files; what is known to go wrong has a better sentence
        place = "a file" if error.filename is None else error.filename
        _refuse(f"Cannot use {place}: {error.strerror or error}.")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _NO_ROOM.search(str(error)):
            raise
        _refuse("There is not enough memory for sizes like these; take a smaller batch, beam, image or model.")
    except KeyboardInterrupt:  # while modules were loading
        sys.stderr.write("showtell: interrupted\n")
        sys.exit(130)
    sys.exit(status or 0)


def _refuse(sentence: str) -> None:
    """Print a sentence in characters that any terminal takes, and end with 2."""
    if sentence:
        lines = sentence.split("\n  ")  # the problems of a recipe stand on lines of their own
        sys.stderr.write("showtell: " + "\n  ".join(map(printable, lines)) + "\n")
    sys.exit(2)


def _usage_in_words(error: Exception) -> str:
    """What typer says of wrong use, and where to read what is right; nothing where it printed the help itself."""
    context = getattr(error, "ctx", None)
    said = getattr(error, "format_message", error.__str__)().strip().replace("Value error, ", "")  # pydantic's words
    if not said:
        return ""
    return f"{said}{'' if said[-1] in '.?' else '.'} See {context.command_path if context else 'showtell'} --help."
