"""`showtell features`: photos, or what other tools extracted from them, to a store that training reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from showtell.cli.arguments import MANY, AsJson, out_folder

if TYPE_CHECKING:
    from showtell.features.store import Precision
    from showtell.training import Recipe

IF_INTERRUPTED = "extracted features are kept, and the same command resumes"


def features(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATASET [KEY=VALUE]...",
            help="Dataset with the photos, and settings of the encoder such as image_size=448.",
            show_default=False,
        ),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the encoder.", show_default="that of --recipe")
    ] = None,
    out: Annotated[Path | None, out_folder("Folder of the feature store.", default="data.features of --recipe")] = None,
    recipe: Annotated[
        Path | None,
        typer.Option(
            metavar="RECIPE",
            help="Take encoder and photos from a recipe: a YAML file, or a name such as coco/sat_soft_xu2015.",
            show_default="none",
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="pretrained|random|FILE", help="Weights of the encoder.", show_default="that of the encoder"
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**63 - 1, help="Random seed of fresh weights.", show_default="0, or that of --recipe"),
    ] = None,
    split: Annotated[
        list[str] | None, typer.Option(help="Split to extract; can be repeated.", show_default="all")
    ] = None,
    dtype: Annotated[Literal["fp16", "fp32"], typer.Option(help="Precision of the stored numbers.")] = "fp16",
    batch_size: Annotated[int, typer.Option(min=1, help="Number of photos in a batch.")] = 16,
    foreign: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Convert features of other tools: a bottom-up-attention TSV, a folder of .npy/.npz, an HDF5 file.",
            show_default="none",
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="With --from: name of the features.", show_default="the name of the file")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Read what the store has, and extract damaged features anew.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Extract features of photos into a store that training reads. The same command resumes after an interruption."""
    import json

    from showtell.errors import DataError, UsageError, summarise
    from showtell.features.foreign import convert
    from showtell.features.store import FeatureStore
    from showtell.progress import counting
    from showtell.training.recipe_loading import load_recipe

    given = arguments or []
    dataset = given.pop(0) if given and ("=" not in given[0] or Path(given[0]).exists()) else None
    planned = None if recipe is None else load_recipe(recipe)
    if out is None and planned is not None and planned.data.features is not None:
        out = Path(planned.data.features)
    if out is None:
        raise UsageError("--out STORE is missing: showtell features DATASET --encoder NAME --out STORE.")
    unreadable: tuple[Exception, ...] = ()
    if foreign is not None:
        if arguments or dataset or encoder or recipe or weights or split or seed is not None:
            raise UsageError("--from converts what is on disk: it goes with --out, --source and --dtype alone.")
        with counting("converting features", None) as progress:
            convert(foreign, out, source=source or foreign.name, dtype=dtype, progress=progress)
    elif (encoder is None) == (planned is None):
        raise UsageError("Name the encoder with --encoder NAME, or a recipe that has one with --recipe RECIPE.")
    else:
        wanted = {"weights": weights, "seed": seed}
        unreadable = _extract(out, dataset, planned, encoder, given, wanted, split or [], dtype, batch_size, check)
    kept = FeatureStore(out)
    if as_json:
        facts = {
            "store": str(out),
            "images": len(kept),
            "bytes": kept.bytes,
            "encoder": kept.info.encoder,
            "fingerprint": kept.info.fingerprint,
            "feature_size": kept.info.feature_size,
            "dtype": kept.info.dtype,
            "unreadable": [str(error) for error in unreadable],
        }
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        typer.echo(
            f"{out}: {len(kept)} images, {kept.info.feature_size} numbers to a vector in {kept.info.dtype}, "
            f"{kept.bytes / 1e6:.1f} MB, by {kept.info.made_by}"
        )
    if unreadable:
        count = "1 photo" if len(unreadable) == 1 else f"{len(unreadable)} photos"
        raise DataError(f"{count} could not be read, all others are done: {summarise(unreadable)}")


def _extract(
    store: Path,
    dataset: str | None,
    recipe: Recipe | None,
    encoder: str | None,
    settings: list[str],
    wanted: dict[str, Any],
    splits: list[str],
    dtype: Precision,
    batch_size: int,
    check: bool,
) -> tuple[Exception, ...]:
    """Extract what the options ask for; the encoder has the weights that training by the same recipe would give it.

    Returns:
        The errors of photos that cannot be read.
    """
    import torch

    from showtell import counter_rng
    from showtell.cores import describe_threads
    from showtell.datasets import open_dataset
    from showtell.errors import UsageError, notify
    from showtell.features import build_encoder
    from showtell.features.extraction import extract
    from showtell.progress import counting
    from showtell.training.data import open_dataset_of
    from showtell.training.recipe_checks import make_encoder_config
    from showtell.training.recipe_loading import apply_overrides

    if dataset is not None:
        opened = open_dataset(dataset)
    elif recipe is not None:
        opened = open_dataset_of(recipe.data)
    else:
        raise UsageError("DATASET is missing: showtell features DATASET --encoder NAME --out STORE.")
    records = [record for name in splits for record in opened.split(name)] if splits else list(opened.records)
    content = {"encoder": {"name": encoder} if recipe is None else recipe.encoder.model_dump(mode="json")}
    apply_overrides(content, [f"encoder.{setting}" for setting in settings])
    known = type(make_encoder_config(content["encoder"], "the encoder")).model_fields
    if wanted["weights"] == "random" and "weights" not in known:
        wanted["weights"] = None  # without a choice they are random
    for name, value in wanted.items():
        if value is not None and (name != "seed" or name in known):
            content["encoder"][name] = value
    config = make_encoder_config(content["encoder"], "the encoder")
    seed = wanted["seed"]
    if seed is None:
        seed = 0 if recipe is None else counter_rng.key_of(recipe.training.seed, "weights")
    torch.manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if len(records) >= MANY:
        notify(f"extracting features of {len(records):,} photos on {device}, {describe_threads()}.")
    with counting("extracting features", len(records)) as progress:
        built = build_encoder(config).to(device)
        done = extract(built, records, store, dtype=dtype, batch_size=batch_size, check=check, progress=progress)
    return done.unreadable
