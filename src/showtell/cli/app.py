"""The verbs of the command line: each is a file and a line in `VERBS`.

A verb's function imports what it needs when it runs, and its options are made when it is called, so that
`showtell --help` is instant.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
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
    "bulk": "bulk:bulk",
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


class _Verb(TyperCommand):
    """A verb as the list of verbs shows it; its options are made once it is called."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._function = function_of(verb)
        help = inspect.getdoc(self._function) or ""
        first, *_ = re.split(r"(?<=[.])\s", help, maxsplit=1)
        super().__init__(verb.split()[-1], help=help, short_help=first)

    def with_options(self) -> Any:
        """The verb as typer makes it from the function's signature."""
        verb = with_settings_options(self._function)
        module = inspect.getmodule(self._function)

        @functools.wraps(verb)
        def call(**arguments: Any) -> None:
            from showtell.processes import is_first_process
            from showtell.progress import working

            _refuse_named_pipes(arguments.values())
            is_told = is_first_process() and not getattr(module, "RUNS_UNTIL_STOPPED", False)
            try:
                with working(self._verb) if is_told else nullcontext():
                    verb(**arguments)
            except KeyboardInterrupt as error:
                notify(f"interrupted; {getattr(module, 'IF_INTERRUPTED', _IF_INTERRUPTED)}.")
                raise typer.Exit(130) from error

        made = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        made.command(self.name)(call)
        return typer.main.get_command(made)


def _refuse_named_pipes(arguments: Iterable[object]) -> None:
    """Reading a named pipe would wait for a writer that may never come. Lists, such as photos, check each item."""
    from showtell.files import is_named_pipe

    for argument in arguments:
        if isinstance(argument, (str, Path)) and is_named_pipe(Path(argument)):
            raise UsageError(f"{argument} is a named pipe; give a regular file or a folder.")


class _Group(TyperGroup):
    """Verbs by their names."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that the arguments name, with its options."""
        name, verb, rest = super().resolve_command(ctx, args)
        return name, verb.with_options() if isinstance(verb, _Verb) else verb, rest


class _Root(_Group):
    """All verbs."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        groups = {name: _Group(name=name, help=help, no_args_is_help=True) for name, help in GROUPS.items()}
        for verb in VERBS:
            group, _, name = verb.rpartition(" ")
            if group:
                groups[group].add_command(_Verb(verb))
                self.commands.setdefault(group, groups[group])
            else:
                self.add_command(_Verb(name))


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
