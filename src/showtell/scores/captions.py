"""Predictions and references in the forms people have them, matched by image id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from showtell.errors import DataError, summarise
from showtell.scores.base import Corpus
from showtell.scores.facts import ImageFacts
from showtell.scores.ngrams import DocumentFrequency

Predictions = Mapping[Any, str] | Sequence[Mapping[str, Any]] | Sequence[str]
References = Mapping[Any, Any] | Sequence[Sequence[str]]


def match(
    predictions: Predictions, references: References, document_frequency: DocumentFrequency | None = None
) -> Corpus:
    """Put each prediction beside the references of its image, in the order of the ids.

    Args:
        predictions: `{id: text}`, COCO results `[{"image_id": ..., "caption": ...}]`, or a list of texts.
        references: `{id: [texts]}`, `{id: ImageFacts}`, a COCO captions dictionary, or a list of lists of texts.
        document_frequency: weights for CIDEr from other captions than the references.

    Raises:
        DataError: the two do not name the same images, an image is predicted twice or has no reference, or an
            entry has the wrong form; the message lists the ids.
    """
    predicted, facts = read_predictions(predictions), _read_facts(references)
    if not predicted:
        raise DataError("There are no predictions to score.")
    missing, surplus = facts.keys() - predicted.keys(), predicted.keys() - facts.keys()
    if missing or surplus:
        parts = []
        if missing:
            parts.append(f"{len(missing)} image(s) have no prediction: {summarise(sorted(missing))}")
        if surplus:
            parts.append(f"{len(surplus)} prediction(s) are for unknown images: {summarise(sorted(surplus))}")
        raise DataError(f"Predictions and references must name the same images; {'; '.join(parts)}.")
    bare = sorted(image for image in facts if not facts[image].references)
    if bare:
        raise DataError(f"{len(bare)} image(s) have no reference: {summarise(bare)}; each needs at least one.")
    ids = tuple(sorted(predicted))
    return Corpus(
        ids=ids,
        predictions=tuple(predicted[image] for image in ids),
        facts=tuple(facts[image] for image in ids),
        document_frequency=document_frequency,
    )


def _read_facts(references: References) -> dict[str, ImageFacts]:
    """Image id to what is known of it: its references, or more where facts are given."""
    if isinstance(references, Mapping) and any(isinstance(facts, ImageFacts) for facts in references.values()):
        other = [image for image, facts in references.items() if not isinstance(facts, ImageFacts)]
        if other:
            raise DataError(f"References are ImageFacts for some images and not for {summarise(other)}; give one form.")
        return {str(image): facts for image, facts in references.items()}
    return {image: ImageFacts(texts) for image, texts in read_references(references).items()}


def read_predictions(given: Predictions) -> dict[str, str]:
    """Image id to caption.

    Raises:
        DataError: a duplicate, or an entry of the wrong form; the message names it.
    """
    if isinstance(given, Mapping):
        pairs = [(str(image), text) for image, text in given.items()]
    elif isinstance(given, Sequence) and not isinstance(given, str):
        pairs = [_prediction(place, entry) for place, entry in enumerate(given)]
    else:
        raise DataError(f"Predictions are {{id: text}}, a list of COCO results or a list of texts, not {_kind(given)}.")
    _refuse_duplicates((image for image, _ in pairs), "are predicted more than once")
    for image, text in pairs:
        if not isinstance(text, str):
            raise DataError(f"The prediction of image {image} is {_kind(text)}, not a text.")
    return dict(pairs)


def read_references(given: References) -> dict[str, tuple[str, ...]]:
    """Image id to its captions.

    Raises:
        DataError: an entry has the wrong form; the message names it.
    """
    if isinstance(given, Mapping) and isinstance(given.get("annotations"), list):
        return _coco_references(given)
    if isinstance(given, Mapping):
        pairs: Iterable[tuple[Any, Any]] = given.items()
    elif isinstance(given, Sequence) and not isinstance(given, str):
        pairs = enumerate(given)
    else:
        raise DataError(
            "References are {id: [texts]}, a COCO captions dictionary or a list of lists of texts, "
            f"not {_kind(given)}."
        )
    found: dict[str, tuple[str, ...]] = {}
    duplicates = []
    for image, texts in pairs:
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise DataError(f"The references of image {image} are {_kind(texts)}, not a list of texts.")
        wrong = [text for text in texts if not isinstance(text, str)]
        if wrong:
            raise DataError(f"A reference of image {image} is {_kind(wrong[0])}, not a text.")
        if str(image) in found:
            duplicates.append(str(image))
        found[str(image)] = tuple(texts)
    _refuse_duplicates([*duplicates, *duplicates], "have references under two ids that read the same")
    return found


def _coco_references(given: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """From a COCO captions dictionary; images that are listed without a caption are kept, with none."""
    found: dict[str, list[str]] = {}
    try:
        for image in given.get("images", []):
            found[str(image["id"])] = []
        for annotation in given["annotations"]:
            found.setdefault(str(annotation["image_id"]), []).append(annotation["caption"])
    except (KeyError, TypeError) as error:
        raise DataError(
            'In a COCO captions dictionary each image has an "id" and each annotation an "image_id" and a '
            f'"caption"; one lacks {error}.'
        ) from error
    for image, texts in found.items():
        if not all(isinstance(text, str) for text in texts):
            raise DataError(f"A caption of image {image} is not a text.")
    return {image: tuple(texts) for image, texts in found.items()}


def _prediction(place: int, entry: object) -> tuple[str, Any]:
    """Image id and caption of an entry in a list of predictions."""
    if isinstance(entry, Mapping):
        if "image_id" not in entry or "caption" not in entry:
            raise DataError(f'Prediction number {place} has no "image_id" or no "caption": {dict(entry)!r:.80}.')
        return str(entry["image_id"]), entry["caption"]
    return str(place), entry


def _refuse_duplicates(ids: Iterable[str], what: str) -> None:
    """Raise if an id occurs twice."""
    twice = sorted(image for image, count in Counter(ids).items() if count > 1)
    if twice:
        raise DataError(f"{len(twice)} image(s) {what}: {summarise(twice)}.")


def _kind(value: object) -> str:
    """What a value is, in the words of JSON."""
    names = {str: "a text", list: "a list", dict: "a dictionary", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), f"a {type(value).__name__}")
