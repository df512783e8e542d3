"""The verbs of the command line: each is a file and a name in `VERBS`.

A verb's function imports what it needs when it runs, and only the verb that is called gets its options, so that
`showtell --help` is instant.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from showtell import __version__
from showtell.cli.settings_options import with_settings_options
from showtell.errors import UsageError, notify

# Each is the function of its name in the module of its name, such as `check` in `data_check`.
VERBS = (
    "quickstart", "caption", "explain", "serve", "data get", "data check", "data scenes", "features",
    "train", "evaluate", "score", "report", "calibrate", "import", "export", "doctor",
)  # fmt: skip
GROUPS = {"data": "Fetch, check and draw datasets."}
# The message after an interrupt, unless its module has an `IF_INTERRUPTED` of its own.
_IF_INTERRUPTED = "nothing was written; run the same command again"


def function_of(verb: str) -> Callable[..., None]:
    """What runs a verb."""
    name = verb.replace(" ", "_") + "_" * iskeyword(verb)  # import_, since import is a word of Python
    function: Callable[..., None] = getattr(import_module(f"showtell.cli.{name}"), name.removeprefix("data_"))
    return function


def _with_options(verb: str) -> Callable[..., None]:
    """The function of a verb, from whose signature typer makes its options; it refuses pipes and reports interrupts."""
    function = function_of(verb)
    run = with_settings_options(function)
    module = inspect.getmodule(function)

    @functools.wraps(run)
    def call(**arguments: Any) -> None:
        from showtell.files import is_named_pipe

        for argument in arguments.values():  # a pipe may never be written; lists of photos check each when it is opened
            if isinstance(argument, (str, Path)) and is_named_pipe(Path(argument)):
                raise UsageError(f"{argument} is a named pipe; give a regular file or a folder.")
        try:
            run(**arguments)
        except KeyboardInterrupt as error:
            notify(f"interrupted; {getattr(module, 'IF_INTERRUPTED', _IF_INTERRUPTED)}.")
            raise typer.Exit(130) from error

    return call


class _InOrder(TyperGroup):
    """Lists verbs and groups in the order of `VERBS`."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys(verb.split()[0] for verb in VERBS))


def make_app(arguments: Sequence[str]) -> typer.Typer:
    """All verbs: that which the arguments call with its options, the others as lines of the help."""
    app = typer.Typer(
        cls=_InOrder,
        help="Train, score and explain neural image captioners.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    groups = {name: typer.Typer(help=help, no_args_is_help=True) for name, help in GROUPS.items()}
    for verb in VERBS:
        group, _, name = verb.rpartition(" ")
        help = inspect.getdoc(function_of(verb)) or ""
        is_called = list(arguments[: verb.count(" ") + 1]) == verb.split()
        sentence = re.split(r"(?<=[.])\s", help)[0]
        command = (groups[group] if group else app).command(name, help=help, short_help=sentence)
        command(_with_options(verb) if is_called else lambda: None)
    for name, group_app in groups.items():
        app.add_typer(group_app, name=name)
    app.callback()(_root)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"showtell {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass
