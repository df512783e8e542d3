"""The verbs, wired together. A verb's function imports what it needs when it runs, so that help is instant."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from showtell import __version__
from showtell.cli.attention import attention
from showtell.cli.calibrate import calibrate
from showtell.cli.caption import caption
from showtell.cli.data_check import check
from showtell.cli.data_get import get
from showtell.cli.data_scenes import scenes
from showtell.cli.data_split import split
from showtell.cli.doctor import doctor
from showtell.cli.evaluate import evaluate
from showtell.cli.explain import explain
from showtell.cli.features import features
from showtell.cli.lab import lab
from showtell.cli.quickstart import quickstart
from showtell.cli.report import report
from showtell.cli.score import score
from showtell.cli.sweep import sweep
from showtell.cli.train import train

# What an interrupted verb leaves; train and caption say so themselves.
_KEPT = {
    "quickstart": "the same command goes on where it stopped",
    "sweep": "the same command goes on where it stopped",
    "features": "what was extracted is kept, and the same command goes on",
    "data": "the same command begins again, or goes on with what was fetched or drawn",
}


class _Verbs(TyperGroup):
    """The verbs; an interrupted one says how to go on."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; Ctrl-C ends it with a sentence and status 130."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            kept = _KEPT.get(ctx.invoked_subcommand, "nothing was written, and the same command begins again")
            sys.stderr.write(f"showtell: interrupted; {kept}.\n")
            raise typer.Exit(130) from error


app = typer.Typer(
    name="showtell",
    cls=_Verbs,
    help="Train, score and explain neural image captioners.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"showtell {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""


data = typer.Typer(no_args_is_help=True)
app.add_typer(data, name="data", help="Draw, fetch and check datasets.")

data.command("scenes")(scenes)
data.command("check")(check)
data.command("split")(split)
data.command("get")(get)

app.command("quickstart")(quickstart)
app.command("features")(features)
app.command("train")(train)
app.command("sweep")(sweep)
app.command("report")(report)
app.command("evaluate")(evaluate)
app.command("caption")(caption)
app.command("explain")(explain)
app.command("lab")(lab)
app.command("attention")(attention)
app.command("calibrate")(calibrate)
app.command("score")(score)
app.command("doctor")(doctor)
