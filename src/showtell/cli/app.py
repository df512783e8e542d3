"""The verbs of the command line: each is a file and a line in `VERBS`.

A verb's function imports what it needs when it runs, and its options are made when it is called, so that
`showtell --help` is instant.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from showtell import __version__
from showtell.cli.settings_options import with_settings_options
from showtell.errors import UsageError, notify

# A verb, behind the name of its group if it has one: the module and the function.
VERBS = {
    "quickstart": "quickstart:quickstart",
    "caption": "caption:caption",
    "explain": "explain:explain",
    "serve": "serve:serve",
    "data get": "data_get:get",
    "data check": "data_check:check",
    "data split": "data_split:split",
    "data scenes": "data_scenes:scenes",
    "features": "features:features",
    "train": "train:train",
    "sweep": "sweep:sweep",
    "evaluate": "evaluate:evaluate",
    "score": "score:score",
    "report": "report:report",
    "grounding": "grounding:grounding",
    "calibrate": "calibrate:calibrate",
    "import": "import_:import_",
    "doctor": "doctor:doctor",
}
GROUPS = {"data": "Fetch, check, split and draw datasets."}
# The message after an interrupt, unless its module has an `IF_INTERRUPTED` of its own.
_IF_INTERRUPTED = "nothing was written; run the same command again"


def function_of(verb: str) -> Callable[..., None]:
    """What runs a verb."""
    module, function = VERBS[verb].split(":")
    made: Callable[..., None] = getattr(import_module(f"showtell.cli.{module}"), function)
    return made


def command_of(verb: str) -> Any:
    """A verb with its options, as typer makes it from the function's signature."""
    function = function_of(verb)
    run = with_settings_options(function)
    module = inspect.getmodule(function)

    @functools.wraps(run)
    def call(**arguments: Any) -> None:
        from showtell.files import is_named_pipe
        from showtell.processes import is_first_process
        from showtell.progress import working

        for argument in arguments.values():  # a writer of a pipe may never come; lists of photos check each item
            if isinstance(argument, (str, Path)) and is_named_pipe(Path(argument)):
                raise UsageError(f"{argument} is a named pipe; give a regular file or a folder.")
        is_told = is_first_process() and not getattr(module, "RUNS_UNTIL_STOPPED", False)
        try:
            with working(verb) if is_told else nullcontext():
                run(**arguments)
        except KeyboardInterrupt as error:
            notify(f"interrupted; {getattr(module, 'IF_INTERRUPTED', _IF_INTERRUPTED)}.")
            raise typer.Exit(130) from error

    made = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    made.command(verb.split()[-1])(call)
    return typer.main.get_command(made)


class _Group(TyperGroup):
    """Verbs by their names: each as a line of the help until it is called, and then with its options."""

    def add_verb(self, verb: str) -> None:
        """Add a verb to be listed."""
        help = inspect.getdoc(function_of(verb)) or ""
        first, *_ = re.split(r"(?<=[.])\s", help, maxsplit=1)
        self.add_command(TyperCommand(verb.split()[-1], help=help, short_help=first))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that the arguments name, with its options."""
        name, command, rest = super().resolve_command(ctx, args)
        verb = name if self.name == "showtell" else f"{self.name} {name}"
        return name, command_of(verb) if verb in VERBS else command, rest


class _Root(_Group):
    """All verbs."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for verb in VERBS:
            group, _, _ = verb.rpartition(" ")
            if group and group not in self.commands:
                self.add_command(_Group(name=group, help=GROUPS[group], no_args_is_help=True))
            home = self.commands[group] if group else self
            assert isinstance(home, _Group)
            home.add_verb(verb)


app = typer.Typer(
    name="showtell",
    cls=_Root,
    help="Train, score and explain neural image captioners.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"showtell {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass
