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
    models: ScoreModels | None = None,
) -> Corpus:
    """Put each prediction beside the references of its image, in the order of the ids; see `score`.

    Raises:
        DataError: the two do not name the same images, an image is predicted twice or has no reference, or an
            entry has the wrong form; the message lists the ids.
    """
    predicted, facts = read_predictions(predictions), _read_facts(references)
    if not predicted:
        raise DataError("There are no predictions to score.")
    problems = {
        "image(s) have no prediction": facts.keys() - predicted.keys(),
        "prediction(s) are for unknown images": predicted.keys() - facts.keys(),
    }
    told = [f"{len(images)} {problem}: {summarise(sorted(images))}" for problem, images in problems.items() if images]
    if told:
        raise DataError(
            f"Predictions and references must name the same images; {'; '.join(told)}; showtell score --common scores "
            "those that both name."
        )
    bare = sorted(image for image in facts if not facts[image].references)
    if bare:
        raise DataError(f"{len(bare)} image(s) have no reference: {summarise(bare)}; each needs at least one.")
    ids = tuple(sorted(predicted))
    texts, known = tuple(predicted[image] for image in ids), tuple(facts[image] for image in ids)
    return Corpus(ids, texts, known, document_frequency, models)


def _read_facts(references: References) -> dict[str, ImageFacts]:
    """Image id to what is known of it: its references, or more where facts are given."""
    if isinstance(references, Mapping) and all(isinstance(facts, ImageFacts) for facts in references.values()):
        return {str(image): facts for image, facts in references.items()}
    return {image: ImageFacts(texts) for image, texts in read_references(references).items()}


def read_predictions(content: Predictions) -> dict[str, str]:
    """Image id to caption.

    Raises:
        DataError: a duplicate, or an entry of the wrong form; the message names it.
    """
    pairs: list[tuple[object, object]] = []
    if isinstance(content, Mapping):
        pairs += content.items()
    elif isinstance(content, Sequence) and not isinstance(content, str):
        for number, entry in enumerate(content):
            if not isinstance(entry, Mapping):
                pairs.append((number, entry))
            elif "image_id" in entry and "caption" in entry:
                pairs.append((entry["image_id"], entry["caption"]))
            else:
                raise DataError(f'Prediction number {number} has no "image_id" or no "caption": {dict(entry)!r:.80}.')
    else:
        raise DataError(f"Predictions are {{id: text}}, COCO results or a list of texts, not {content!r:.60}.")
    checked = [_checked(image, text, "A prediction") for image, text in pairs]
    twice = sorted(image for image, count in Counter(image for image, _ in checked).items() if count > 1)
    if twice:
        raise DataError(f"{len(twice)} image(s) are predicted more than once: {summarise(twice)}.")
    return dict(checked)


def read_references(content: References) -> dict[str, tuple[str, ...]]:
    """Image id to its captions; images of a COCO dictionary that have no caption are kept, with none.

    Raises:
        DataError: an entry has the wrong form; the message names it.
    """
    if not isinstance(content, Mapping | Sequence) or isinstance(content, str):
        raise DataError(
            f"References are {{id: [texts]}}, a COCO captions dictionary or a list of lists of texts, not "
            f"{content!r:.60}."
        )
    references: dict[str, list[str]] = {}
    if isinstance(content, Mapping) and isinstance(content.get("annotations"), list):
        try:
            references = {str(image["id"]): [] for image in content.get("images", [])}
            for annotation in content["annotations"]:
                image, text = _checked(annotation["image_id"], annotation["caption"], "An annotation")
                references.setdefault(image, []).append(text)
        except (KeyError, TypeError) as error:
            raise DataError(
                'In a COCO captions dictionary each image has an "id" and each annotation an "image_id" and a '
                f'"caption"; one lacks {error}.'
            ) from error
    else:
        for key, texts in content.items() if isinstance(content, Mapping) else enumerate(content):
            if isinstance(texts, str) or not isinstance(texts, Sequence):
                raise DataError(f"The references of image {key} are {texts!r:.60}, not a list of texts.")
            references[str(key)] = [_checked(key, text, "A reference")[1] for text in texts]
    return {image: tuple(texts) for image, texts in references.items()}


def _checked(image: object, text: object, what: str) -> tuple[str, str]:
    """An image id as text, and a caption."""
    if not isinstance(image, str | Integral):
        raise DataError(f"{what} is of image {image!r:.60}; an image id is a text or a whole number.")
    if not isinstance(text, str):
        raise DataError(f"{what} of image {image} is {text!r:.60}, not a text.")
    return str(image), text
