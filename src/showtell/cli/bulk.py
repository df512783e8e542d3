"""`showtell bulk`: captions of very many photos, in parts, by many processes on this machine or a cluster.

The folder of --out has `plan.json`, which says what the captions are made with and which photos each part has, and a
file for each part, written whole or not at all. The same command resumes with the parts that are not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from showtell.cli.arguments import (
    BatchSize,
    Checkpoint,
    Dtype,
    Ensemble,
    out_folder,
    raise_failures,
    standard_input,
)
from showtell.cli.decoding_options import Decoding, open_captioner, settings_of
from showtell.errors import DataError, UsageError, notify, summarise

if TYPE_CHECKING:
    from showtell.bulk import Part

PLAN = "plan.json"


def bulk(
    checkpoint: Checkpoint,
    photos: Annotated[
        list[str],
        typer.Argument(
            help="Image files, folders, patterns, .tar and .parquet shards, and URLs of any of these (s3://, gs://, "
            "hf://, https://).",
            metavar="IMAGE|FOLDER|SHARD|URL...",
            show_default=False,
        ),
    ],
    out: Annotated[Path, out_folder("Folder of the parts.", default=False)],
    ensemble: Ensemble = None,
    attention: Annotated[bool, typer.Option("--attention", help="Add the attention of each word.")] = False,
    column: Annotated[
        str | None,
        typer.Option(
            help="Column of parquet files with the photos or their paths.", show_default="the first known name"
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of processes, each with a model.",
            min=1,
            show_default="one per GPU, without a GPU one per core",
        ),
    ] = None,
    batch_size: BatchSize = 32,
    dtype: Dtype = None,
    *,
    decoding: Decoding,
) -> None:
    """Caption very many photos with Ray, into parts of JSON lines. The same command resumes after an interruption."""
    from filelock import FileLock, Timeout

    from showtell.bulk import caption_parts, plan_parts, require_ray
    from showtell.cli.caption_journal import made_with_of
    from showtell.files import write_bytes
    from showtell.progress import counting

    require_ray()
    captioner = open_captioner(checkpoint, ensemble, dtype)
    settings = settings_of(captioner, decoding)
    made_with = made_with_of(captioner, settings, attention=attention)
    made_with |= {"photos": photos, "folder": str(Path.cwd()), "column": column, "batch_size": batch_size}
    _require_own_folder(out)
    out.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(out / ".lock", timeout=0):
            parts = _planned(out / PLAN, made_with) or plan_parts(photos, batch_size, standard_input(photos))
            _keep_plan(out / PLAN, made_with, parts)
            files = [out / f"part-{number:05}.jsonl" for number in range(len(parts))]
            remaining = {number: part for number, part in enumerate(parts) if not files[number].exists()}
            if len(remaining) < len(parts):
                notify(f"resuming {out}: {len(parts) - len(remaining)} of {len(parts)} parts are done.")
            options = {"settings": settings, "batch_size": batch_size, "attention": attention}
            with counting("captioning parts", len(remaining)) as progress:
                for number, results in caption_parts(captioner, remaining, column=column, workers=workers, **options):
                    write_bytes(files[number], _lines(results))
                    progress(1)
    except Timeout as error:
        raise DataError(f"Another program is writing {out}; wait for it, or choose another --out.") from error
    except KeyboardInterrupt as error:
        notify(f"interrupted; the parts in {out} are kept, and the same command resumes.")
        raise typer.Exit(130) from error
    photos_done, failures = _summary(files)
    notify(f"{out} has the captions of {photos_done - len(failures)} photos in {len(files)} parts.")
    raise_failures(failures, f'of {photos_done} photos could not be captioned, each with its "error" in the parts')


def _lines(results: Sequence[dict[str, Any]]) -> bytes:
    from showtell.cli.caption_formats import json_line

    return "".join(f"{json_line(result)}\n" for result in results).encode("utf-8", "surrogateescape")


def _planned(file: Path, made_with: dict[str, Any]) -> list[Part] | None:
    """The parts of the plan that was begun; None where there is none.

    Raises:
        DataError: it is damaged, or was made with other settings.
    """
    import json

    from showtell.config import differences, flat
    from showtell.files import read_json

    if not file.exists():
        return None
    plan = read_json(file)
    changed = [
        f"{key} (was {json.dumps(old)}, now {json.dumps(new)})"
        for key, (old, new) in differences(flat(plan["made_with"]), flat(json.loads(json.dumps(made_with)))).items()
    ]
    if changed:
        raise DataError(
            f"The captions in {file.parent} were made with other settings: {summarise(changed)}; use the old ones, or "
            "choose another --out."
        )
    return [tuple(part) for part in plan["parts"]]


def _keep_plan(file: Path, made_with: dict[str, Any], parts: Sequence[Part]) -> None:
    """Write the plan, so that photos that come later change nothing."""
    from showtell.files import write_json

    if not file.exists():
        write_json(file, {"made_with": made_with, "parts": parts})


def _summary(files: Sequence[Path]) -> tuple[int, list[str]]:
    """How many photos the parts have, and a sentence for each that could not be captioned."""
    import json

    photos, failures = 0, []
    for file in files:
        with file.open("rb") as lines:
            for line in lines:
                photos += 1
                if b'"error":' in line and "error" in (result := json.loads(line)):
                    failures.append(result["error"])
    return photos, failures


def _require_own_folder(folder: Path) -> None:
    """Make sure that a folder is new, or of this command.

    Raises:
        UsageError: it holds something and no plan.
    """
    if folder.is_dir() and not (folder / PLAN).exists() and any(path.name != ".lock" for path in folder.iterdir()):
        raise UsageError(f"{folder} holds other things and no {PLAN}; choose a new folder for --out.")
