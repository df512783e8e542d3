"""The command line: one program, few verbs, one file per verb.

Progress and logs go to stderr, results to stdout. A person's mistake is one sentence and exit status 2.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import NoReturn

from showtell.cores import keep_freed_memory, set_thread_defaults
from showtell.errors import ShowtellError, one_line

__all__ = ["main"]

_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|calculation overflowed", re.IGNORECASE)  # torch


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run one command.

    Exits with 0 on success, 2 for wrong use or bad input, 130 when interrupted, and 1 when whoever read standard output
    has stopped reading.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed; libraries would take the next file that is opened for it
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 (it stays open)
    set_thread_defaults()
    keep_freed_memory()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # what the encoding of the terminal does not have is escaped
    try:
        from showtell.cli.app import make_app

        words = sys.argv[1:] if arguments is None else arguments
        status = make_app(words)(args=words, prog_name="showtell", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        status = 1
    except KeyboardInterrupt:  # while modules were loading
        sys.stderr.write("showtell: interrupted\n")
        status = 130
    except Exception as error:
        message = _describe(error)
        if message is None:
            raise
        if isinstance(error, OSError) and error.filename is None:
            _discard_output()
        text = "\n  ".join(map(one_line, message.split("\n  ")))  # each problem of a recipe has a line of its own
        with suppress(OSError):  # nobody can be told
            sys.stderr.write(f"showtell: {text}\n" if message else "")
            sys.stderr.flush()
        status = 2
    sys.exit(status or 0)


def _discard_output() -> None:
    """Let what is buffered for standard output go to nowhere: the interpreter writes it once more when it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _describe(error: Exception) -> str | None:
    """A sentence about a mistake of a person or a limit of the machine; None for a mistake of the program."""
    from typer import TyperException

    match error:
        case TyperException():
            return _describe_usage_error(error)
        case ShowtellError():
            return str(error)
        case OSError():  # of the machine and its files; what is known to fail has a better message
            return f"Cannot use {error.filename or 'standard output, or a file'}: {error.strerror or error}."
        case UnicodeEncodeError():
            text = error.object[max(0, error.start - 40) : error.end + 40]
            return f'"{text}" is not valid text (UTF-8); correct it, or rename the file.'
        case MemoryError() | RuntimeError() if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)):
            return "There is not enough memory for these sizes; use a smaller batch, beam, image or model."
    return None


def _describe_usage_error(error: Exception) -> str:
    """Typer's message about wrong use with a pointer to the help; empty where it has printed the help itself."""
    context = getattr(error, "ctx", None)
    help = getattr(getattr(error, "param", None), "help", None)
    message = getattr(error, "format_message", error.__str__)().strip().replace("Value error, ", "")  # of pydantic
    if not message:
        return ""
    if help and message.startswith("Missing argument"):
        message = f"{message.rstrip('.')}: {help}".replace("\\[", "[")  # as rich prints it
    usage = " ".join(context.command.collect_usage_pieces(context)) if context else ""
    if "KEY=VALUE" in usage and message.startswith("No such option") and "Possible option" not in message:
        message = f"{message.rstrip('.')}; keys are given without dashes, as KEY=VALUE."
    command = context.command_path if context else "showtell"
    return f"{message}{'' if message[-1] in '.?' else '.'} See {command} --help."
