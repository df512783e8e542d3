"""`showtell grounding`: whether a model looks at the objects that it names, and needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from showtell.cli.arguments import AsJson, Checkpoint, Dataset, FeatureStore, Limit, Split, out_file
from showtell.cli.decoding_options import DecodingOfOne


def grounding(
    checkpoint: Checkpoint,
    dataset: Dataset,
    split: Split = "test",
    captions: Annotated[
        Literal["references", "own"],
        typer.Option(help="Take the object words from the references, or from the model's own captions."),
    ] = "references",
    occlusion: Annotated[
        Literal["none", "mean", "remove", "pixels"],
        typer.Option(
            help="How to hide each region in turn: replace its feature by the mean of the others, remove it, or paint "
            "over its pixels and encode the photo again."
        ),
    ] = "mean",
    limit: Limit = None,
    features: FeatureStore = None,
    out: Annotated[Path | None, out_file("Write the scores, and those of each image, to a JSON file.")] = None,
    as_json: AsJson = False,
    *,
    decoding: DecodingOfOne,
) -> None:
    """Measure whether a model looks at the objects that it names.

    The dataset must have boxes of objects, such as COCO captions with the instances file beside them.
    """
    import json

    from showtell.captioners import EncoderDecoderCaptioner
    from showtell.datasets import open_dataset
    from showtell.features.store import FeatureStore as FeatureStoreReader
    from showtell.files import refuse_overwriting, write_json
    from showtell.grounding.pointing import measure_attention
    from showtell.progress import counting

    if out is not None:
        refuse_overwriting(out, "--out", [Path(checkpoint), dataset])
    records = open_dataset(dataset, with_photos=features is None).limited(limit).split(split)
    captioner = EncoderDecoderCaptioner.from_pretrained(checkpoint)
    with counting("measuring", len(records)) as progress:
        report = measure_attention(
            captioner,
            records,
            captions=captions,
            occlusion=None if occlusion == "none" else occlusion,
            settings=captioner.settings(**decoding, num_return_sequences=1),
            store=None if features is None else FeatureStoreReader(features),
            progress=progress,
        )
    content = {"split": split, **report.to_json()}
    if out is not None:
        write_json(out, {**content, "per_image": report.report.per_image})
    typer.echo(json.dumps(content) if as_json else describe(content))


def describe(content: dict[str, Any]) -> str:
    """The numbers as text: with their intervals, beside those of maps that do not depend on the words."""

    def cell(name: str) -> str:
        number = content["numbers"].get(name)
        return "-" if number is None else f"{number['value']:.3f} [{number['low']:.3f}, {number['high']:.3f}]"

    lines = [
        f"{content['mentions']} mentions of objects in {content['images']} images of {content['split']} "
        f"({content['captions']}); {content['hallucinated']} mentions of objects that are not there",
        "",
        f"{'':10}{'pointing':24}{'mass in the box':24}{'overlap of 1/2':24}",
    ]
    for title, prefix in (("attention", ""), ("occlusion", "occlusion_"), ("chance", "chance_"), ("centre", "centre_")):
        cells = [f"{cell(prefix + name):24}" for name in ("pointing", "mass", "overlap")]
        lines.append(f"{title:10}{''.join(cells)}".rstrip())
    lines += ["", f"rank correlation of attention with occlusion: {cell('correlation')}"]
    lines += [f"of mentions of objects alone: {cell('correlation_named')}"]
    return "\n".join(lines)
