"""What COCO's evaluation server takes: captions of all images of val2014 and test2014, in one archive.

https://cocodataset.org/#captions-upload: `results.zip` with `captions_val2014_NAME_results.json` and
`captions_test2014_NAME_results.json`, which have an entry for each image of their set. The captions are kept batch by
batch in `captions_..._results.json.part`, from which the same command resumes.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from showtell.cli.caption_journal import Journal
from showtell.datasets import coco
from showtell.datasets.issues import counted, missing_files
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.errors import DataError, ImageError, UsageError, notify, summarise
from showtell.files import writing
from showtell.progress import reporting

if TYPE_CHECKING:
    from showtell.captioners import Captioner
    from showtell.decoding import DecodingConfig
    from showtell.features.store import FeatureStore

ARCHIVE = Path("results.zip")
BATCH = 64  # images that are captioned, and then kept, at once
_STORED = 16 * BATCH  # images between two looks at whether the features are those of the encoder


def chosen_lists(dataset: Path, name: str) -> dict[str, Path]:
    """The files that list the images to caption for the server, by the set.

    Args:
        dataset: COCO's folder, or one of the files.
        name: of the algorithm; with a set and _ in front, that set alone.

    Returns:
        None of them where the name begins with a set and the dataset is not COCO's: any split may stand for it.

    Raises:
        UsageError: the name fits in no file name.
        DataError: a list is missing.
    """
    if not re.fullmatch(r"[\w.-]+", name):
        raise UsageError(f'--server "{name}" goes into a file name: give letters, digits, dots, - and _ alone.')
    lists = coco.server_lists(dataset)
    alone = next((one for one in coco.SERVER_SETS if name.startswith(f"{one}_")), None)
    if alone is not None:
        return {one: file for one, file in lists.items() if one == alone}
    missing = [f"annotations/{file}" for one, (file, _) in coco.SERVER_SETS.items() if one not in lists]
    if missing:
        raise DataError(
            f"COCO's server takes val2014 and test2014 together, and {dataset} has no {' and no '.join(missing)}; "
            f"name COCO's folder, or give --server val2014_{name} for a file of one set."
        )
    return lists


def results_file(one: str, name: str) -> Path:
    """The file of a set's captions, as the server names it."""
    return Path(f"captions_{one}_{name.removeprefix(f'{one}_')}_results.json")


def read_images(one: str, file: Path, *, with_photos: bool) -> CaptionDataset:
    """The images of a set, whether they have captions or not.

    Args:
        one: the set.
        file: that lists its images.
        with_photos: whether the photos have to be there.

    Raises:
        DataError: the file has problems, or photos are missing.
    """
    dataset = coco.read(file)
    if dataset.problems:
        raise DataError(f"{file} cannot be used. {dataset.problems[0]}")
    expected = coco.SERVER_SETS[one][1]
    if len(dataset.records) != expected:
        notify(
            f"{file} lists {counted(len(dataset.records), 'image')}; COCO's {one} has {expected:,}, the server's own."
        )
    missing = missing_files(dataset.records) if with_photos else []
    if missing:
        raise DataError(
            f"The server takes none but whole sets, and {counted(len(missing), 'image file')} of {one} "
            f"{'is' if len(missing) == 1 else 'are'} missing: {summarise(map(str, missing))}; put them there."
        )
    return dataset


