"""The command line: one program, few verbs, one file per verb.

Progress and logs go to stderr, results to stdout. A person's mistake is one sentence and exit status 2.
"""

from __future__ import annotations

import sys

from showtell.errors import ShowtellError


def main(arguments: list[str] | None = None) -> None:
    """Run one command. Exits with 0 on success, 2 for wrong use or bad input, 130 when interrupted."""
    from showtell.cli.app import app

    try:
        app(args=arguments, prog_name="showtell")
    except ShowtellError as error:
        sys.stderr.write(f"showtell: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("showtell: interrupted\n")
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away: nothing left to say
        sys.stderr.close()
        sys.exit(0)
