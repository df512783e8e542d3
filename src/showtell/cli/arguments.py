"""Arguments and options that several verbs have, declared once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import typer

from showtell.errors import DataError, UsageError, summarise

MANY = 100  # photos from which on a line says how they are worked on
CHECKPOINT_HELP = (
    "Captioner: small, which comes with showtell; a checkpoint that showtell train wrote; a model of transformers, as "
    "a folder or owner/name[@revision] on the Hub; or openai:URL#MODEL, a model on a server."
)
DATASET_HELP = "Dataset: a folder, or a file in a known format; or several, '[A,B]'."


def require_checkpoint(name: str | None) -> str | None:
    """Name a checkpoint that is missing before anything heavy is imported."""
    from showtell.hub import SERVER, find_checkpoint

    if name is not None and not name.startswith(SERVER):
        find_checkpoint(name)
    return name


Checkpoint = Annotated[
    str, typer.Argument(help=CHECKPOINT_HELP, metavar="CHECKPOINT", show_default=False, callback=require_checkpoint)
]
Photos = Annotated[
    list[str] | None,
    typer.Argument(
        help="Image files, folders, glob patterns in quotes, or - to read paths from standard input; with --features "
        "also image ids.",
        metavar="IMAGE|FOLDER|GLOB|-...",
        show_default=False,
    ),
]
Dataset = Annotated[Path, typer.Argument(help=DATASET_HELP, metavar="DATASET", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        help="Overrides of the recipe, such as training.epochs=3.", metavar="[KEY=VALUE]...", show_default=False
    ),
]
Split = Annotated[str, typer.Option(help="Split of the dataset.")]
Limit = Annotated[
    int | None, typer.Option(help="Use at most this many images, the same ones in each run.", min=1, show_default="all")
]
BatchSize = Annotated[int, typer.Option(help="Number of photos in a batch.", min=1, max=100_000)]
FeatureStore = Annotated[
    Path | None,
    typer.Option(metavar="STORE", help="Read features from a store instead of photos.", show_default="none"),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        metavar="fp32|bf16|fp16|auto",
        help="Precision of a captioner of transformers, or of the products of a checkpoint's encoder of timm (fp32, "
        "bf16); auto is bf16 where the device is faster in it.",
        show_default="that of the checkpoint; transformers: fp32",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def standard_input(photos: Sequence[str]) -> BinaryIO | None:
    """Standard input, where `-` stands for the paths in it."""
    if "" in photos:
        raise UsageError("A photo has an empty name; is a variable of the shell not set?")
    if "-" in photos and sys.stdin is None:
        raise UsageError("Standard input is closed, so there are no paths for -; name the photos, or pipe paths in.")
    return sys.stdin.buffer if "-" in photos else None


def require_photos(photos: Sequence[str] | None, features: Path | None, verb: str) -> list[str]:
    """The photos that arguments name; a UsageError if there are none, nor a store that has images."""
    if not photos and features is None:
        raise UsageError(
            "Missing argument: image files, folders or patterns; with --features STORE it can be left out, for all "
            f"images of the store. See showtell {verb} --help."
        )
    return list(photos or ())


def raise_failures(failures: Sequence[object], outcome: str) -> None:
    """Raise a DataError with the sentences of the first 20 photos that failed, if there are some."""
    if failures:
        reasons = summarise([str(failure).rstrip(".") for failure in failures], 20)
        raise DataError(f"{len(failures)} {outcome}: {reasons}.")


def out_file(
    help: str,
    metavar: str = "FILE",
    default: str | bool = "not written",
    kind: Literal["file", "folder", "either"] = "file",
) -> Any:
    """An option that names a file to write; a name that cannot be written is refused before any work."""

    def checked(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
        from showtell.files import require_writable

        if path is not None:
            require_writable(path, parameter.opts[0], kind)
        return path

    def parse(name: str) -> Path:
        if not name:
            raise typer.BadParameter("the name is empty; is a variable of the shell not set?")
        return Path(name)

    return typer.Option(help=help, metavar=metavar, show_default=default, parser=parse, callback=checked)


def out_folder(help: str, default: str | bool = True) -> Any:
    """An option that names a folder to write; a name that cannot be written is refused before any work."""
    return out_file(help, "FOLDER", default, "folder")
