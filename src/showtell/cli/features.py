"""`showtell features`: photos, or what other tools extracted from them, to a store that training reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from showtell.cli.arguments import MANY, AsJson, out_folder

if TYPE_CHECKING:
    from showtell.datasets.records import CaptionDataset
    from showtell.features import EncoderConfig
    from showtell.features.store import Precision

IF_INTERRUPTED = "extracted features are kept, and the same command resumes"


def features(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATASET [KEY=VALUE]...",
            help="Dataset with the photos, and settings of the encoder such as image_size=448 or weights=random.",
            show_default=False,
        ),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the encoder.", show_default="that of --recipe")
    ] = None,
    out: Annotated[
        Path | None, out_folder("Folder of the feature store.", default="that of --recipe, or stores/DATASET-ENCODER")
    ] = None,
    recipe: Annotated[
        Path | None,
        typer.Option(
            metavar="RECIPE",
            help="Take encoder and photos from a recipe: a YAML file, or a name such as coco/sat_soft_xu2015.",
            show_default="none",
        ),
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
            help="Convert features of other tools: a bottom-up-attention TSV, or a folder of .npy/.npz.",
            show_default="none",
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="With --from: name of the features.", show_default="the name of the file")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Extract features of photos into a store that training reads. The same command resumes, and repairs the store."""
    import json

    from showtell.errors import DataError, UsageError, summarise
    from showtell.features.precomputed import convert
    from showtell.features.store import FeatureStore
    from showtell.progress import counting

    unreadable: tuple[Exception, ...] = ()
    if foreign is not None:
        if arguments or encoder or recipe or split or out is None:
            raise UsageError("--from converts what is on disk: it goes with --out, --source and --dtype alone.")
        with counting("converting features", None) as progress:
            convert(foreign, out, source=source or foreign.absolute().name, dtype=dtype, progress=progress)
    else:
        given = arguments or []
        dataset = given.pop(0) if given and ("=" not in given[0] or Path(given[0]).exists()) else None
        plan = _plan(dataset, encoder, recipe, [f"encoder.{setting}" for setting in given])
        out = out or Path(plan.store)
        unreadable = _extract(out, plan, split or [], dtype, batch_size)
    images, info = len(FeatureStore(out)), FeatureStore(out).info
    size = (out / "data.mdb").stat().st_size
    if as_json:
        facts = {
            "store": str(out), "images": images, "bytes": size, "unreadable": [str(error) for error in unreadable],
            **info.model_dump(mode="json", include={"encoder", "fingerprint", "feature_size", "dtype"}),
        }  # fmt: skip
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        typer.echo(
            f"{out}: {images} images, {info.feature_size} numbers to a vector in {info.dtype}, {size / 1e6:.1f} MB, by "
            f"{info.made_by}"
        )
    if unreadable:
        count = "1 photo" if len(unreadable) == 1 else f"{len(unreadable)} photos"
        raise DataError(f"{count} could not be read, all others are done: {summarise(unreadable)}")


@dataclass(frozen=True)
class _Plan:
    """What to extract."""

    dataset: CaptionDataset
    encoder: EncoderConfig
    seed: int  # of fresh weights; training by the same recipe gives the encoder the same
    store: str  # where the features go, unless --out says otherwise


def _plan(dataset: str | None, encoder: str | None, recipe: Path | None, settings: list[str]) -> _Plan:
    """The photos and the encoder that the arguments name; `settings` are overrides of a recipe."""
    import json

    from showtell import counter_rng
    from showtell.datasets import open_dataset
    from showtell.errors import UsageError
    from showtell.training.data import open_dataset_of
    from showtell.training.recipe_checks import make_encoder_config
    from showtell.training.recipe_loading import apply_overrides, load_recipe

    if recipe is not None and encoder is None:
        path = [] if dataset is None else [f"data.path={json.dumps(dataset)}"]
        planned = load_recipe(recipe, [*settings, *path])
        store = planned.data.features or planned.encoder.store_of(planned.data.path)
        seed = counter_rng.key_of(planned.training.seed, "weights")
        return _Plan(open_dataset_of(planned.data), planned.encoder, seed, store)
    if recipe is not None or encoder is None:
        raise UsageError("Name the encoder with --encoder NAME, or a recipe that has one with --recipe RECIPE.")
    if dataset is None:
        raise UsageError("DATASET is missing: showtell features DATASET --encoder NAME.")
    content: dict[str, Any] = {"encoder": {"name": encoder}}
    apply_overrides(content, settings)
    config = make_encoder_config(content["encoder"], "the encoder")
    return _Plan(open_dataset(dataset), config, 0, config.store_of(dataset))


def _extract(store: Path, plan: _Plan, splits: list[str], dtype: Precision, batch_size: int) -> tuple[Exception, ...]:
    """Extract what is planned; the errors of photos that cannot be read."""
    import torch

    from showtell.cores import describe_threads
    from showtell.errors import notify
    from showtell.features import build_encoder
    from showtell.features.extraction import extract
    from showtell.features.store import require_settings
    from showtell.progress import counting

    require_settings(store, plan.encoder)
    records = plan.dataset[tuple(splits)] if splits else plan.dataset
    torch.manual_seed(plan.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if len(records) >= MANY:
        notify(f"extracting features of {len(records):,} photos on {device}, {describe_threads()}.")
    with counting("extracting features", len(records)) as progress:
        built = build_encoder(plan.encoder).to(device)
        return extract(built, records, store, dtype=dtype, batch_size=batch_size, progress=progress).unreadable
