"""Captions that people rated: Flickr8k-Expert, Flickr8k-CF, Composite, Polaris as they are published, and plain tables.

- Flickr8k (M. Hodosh et al., JAIR 2013): `ExpertAnnotations.txt`, a line for each image and caption id with three
  ratings from 1 to 4; `CrowdFlowerAnnotations.txt` with the share of yes, the number of yes and of no. The captions are
  in `Flickr8k.token.txt` beside them. Also `flickr8k.json` and `crowdflower_flickr8k.json`, CLIPScore's form of them.
- Composite (S. Aditya et al., 2015): `8k_correctness.csv`, `30k_...`, `coco_...`, tables of Mechanical Turk with
  the columns `Input.image_url`, `Input.text1`, `Answer.Q1Answer` and so on; ratings from 1 to 5. A folder is one set.
- Polaris (Y. Wada et al., CVPR 2024): `polaris_test.csv` with the columns `imgid`, `mt`, `refs`, `score`, from 0 to 1.
- Any table with the columns `image`, `caption`, `rating` and, if it has them, `references`, a list in JSON or Python.

What papers do (J. Hessel et al., CLIPScore, EMNLP 2021, appendix A; P. Anderson et al., SPICE, ECCV 2016) is kept: each
rating counts on its own; in Flickr8k-Expert captions that are references of their image are left out, in Flickr8k-CF
and Composite they are taken from the references of the image; tau-b for Flickr8k-CF, tau-c for the others.
"""

from __future__ import annotations

import ast
import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import Literal

from showtell.datasets.source_files import first_line
from showtell.errors import DataError, UsageError, summarise
from showtell.files import read_json, read_text
from showtell.images.photo_files import images_by_name, match_photos
from showtell.scores.base import tokenize
from showtell.scores.facts import ImageFacts
from showtell.scores.files import ScoredImages

TOKENS = "Flickr8k.token.txt"
EXPECTED = (
    "ExpertAnnotations.txt or CrowdFlowerAnnotations.txt of Flickr8k (or CLIPScore's JSON of them), *_correctness.csv "
    "of Composite or a folder of them, polaris_test.csv, or a table with the columns image, caption and rating"
)
_COLUMNS = {  # of tables, by what is meant
    "image": ("image", "imgid", "image_id", "img"),
    "caption": ("caption", "mt", "cand"),
    "rating": ("rating", "score", "human_score"),
    "references": ("references", "refs"),
}


@dataclass(frozen=True)
class JudgedCaption:
    """A caption of an image, and what people thought of it."""

    image: str  # as the file names it
    text: str
    ratings: tuple[float, ...]
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judgements:
    """The captions of one set of judgements."""

    name: str
    captions: tuple[JudgedCaption, ...]
    tau: Literal["tau_b", "tau_c"]  # which one papers report
    notes: tuple[str, ...] = ()  # sentences: what was left out and why


@dataclass(frozen=True)
class _Rating:
    image: str
    text: str
    value: float
    references: tuple[str, ...]
    where: str  # for messages


@dataclass(frozen=True)
class _Kind:
    """One published form."""

    name: str
    scale: tuple[float, float]
    tau: Literal["tau_b", "tau_c"]
    captions_among_references: Literal["leave out", "take from references", "keep"]


_EXPERT = _Kind("Flickr8k-Expert", (1, 4), "tau_c", "leave out")
_CROWD = _Kind("Flickr8k-CF", (0, 1), "tau_b", "take from references")
_COMPOSITE = _Kind("Composite", (1, 5), "tau_c", "take from references")
_POLARIS = _Kind("Polaris", (0, 1), "tau_c", "keep")
_TABLE = _Kind("judgements", (-math.inf, math.inf), "tau_c", "take from references")


def read_judgements(path: Path, images: ScoredImages | None = None, *, common: bool = False) -> Judgements:
    """The rated captions of a file, or of the tables of Composite in a folder.

    Args:
        path: in one of the forms above.
        images: whose references, and ids, are taken in place of those of the file; images are matched by path, file
            name, name without suffix or number.
        common: leave out captions of images that are not among these, and say how many.

    Raises:
        DataError: it is in no known form, a rating is outside of its scale, a caption is judged twice or not known, or
            images are not known.
    """
    kind, ratings, notes = _read(path)
    low, high = kind.scale
    outside = [one for one in ratings if not low <= one.value <= high]
    if outside:
        raise DataError(
            f"{len(outside)} rating(s) of {path} are outside of the scale of {kind.name}, {low:g} to {high:g}: first "
            f"{outside[0].value:g} at {outside[0].where}."
        )
    captions: dict[tuple[str, str], JudgedCaption] = {}
    for one in ratings:
        key = one.image, " ".join(one.text.split())
        known = captions.get(key, JudgedCaption(*key, (), one.references))
        captions[key] = replace(known, ratings=(*known.ratings, one.value))
    judged = list(captions.values())
    if images is not None:
        judged, left_out = _match(judged, images, path, common=common)
        notes += left_out
    judged, changes = _without_own_references(judged, kind)
    if not judged:
        raise DataError(f"{path} has no ratings to compare scores with.")
    return Judgements(kind.name, tuple(judged), kind.tau, (*notes, *changes))


def _match(
    judged: Sequence[JudgedCaption], images: ScoredImages, path: Path, *, common: bool
) -> tuple[list[JudgedCaption], list[str]]:
    """The captions with ids and references of known images, and how many images are not known."""
    by_name = images_by_name(
        {image: [image, *([images.files[image]] if image in images.files else [])] for image in images.facts}
    )
    names = list(dict.fromkeys(one.image for one in judged))
    matched, _ = match_photos(map(Path, names), by_name)
    ids = {name: matched[Path(name)] for name in names if Path(name) in matched}
    unknown = [name for name in names if name not in ids]
    if unknown and not (common and ids):
        raise DataError(
            f"{len(unknown)} of {len(names)} judged images of {path} have no references: {summarise(unknown, 3)}; the "
            f"references are of {summarise(images.facts, 3)} (--split chooses others, --common leaves images out)."
        )
    known = [
        replace(one, image=ids[one.image], references=images.facts[ids[one.image]].references)
        for one in judged
        if one.image in ids
    ]
    return known, [f"{len(unknown)} judged images have no references and are left out."] if unknown else []


def judged_facts(judgements: Judgements, images: ScoredImages | None = None) -> dict[str, ImageFacts]:
    """What is known of the image of each judged caption, by the caption's id.

    Args:
        judgements: each caption with its references.
        images: what more is known of the images, such as their files.

    Raises:
        DataError: captions have no references.
    """
    bare = [one.image for one in judgements.captions if not one.references]
    if bare:
        raise DataError(
            f"{len(bare)} of {len(judgements.captions)} judged captions have no references, of image {bare[0]} first; "
            "name a file or a dataset that has them with --references."
        )
    known = {} if images is None else images.facts
    return {
        caption_id: replace(known.get(one.image, ImageFacts()), references=one.references)
        for caption_id, one in zip(caption_ids(judgements), judgements.captions, strict=True)
    }


def caption_ids(judgements: Judgements) -> list[str]:
    """An id for each caption: that of its image, and a number. In their order ids sort as the captions stand."""
    digits = len(str(len(judgements.captions)))
    return [f"{number:0{digits}} {one.image}" for number, one in enumerate(judgements.captions)]


def _without_own_references(judged: Sequence[JudgedCaption], kind: _Kind) -> tuple[list[JudgedCaption], list[str]]:
    """The captions as the papers score them, none of them a reference of its image, and what was changed."""
    if kind.captions_among_references == "keep":
        return list(judged), []
    if kind.captions_among_references == "leave out":
        kept = [one for one in judged if one.text not in (" ".join(text.split()) for text in one.references)]
        left_out = len(judged) - len(kept)
        return kept, [f"{left_out} captions that are references of their image are left out."] if left_out else []
    texts = defaultdict(set)
    for one in judged:
        texts[one.image].add(tuple(tokenize(one.text)))
    words = {text: tuple(tokenize(text)) for one in judged for text in one.references}
    others = [tuple(text for text in one.references if words[text] not in texts[one.image]) for one in judged]
    taken = {one.image for one, left in zip(judged, others, strict=True) if len(left) < len(one.references)}
    kept = [
        replace(one, references=left) for one, left in zip(judged, others, strict=True) if left or not one.references
    ]
    notes = [f"Judged captions are taken from the references of {len(taken)} images."] if taken else []
    if len(kept) < len(judged):
        notes.append(f"{len(judged) - len(kept)} captions of images that then have no reference are left out.")
    return kept, notes


