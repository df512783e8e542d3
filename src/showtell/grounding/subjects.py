"""Which photos are explained, what people know of them, and how explanations stand up to that.

Photos of a dataset bring their references, their boxes and, where they were drawn, their scenes; for others
`with_references` finds the same in a dataset or in a file of captions. `judge` then scores each caption, marks the
words that name an object which the photo does not show (CHAIR's words and rule, `scores/chair.py`), and puts the worst
first.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from torch import Tensor

from showtell.captioner import Captioner
from showtell.datasets import READERS, CaptionDataset, hub, read_dataset
from showtell.decoding import DecodingConfig
from showtell.errors import DataError, ImageError, summarise
from showtell.explanations.explanation import ExplainedBy, ExplainedCaption, Explanation, explain_photos
from showtell.files import read_json
from showtell.images.boxes import corners
from showtell.images.photo_files import find_photos, is_image_file
from showtell.scenes import Scene, read_scenes
from showtell.scores import (
    DocumentFrequency,
    ImageFacts,
    available_metrics,
    explained_numbers,
    metric_of,
    read_references,
    score,
)
from showtell.scores.chair import Phrases, mentions, phrases_of, there_in
from showtell.text.tokenizer import tokenize


@dataclass(frozen=True)
class Subject:
    """A photo to explain, and what is known of it."""

    path: Path
    references: tuple[str, ...] = ()  # captions by people
    objects: frozenset[str] | None = None  # kinds of objects that are annotated in it; None where nobody looked
    scene: Scene | None = None  # what was drawn
    boxes: Tensor | None = None  # (n, 4) that the dataset has, in pixels of the upright photo; None outside datasets


@dataclass(frozen=True)
class Subjects:
    """The photos to explain, and what is known of more than them."""

    photos: tuple[Subject, ...]
    references: tuple[tuple[str, ...], ...] = ()  # of all images of their datasets, which give CIDEr its weights
    categories: frozenset[str] = frozenset()  # all kinds of objects that are annotated there
    left_out: int = 0  # photos of datasets beyond the limit


def find_subjects(
    arguments: Sequence[str], split: str, limit: int | None = None, stdin: BinaryIO | None = None
) -> Subjects:
    """The photos that arguments name, each once, in their order.

    Args:
        arguments: datasets, in any form that `datasets/` reads; and photos, as `find_photos` takes them.
        split: of datasets.
        limit: at most so many photos of each dataset.
        stdin: what `-` stands for.

    Raises:
        DataError: a dataset without images or without that split, or a folder or a pattern without any photo.
    """
    found: dict[str, Subject] = {}
    references: list[tuple[str, ...]] = []
    categories: set[str] = set()
    left_out = 0
    for argument in arguments:
        if _is_dataset(argument):
            dataset = _dataset(Path(argument))
            wanted = {record.image_id for record in dataset.limited(limit).split(split)}
            known = replace(dataset, records=dataset.split(split))
            subjects = _subjects_of(known)
            chosen = [subjects[image_id] for image_id in subjects if image_id in wanted]
            left_out += len(subjects) - len(chosen)
            references += [subject.references for subject in subjects.values()]
            categories |= _categories(subjects.values())
        else:
            chosen = [Subject(path) for path in find_photos([argument], stdin)]
        for subject in chosen:
            found.setdefault(_place(subject.path), subject)
    return Subjects(tuple(found.values()), tuple(references), frozenset(categories), left_out)


def with_references(subjects: Subjects, path: Path) -> Subjects:
    """The same photos with what a dataset, or a JSON file of captions, knows of them.

    An image of a dataset is found by its path, or else by the name of its file. In JSON as `{id: [texts]}` the id is
    the path of the photo as it was given, its file's name, that without its suffix, or the number that this ends in.

    Raises:
        DataError: the file cannot be read, or knows none of the photos.
    """
    known: dict[str, Subject]
    if _is_dataset(str(path)):
        records = list(_subjects_of(_dataset(path)).values())
        known = {subject.path.name: subject for subject in records}
        known |= {_place(subject.path): subject for subject in records}
    else:
        texts = read_references(read_json(path))
        records = [Subject(Path(image), captions) for image, captions in texts.items()]
        known = {str(subject.path): subject for subject in records}
    photos = []
    for subject in subjects.photos:
        match = next((known[name] for name in _names(subject.path) if name in known), None)
        photos.append(subject if match is None else _informed(subject, match))
    if not any(subject.references for subject in photos):
        asked = summarise((subject.path.name for subject in photos), 3)
        raise DataError(
            f"{path} has captions of {summarise((one.path.name for one in records), 3)}, and of none of the photos "
            f"({asked}); give a dataset that holds them, or name them there by their files."
        )
    return replace(
        subjects,
        photos=tuple(photos),
        references=tuple(one.references for one in records),
        categories=subjects.categories | _categories(records),
    )


def explain_subjects(
    captioners: Mapping[str, Captioner],
    subjects: Subjects,
    settings: Mapping[str, DecodingConfig] | None = None,
    *,
    occlusion: str | None = None,
    batch_size: int = 32,
    progress: Callable[[int], None],
) -> tuple[list[Explanation], dict[Path, ImageError]]:
    """Explanations of the photos, judged; and what is wrong with those that are no images, by their paths.

    Args:
        captioners: by their titles, as of `explain_photos`, settings, occlusion and batch_size too.
        subjects: the photos, and what is known of them; boxes count where all have some.
        progress: called with the number of photos done since the last call.
    """
    paths = [subject.path for subject in subjects.photos]
    boxes = [subject.boxes for subject in subjects.photos if subject.boxes is not None]
    found: list[Explanation] = []
    failures: dict[Path, ImageError] = {}
    for path, one in explain_photos(
        captioners,
        paths,
        settings,
        boxes=boxes if len(boxes) == len(paths) else None,
        occlusion=occlusion,
        batch_size=batch_size,
    ):
        if isinstance(one, ImageError):
            failures[path] = one
        else:
            found.append(one)
        progress(1)
    return judge(found, subjects), failures


def judge(explanations: Sequence[Explanation], subjects: Subjects) -> list[Explanation]:
    """Explanations with references, scores and hallucinated objects, the worst caption of the first model first.

    Photos without references come last, in their order.

    Args:
        explanations: of some of the subjects.
        subjects: what is known of them.
    """
    of_image = {str(subject.path): subject for subject in subjects.photos}
    judged = [
        replace(one, references=of_image[one.image].references, by=tuple(_marked(one, of_image[one.image], subjects)))
        for one in explanations
    ]
    for model in range(len(judged[0].by) if judged else 0):
        scores = _scores(judged, model, of_image, subjects)
        judged = [_with_scores(one, model, scores.get(one.image, {})) for one in judged]
    return sorted(judged, key=lambda one: next(iter(one.by[0].scores.values()), math.inf))


def _is_dataset(argument: str) -> bool:
    path = Path(argument)
    if not path.exists():
        return hub.recognises(path)
    if path.is_file() and is_image_file(path.name):
        return False
    return any(reader.recognises(path) for reader in READERS.values())


def _dataset(path: Path) -> CaptionDataset:
    """A dataset, whose photos may be broken or missing: those are named one by one."""
    dataset = read_dataset(path)
    if not dataset.records:
        raise DataError(f"{path} has no images: {summarise(dataset.problems, 1)}")
    return dataset


def _subjects_of(dataset: CaptionDataset) -> dict[str, Subject]:
    """The images of a dataset by their ids."""
    scenes = read_scenes(dataset.root) if dataset.root.is_dir() else None
    found = {}
    for record in dataset.records:
        # the shapes of scenes are judged by truth, which knows their synonyms
        annotated = scenes is None and record.boxes is not None
        found[record.image_id] = Subject(
            record.path,
            record.captions,
            frozenset(box.category for box in record.boxes or ()) if annotated else None,
            scenes.get(record.image_id) if scenes is not None else None,
            corners(record.boxes),
        )
    return found


def _informed(subject: Subject, match: Subject) -> Subject:
    """A photo with its references from elsewhere, and whatever else is known there."""
    return replace(
        subject,
        references=match.references,
        objects=subject.objects if match.objects is None else match.objects,
        scene=subject.scene if match.scene is None else match.scene,
        boxes=subject.boxes if match.boxes is None else match.boxes,
    )


def _categories(subjects: Iterable[Subject]) -> frozenset[str]:
    return frozenset(category for subject in subjects for category in subject.objects or ())


def _place(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 (resolve() would follow links)


def _names(path: Path) -> list[str]:
    """What references may call a photo, the surest first."""
    number = re.search(r"[0-9]+$", path.stem)
    return [_place(path), str(path), path.name, path.stem, *([str(int(number.group()))] if number else [])]


def _marked(explanation: Explanation, subject: Subject, subjects: Subjects) -> Iterable[ExplainedBy]:
    """What the models say, with words marked that name what the photo does not show."""
    if subject.objects is None:
        return explanation.by
    names = phrases_of(set(subjects.categories))
    there = there_in(subject.objects, map(tokenize, subject.references), names)
    return [replace(by, captions=tuple(_mark(one, names, there) for one in by.captions)) for by in explanation.by]


def _mark(caption: ExplainedCaption, names: Phrases, there: set[str]) -> ExplainedCaption:
    words = list(caption.words)
    for mention in mentions([word.word for word in words], names):
        if mention.category not in there:
            for place in range(mention.first, mention.end):
                words[place] = replace(words[place], absent=mention.category)
    return replace(caption, words=tuple(words))


def _scores(
    explanations: Sequence[Explanation], model: int, of_image: Mapping[str, Subject], subjects: Subjects
) -> dict[str, dict[str, float]]:
    """The numbers of each image that has references, in the order in which they are shown."""
    texts = {one.image: one.by[model].caption.text for one in explanations if one.references}
    if not texts:
        return {}
    frequency = DocumentFrequency.of(
        ([tokenize(text) for text in captions] for captions in subjects.references), "references"
    )
    facts = {
        image: ImageFacts(of_image[image].references, of_image[image].objects, of_image[image].scene) for image in texts
    }
    shown_numbers = explained_numbers()
    metrics = available_metrics(map(metric_of, shown_numbers), facts.values(), frequency)
    report = score(texts, facts, metrics, document_frequency=frequency)
    found = {}
    for image, numbers in report.per_image.items():
        shown = ((name, numbers.get(name)) for name in shown_numbers)
        found[image] = {name: value for name, value in shown if value is not None}
    return found


def _with_scores(explanation: Explanation, model: int, scores: Mapping[str, float]) -> Explanation:
    by = list(explanation.by)
    by[model] = replace(by[model], scores=scores)
    return replace(explanation, by=tuple(by))
