"""The command line: one program, few verbs, one file per verb.

Progress and logs go to stderr, results to stdout. A person's mistake is one sentence and exit status 2.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOBase, TextIOWrapper
from typing import NoReturn

from showtell.errors import DataError, ShowtellError, one_line

__all__ = ["main"]

_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|calculation overflowed", re.IGNORECASE)  # torch


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run one command.

    Exits with 0 on success, 2 for wrong use or bad input, 130 when interrupted, and 1 when whoever read standard output
    has stopped reading.
    """
    _prepare_streams()
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    """Run one command; its exit status."""
    from typer import TyperException

    try:
        from showtell.cli.app import app

        status = app(args=arguments, prog_name="showtell", standalone_mode=False)
        sys.stdout.flush()
        return status or 0
    except BrokenPipeError:
        return 1
    except TyperException as error:
        _refuse(_describe_usage_error(error))
    except ShowtellError as error:
        _refuse(str(error))
    except OSError as error:  # of the machine and its files; what is known to fail has a better message
        file = "a file" if error.filename is None else error.filename
        _refuse(f"Cannot use {file}: {error.strerror or error}.")
    except UnicodeEncodeError as error:
        text = error.object[max(0, error.start - 40) : error.end + 40]
        _refuse(f'"{text}" is not valid text (UTF-8); correct it, or rename the file.')
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _OUT_OF_MEMORY.search(str(error)):
            raise
        _refuse("There is not enough memory for these sizes; use a smaller batch, beam, image or model.")
    except KeyboardInterrupt:  # while modules were loading
        sys.stderr.write("showtell: interrupted\n")
        sys.exit(130)


def _refuse(message: str) -> NoReturn:
    """Print a message and exit with 2."""
    if message:
        lines = message.split("\n  ")  # each problem of a recipe has a line of its own
        with suppress(OSError):  # nobody can be told
            sys.stderr.write("showtell: " + "\n  ".join(map(one_line, lines)) + "\n")
            sys.stderr.flush()
    sys.exit(2)


def _describe_usage_error(error: Exception) -> str:
    """Typer's message about wrong use with a pointer to the help; empty where it has printed the help itself."""
    context = getattr(error, "ctx", None)
    help = getattr(getattr(error, "param", None), "help", None)
    message = getattr(error, "format_message", error.__str__)().strip().replace("Value error, ", "")  # of pydantic
    if not message:
        return ""
    if help and message.startswith("Missing argument"):
        message = f"{message.rstrip('.')}: {help}".replace("\\[", "[")  # as rich prints it
    command = context.command_path if context else "showtell"
    return f"{message}{'' if message[-1] in '.?' else '.'} See {command} --help."


class _Stdout(TextIOWrapper):
    """Standard output that escapes what its encoding lacks, with a message where it cannot be written to."""

    def __init__(self, stream: TextIOWrapper) -> None:
        super().__init__(stream.buffer, stream.encoding, "backslashreplace", line_buffering=stream.line_buffering)
        self._stream = stream  # it would close the buffer when it is collected

    def write(self, text: str) -> int:
        """Write text."""
        with self._checked():
            return super().write(text)

    def flush(self) -> None:
        """Write what is buffered."""
        with self._checked():
            super().flush()

    def _discard(self) -> None:
        """Let what is still buffered go to nowhere: the interpreter writes it once more when it ends."""
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._discard()
            if isinstance(error, BrokenPipeError):
                raise
            raise DataError(f"Cannot write to standard output: {error.strerror or error}.") from error


class _Nowhere(TextIOBase):
    """Where text goes if a stream is closed."""

    def write(self, text: str) -> int:
        """Discard the text."""
        return len(text)


def _prepare_streams() -> None:
    """Make standard output take any text, and standard output and error work even if they are closed."""
    if sys.stdout is None or sys.stderr is None:
        descriptor = os.open(os.devnull, os.O_RDWR)
        while descriptor <= 2:  # otherwise libraries would take the next file that is opened for standard output
            descriptor = os.open(os.devnull, os.O_RDWR)
        os.close(descriptor)
        sys.stdout, sys.stderr = sys.stdout or _Nowhere(), sys.stderr or _Nowhere()
    # Characters that the encoding of the terminal does not have are escaped.
    if type(sys.stdout) is TextIOWrapper:
        sys.stdout = _Stdout(sys.stdout)
    elif isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