# --- the forms ---


def _read(path: Path) -> tuple[_Kind, list[_Rating], list[str]]:
    if path.is_dir():
        tables = sorted(path.glob("*_correctness.csv"))
        if not tables:
            raise DataError(f"{path} is a folder without *_correctness.csv of Composite; judgements are {EXPECTED}.")
        parts = [_read_composite(table) for table in tables]
        return _COMPOSITE, [one for _, ratings, _ in parts for one in ratings], [n for _, _, ns in parts for n in ns]
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    if path.suffix.lower() in (".parquet", ".xlsx"):
        raise UsageError(f"{path} is no text; save it as CSV with the columns image, caption, rating and references.")
    if path.suffix.lower() == ".json":
        return _read_clipscore_json(path)
    header = first_line(path)
    if "Input.image_url" in header:
        return _read_composite(path)
    cells = header.split("\t")
    if len(cells) == 5 and "#" in cells[1]:
        return _read_flickr8k(path)
    return _read_table(path, header)


def _read_flickr8k(path: Path) -> tuple[_Kind, list[_Rating], list[str]]:
    """ExpertAnnotations.txt or CrowdFlowerAnnotations.txt."""
    rows: list[tuple[str, str, list[float]]] = []
    lines: dict[tuple[str, str], int] = {}
    for number, line in enumerate(read_text(path, "text").splitlines(), start=1):
        if not line.strip():
            continue
        cells = line.strip().split("\t")
        if len(cells) != 5 or not all(map(_is_number, cells[2:])):
            raise DataError(f"Line {number} of {path} is not an image, a caption id and three numbers parted by tabs.")
        key = (cells[0], cells[1])
        if key in lines:
            raise DataError(f"Lines {lines[key]} and {number} of {path} judge the same caption, {cells[1]}; keep one.")
        lines[key] = number
        rows.append((*key, [float(cell) for cell in cells[2:]]))
    is_share = [abs(share - yes / max(yes + no, 1)) < 1e-5 for _, _, (share, yes, no) in rows]
    kind = _CROWD if sum(is_share) > len(rows) / 2 else _EXPERT
    if kind is _CROWD and not all(is_share):
        image, caption, _ = rows[is_share.index(False)]
        raise DataError(
            f"Line {lines[image, caption]} of {path} has a share of yes that is not its yes over its yes and no."
        )
    captions, references = _read_tokens(path.with_name(TOKENS))
    unknown = [caption for _, caption, _ in rows if caption not in captions]
    if unknown:
        raise DataError(f"{len(unknown)} caption(s) of {path} are not in {TOKENS}: {summarise(unknown)}.")
    ratings = [
        _Rating(image, captions[caption], value, references.get(_stem(image), ()), f"line {lines[image, caption]}")
        for image, caption, values in rows
        for value in (values if kind is _EXPERT else values[:1])
    ]
    return kind, ratings, []


def _read_tokens(path: Path) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """The captions of Flickr8k by their ids, and those of each image."""
    if not path.is_file():
        raise DataError(f"The captions that are judged are in {TOKENS} of Flickr8k_text.zip, and there is no {path}.")
    captions: dict[str, str] = {}
    of_image: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(read_text(path, "text").splitlines(), start=1):
        caption_id, tab, text = line.partition("\t")
        if line.strip() and not tab:
            raise DataError(f"Line {number} of {path} is not a caption id and a caption parted by a tab.")
        if tab:
            image = _stem(caption_id.partition("#")[0])
            captions[caption_id] = text.strip()
            of_image[image] = (*of_image.get(image, ()), text.strip())
    return captions, of_image


