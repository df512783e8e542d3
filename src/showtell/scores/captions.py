"""Predictions and references in the forms people have them, matched by image id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from showtell.errors import DataError, summarise
from showtell.scores.base import Corpus
from showtell.scores.facts import ImageFacts
from showtell.scores.model_settings import ScoreModels
from showtell.scores.ngrams import DocumentFrequency

Predictions = Mapping[Any, str] | Sequence[Mapping[str, Any]] | Sequence[str]
References = Mapping[Any, Any] | Sequence[Sequence[str]]


def match(
    predictions: Predictions,
    references: References,
    document_frequency: DocumentFrequency | None = None,
    *,
    as_lines: bool = False,
    models: ScoreModels | None = None,
) -> Corpus:
    """Put each prediction beside the references of its image, in the order of the ids.

    Args:
        predictions: `{id: text}`, COCO results `[{"image_id": ..., "caption": ...}]`, or a list of texts.
        references: `{id: [texts]}`, `{id: ImageFacts}`, a COCO captions dictionary, or a list of lists of texts.
        document_frequency: weights for CIDEr from other captions than the references.
        as_lines: tokenize captions as the lines of one file, and keep the images in the order of the references.
        models: those of learned scores.

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
        raise DataError(
            f"Predictions and references must name the same images; {'; '.join(parts)}; showtell score --common scores "
            "those that both name."
        )
    bare = sorted(image for image in facts if not facts[image].references)
    if bare:
        raise DataError(f"{len(bare)} image(s) have no reference: {summarise(bare)}; each needs at least one.")
    ids = tuple(facts if as_lines else sorted(predicted))
    return Corpus(
        ids=ids,
        predictions=tuple(predicted[image] for image in ids),
        facts=tuple(facts[image] for image in ids),
        document_frequency=document_frequency,
        as_lines=as_lines,
        models=models,
    )


def _read_facts(references: References) -> dict[str, ImageFacts]:
    """Image id to what is known of it: its references, or more where facts are given."""
    if isinstance(references, Mapping) and any(isinstance(facts, ImageFacts) for facts in references.values()):
        other = [image for image, facts in references.items() if not isinstance(facts, ImageFacts)]
        if other:
            raise DataError(f"References are ImageFacts for some images and not for {summarise(other)}; give one form.")
        return {str(image): facts for image, facts in references.items()}
    return {image: ImageFacts(texts) for image, texts in read_references(references).items()}


def read_predictions(content: Predictions) -> dict[str, str]:
    """Image id to caption.

    Raises:
        DataError: a duplicate, or an entry of the wrong form; the message names it.
    """
    if isinstance(content, Mapping):
        pairs = [(_image_id(image, "The id of a prediction"), text) for image, text in content.items()]
    elif isinstance(content, Sequence) and not isinstance(content, str):
        pairs = [_prediction(index, entry) for index, entry in enumerate(content)]
    else:
        raise DataError(
            f"Predictions are {{id: text}}, a list of COCO results or a list of texts, not {_describe_type(content)}."
        )
    twice = sorted(image for image, count in Counter(image for image, _ in pairs).items() if count > 1)
    if twice:
        raise DataError(f"{len(twice)} image(s) are predicted more than once: {summarise(twice)}.")
    return {image: _text(text, f"The prediction of image {image}") for image, text in pairs}


def read_references(content: References) -> dict[str, tuple[str, ...]]:
    """Image id to its captions.

    Raises:
        DataError: an entry has the wrong form; the message names it.
    """
    if isinstance(content, Mapping) and isinstance(content.get("annotations"), list):
        return _coco_references(content)
    if not isinstance(content, Mapping | Sequence) or isinstance(content, str):
        raise DataError(
            "References are {id: [texts]}, a COCO captions dictionary or a list of lists of texts, "
            f"not {_describe_type(content)}."
        )
    references: dict[str, tuple[str, ...]] = {}
    for key, texts in content.items() if isinstance(content, Mapping) else enumerate(content):
        image = _image_id(key, "The id of references")
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise DataError(f"The references of image {image} are {_describe_type(texts)}, not a list of texts.")
        references[image] = tuple(_text(text, f"A reference of image {image}") for text in texts)
    return references


def _coco_references(content: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """From a COCO captions dictionary; images that are listed without a caption are kept, with none."""
    references: dict[str, list[str]] = {}
    try:
        for image in content.get("images", []):
            references[_image_id(image["id"], "The id of an image")] = []
        for annotation in content["annotations"]:
            image, text = _image_id(annotation["image_id"], "The image_id of an annotation"), annotation["caption"]
            references.setdefault(image, []).append(_text(text, f"A caption of image {image}"))
    except (KeyError, TypeError) as error:
        raise DataError(
            'In a COCO captions dictionary each image has an "id" and each annotation an "image_id" and a '
            f'"caption"; one lacks {error}.'
        ) from error
    return {image: tuple(texts) for image, texts in references.items()}


def _prediction(index: int, entry: object) -> tuple[str, Any]:
    """Image id and caption of an entry in a list of predictions."""
    if isinstance(entry, Mapping):
        if "image_id" not in entry or "caption" not in entry:
            raise DataError(f'Prediction number {index} has no "image_id" or no "caption": {dict(entry)!r:.80}.')
        return _image_id(entry["image_id"], f"The image_id of prediction number {index}"), entry["caption"]
    return str(index), entry


def _image_id(value: object, what: str) -> str:
    """An image id as text."""
    if not isinstance(value, str | Integral):
        raise DataError(f"{what} is {_describe_type(value)}, not a text or a whole number.")
    return str(value)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{what} is {_describe_type(value)}, not a text.")
    return value


def _describe_type(value: object) -> str:
    """The type of a value, in the words of JSON."""
    names = {str: "a text", list: "a list", dict: "a dictionary", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), f"a {type(value).__name__}")
