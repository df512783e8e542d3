"""The verbs, wired together. A verb's function imports what it needs when it runs, so that help is instant."""

from __future__ import annotations

import typer

from showtell.cli.calibrate import calibrate
from showtell.cli.caption import caption
from showtell.cli.data_check import check
from showtell.cli.data_get import get
from showtell.cli.data_scenes import scenes
from showtell.cli.data_split import split
from showtell.cli.doctor import doctor
from showtell.cli.evaluate import evaluate
from showtell.cli.features import features
from showtell.cli.lab import lab
from showtell.cli.quickstart import quickstart
from showtell.cli.score import score
from showtell.cli.sweep import sweep
from showtell.cli.train import train

app = typer.Typer(
    name="showtell",
    help="Train, score, explain and serve neural image captioners.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
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
app.command("evaluate")(evaluate)
app.command("caption")(caption)
app.command("lab")(lab)
app.command("calibrate")(calibrate)
app.command("score")(score)
app.command("doctor")(doctor)