def _stem(image: str) -> str:
    """A file name up to its first full stop: one image of Flickr8k is called ....jpg.1 in its captions."""
    return image.partition(".")[0]


def _read_clipscore_json(path: Path) -> tuple[_Kind, list[_Rating], list[str]]:
    """{image: {"ground_truth": [...], "human_judgement": [{"caption", "rating"}]}}."""
    content = read_json(path)
    ratings, missing = [], 0
    try:
        for name, record in content.items():
            image = PurePosixPath(record.get("image_path") or name).name
            references = record["ground_truth"]
            if not isinstance(references, list):
                raise TypeError("a text would be read letter by letter")
            for number, judgement in enumerate(record["human_judgement"]):
                value = float(judgement["rating"])
                if math.isnan(value):
                    missing += 1
                    continue
                where = f"judgement {number} of {name}"
                ratings.append(_Rating(image, judgement["caption"], value, tuple(references), where))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is not in CLIPScore's form of Flickr8k's judgements; judgements are {EXPECTED}."
        ) from error
    kind = _EXPERT if any(one.value > 1 for one in ratings) else _CROWD
    return kind, ratings, [f"{missing} ratings are no numbers and left out."] if missing else []


def _read_composite(path: Path) -> tuple[_Kind, list[_Rating], list[str]]:
    """A table of Mechanical Turk: several captions of an image in a row."""
    ratings, missing = [], 0
    for number, row in _rows(path, ";"):
        url = (row.get("Input.image_url") or "").strip()
        if not url:  # the last two rows are empty
            continue
        for index in range(1, 10):
            text, answer = row.get(f"Input.text{index}"), (row.get(f"Answer.Q{index}Answer") or "").strip()
            if not text:
                continue
            if not _is_number(answer):
                missing += 1
                continue
            ratings.append(_Rating(PurePosixPath(url).name, text, float(answer), (), f"line {number} of {path.name}"))
    return _COMPOSITE, ratings, [f"{missing} captions of {path.name} have no rating."] if missing else []


def _read_table(path: Path, header: str) -> tuple[_Kind, list[_Rating], list[str]]:
    """Polaris, or a table of one's own."""
    delimiter = max(",;\t", key=header.count)
    rows = list(_rows(path, delimiter))
    given = rows[0][1].keys() if rows else set(next(csv.reader([header], delimiter=delimiter), ()))
    columns = {meant: next((name for name in names if name in given), None) for meant, names in _COLUMNS.items()}
    missing = [meant for meant in ("image", "caption", "rating") if columns[meant] is None]
    if missing:
        raise DataError(f"{path} has no column {' and no column '.join(missing)}; judgements are {EXPECTED}.")
    ratings = []
    for number, row in rows:
        image, text, rating, references = (row.get(columns[meant] or "") or "" for meant in _COLUMNS)
        if not image or not _is_number(rating):
            raise DataError(f'Line {number} of {path} has no image or no number as rating: "{rating}".')
        where = f"line {number}"
        ratings.append(_Rating(image, text, float(rating), _as_list(references, f"Line {number} of {path}"), where))
    is_polaris = columns["caption"] in ("mt", "cand") and columns["references"] == "refs"
    if is_polaris and any(one.value > 1 for one in ratings):
        return _COMPOSITE, ratings, []  # as it is passed on in the columns of Polaris
    return _POLARIS if is_polaris else _TABLE, ratings, []


def _rows(path: Path, delimiter: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """The rows of a table with the number of the line on which each ends."""
    reader = csv.DictReader(StringIO(read_text(path, "CSV"), newline=""), delimiter=delimiter, restval="")
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as a table: {error} at line {reader.line_num}.") from error


def _as_list(text: str, where: str) -> tuple[str, ...]:
    """A list of texts in the notation of JSON or Python; none for an empty cell."""
    if not text.strip():
        return ()
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise DataError(f'{where} has references that are no list of texts, such as ["a dog", "the dog"].')
    return tuple(value)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
