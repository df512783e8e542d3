"""`showtell features`: photos, or what other tools extracted from them, to a store that training reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from showtell.cli.arguments import AsJson, out_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from showtell.features import Encoder
    from showtell.features.extraction import Extraction
    from showtell.features.store import Precision

ValueT = TypeVar("ValueT")

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
    dtype: Annotated[str, typer.Option(metavar="fp16|fp32", help="Precision of the stored numbers.")] = "fp16",
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
    as_json: AsJson = False,
) -> None:
    """Extract features of photos into a store that training reads. The same command resumes after an interruption."""
    import json

    from showtell.errors import DataError, UsageError, summarise
    from showtell.features.store import FeatureStore, precision

    kind = precision(dtype)
    dataset, settings = _split_arguments(arguments or [])
    unreadable: tuple[Exception, ...] = ()
    if foreign is not None:
        if arguments or encoder or recipe or weights or split or seed is not None:
            raise UsageError("--from converts what is on disk: it goes with --out, --source and --dtype alone.")
        store = _convert(foreign, _given(out, "--out STORE"), kind, source)
    else:
        store, done = _extract(dataset, settings, encoder, out, recipe, weights, seed, split or [], kind, batch_size)
        unreadable = done.unreadable
    kept = FeatureStore(store)
    if as_json:
        facts = {
            "store": str(store), "images": len(kept), "bytes": kept.bytes, "encoder": kept.info.encoder,
            "fingerprint": kept.info.fingerprint, "feature_size": kept.info.feature_size, "dtype": kept.info.dtype,
            "unreadable": [str(error) for error in unreadable],
        }  # fmt: skip
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        typer.echo(
            f"{store}: {len(kept)} images, {kept.info.feature_size} numbers to a vector in {kept.info.dtype}, "
            f"{kept.bytes / 1e6:.1f} MB, by {kept.info.made_by}"
        )
    if unreadable:
        count = "1 photo" if len(unreadable) == 1 else f"{len(unreadable)} photos"
        raise DataError(f"{count} could not be read, all others are done: {summarise(unreadable)}")


def _split_arguments(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The dataset, if one is named, and the settings behind it."""
    if arguments and ("=" not in arguments[0] or Path(arguments[0]).exists()):
        return arguments[0], list(arguments[1:])
    return None, list(arguments)


def _given(value: ValueT | None, what: str) -> ValueT:
    from showtell.errors import UsageError

    if value is None:
        raise UsageError(f"{what} is missing: showtell features DATASET --encoder NAME --out STORE.")
    return value


def _extract(
    dataset: str | None,
    settings: Sequence[str],
    encoder: str | None,
    out: Path | None,
    recipe: Path | None,
    weights: str | None,
    seed: int | None,
    splits: Sequence[str],
    dtype: Precision,
    batch_size: int,
) -> tuple[Path, Extraction]:
    """Extract what the options ask for. The encoder has the weights that training by the same recipe would give it."""
    from showtell import counter_rng
    from showtell.cores import describe_threads
    from showtell.datasets import open_dataset
    from showtell.errors import UsageError, notify
    from showtell.features.extraction import extract
    from showtell.progress import counting
    from showtell.training.data import open_dataset_of
    from showtell.training.recipe_loading import load_recipe

    if (encoder is None) == (recipe is None):
        raise UsageError("Name the encoder with --encoder NAME, or a recipe that has one with --recipe RECIPE.")
    if recipe is not None:
        planned = load_recipe(recipe)
        content = planned.encoder.model_dump(mode="json")
        if out is None and planned.data.features is not None:
            out = Path(planned.data.features)
        weights_seed = counter_rng.key_of(planned.training.seed, "weights") if seed is None else seed
    else:
        planned, content, weights_seed = None, {"name": encoder}, seed or 0
    store = _given(out, "--out STORE")
    if planned is not None and dataset is None:
        opened = open_dataset_of(planned.data)
    else:
        opened = open_dataset(_given(dataset, "DATASET"))
    records = [record for name in splits for record in opened.split(name)] if splits else list(opened.records)
    built = _build(content, settings, weights, seed, weights_seed)
    device = next(built.parameters()).device
    notify(f"extracting features of {len(records):,} photos on {device}, {describe_threads()}.")
    with counting("extracting features", len(records)) as progress:
        return store, extract(built, records, store, dtype=dtype, batch_size=batch_size, progress=progress)


def _build(
    content: dict[str, Any], settings: Sequence[str], weights: str | None, seed: int | None, weights_seed: int
) -> Encoder:
    import torch

    from showtell.features import build_encoder
    from showtell.training.recipe_checks import make_encoder_config
    from showtell.training.recipe_loading import apply_overrides

    wanted: dict[str, Any] = {"encoder": dict(content)}
    apply_overrides(wanted, [f"encoder.{setting}" for setting in settings])
    config = make_encoder_config(wanted["encoder"], "the encoder")
    has = type(config).model_fields
    if weights is not None and ("weights" in has or weights != "random"):  # without a choice they are random
        wanted["encoder"]["weights"] = weights
    if seed is not None and "seed" in has:
        wanted["encoder"]["seed"] = seed
    config = make_encoder_config(wanted["encoder"], "the encoder")
    torch.manual_seed(weights_seed)
    return build_encoder(config).to("cuda" if torch.cuda.is_available() else "cpu")


def _convert(path: Path, store: Path, dtype: Precision, source: str | None) -> Path:
    from showtell.features.foreign import convert
    from showtell.progress import counting

    with counting("converting features", None) as progress:
        convert(path, store, source=source or path.name, dtype=dtype, progress=progress)
    return store