def caption_for_server(
    captioner: Captioner,
    sets: Mapping[str, Sequence[CaptionRecord]],
    name: str,
    made_with: dict[str, Any],
    settings: DecodingConfig,
    store: FeatureStore | None,
) -> dict[str, dict[str, str]]:
    """Caption sets of images, or what is left of them, and write their files; of both sets the archive too.

    Args:
        captioner: the model.
        sets: the images of each set.
        name: of the algorithm.
        made_with: whatever the captions depend on.
        settings: how to search.
        store: features of the images, read instead of the photos.

    Returns:
        The caption of each image id, by the set.

    Raises:
        DataError: some images could not be captioned. Nothing is written but the captions of the others, kept for the
            next run.
    """
    files = {one: results_file(one, name) for one in sets}
    failures: dict[str, list[str]] = {}
    with ExitStack() as opened:
        journals = {
            one: opened.enter_context(
                Journal(file, made_with, BATCH, key="image_id", things="images", is_record=_is_row)
            )
            for one, file in files.items()
        }
        for one, records in sets.items():
            failures[one] = _caption_rest(captioner, one, records, journals[one], settings, store)
        for one, failed in failures.items():
            if failed:
                raise DataError(
                    f"The server takes none but whole sets, and {counted(len(failed), 'image')} of {one}'s "
                    f"{len(sets[one]):,} could not be captioned: {summarise(failed)}; mend them and give the same "
                    "command again, which resumes."
                )
        ids = {one: [record.image_id for record in records] for one, records in sets.items()}
        captions = {
            one: {row["image_id"]: row["caption"] for row in journal.records(ids[one])}
            for one, journal in journals.items()
        }
        if sets.keys() == coco.SERVER_SETS.keys():
            _write_archive({files[one]: _as_results(journal.records(ids[one])) for one, journal in journals.items()})
        for one, journal in journals.items():
            journal.finish(ids[one], _as_results)
    return captions


def _caption_rest(
    captioner: Captioner,
    one: str,
    records: Sequence[CaptionRecord],
    journal: Journal,
    settings: DecodingConfig,
    store: FeatureStore | None,
) -> list[str]:
    """Caption the images that the journal lacks; returns the sentences about those that could not be read."""
    remaining = [record for record in records if record.image_id not in journal]
    if len(remaining) < len(records):
        notify(f"resuming {journal.part}: {len(records) - len(remaining)} images are done.")
    failures: list[str] = []
    rows = _rows(captioner, remaining, settings, store, failures)
    try:
        with reporting(f"captioning {one}") as progress:
            while batch := list(islice(rows, BATCH)):
                journal.append(batch)
                progress(len(batch), len(remaining))
    except KeyboardInterrupt as error:
        notify(f"interrupted; {len(journal)} of {len(records)} images of {one} are kept; the same command resumes.")
        raise typer.Exit(130) from error
    return failures


def _rows(
    captioner: Captioner,
    records: Sequence[CaptionRecord],
    settings: DecodingConfig,
    store: FeatureStore | None,
    failures: list[str],
) -> Iterator[dict[str, str]]:
    """The most likely caption of each image with its id; images that cannot be read go to `failures`."""
    from showtell.evaluation import caption_records

    if store is not None:
        for first in range(0, len(records), _STORED):
            part = records[first : first + _STORED]
            captions = caption_records(captioner, part, settings, store=store, batch_size=BATCH)
            yield from ({"image_id": image, "caption": caption.text} for image, caption in captions.items())
        return
    photos = captioner.caption_photos((record.path for record in records), settings, BATCH, first_alone=False)
    for record, (_, ranked) in zip(records, photos, strict=True):
        if isinstance(ranked, ImageError):
            failures.append(str(ranked))
        else:
            yield {"image_id": record.image_id, "caption": ranked[0].text}


def _is_row(row: dict[str, Any]) -> bool:
    return isinstance(row["caption"], str)


def _as_results(rows: Iterable[Mapping[str, str]]) -> Iterator[str]:
    """COCO results as JSON."""
    from showtell.evaluation import written_id

    separator = "["
    for row in rows:
        yield separator + json.dumps({"image_id": written_id(row["image_id"]), "caption": row["caption"]})
        separator = ",\n"
    yield "]\n"


def _write_archive(contents: Mapping[Path, Iterable[str]]) -> None:
    """Write the files, and nothing else, to the root of the archive; equal captions give equal bytes."""
    with writing(ARCHIVE) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, texts in contents.items():
            entry = zipfile.ZipInfo(file.name)  # of 1980
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, "".join(texts))
