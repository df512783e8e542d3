"""Predictions and references in the forms people have them, matched by image id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any

from showtell.errors import DataError, summarise
from showtell.scores.base import Corpus
from showtell.scores.facts import ImageFacts
from showtell.scores.model_settings import ScoreModels
from showtell.scores.ngrams import DocumentFrequency

# The keys and columns by which files name images and captions, the surest first.
IMAGE_KEYS = ("image_id", "image", "id", "img_id", "file_name", "filename")
CAPTION_KEYS = ("caption", "captions", "text", "answer", "pred", "prediction")

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
    bare = sorted(image for image, known in facts.items() if not known.references and known.objects is None)
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


def read_predictions(
    content: Predictions, source: str = "Predictions", *, keep_first: bool = False, bare_texts: bool = True
) -> dict[str, str]:
    """Image id to caption; entries that have an error in place of a caption are left out.

    Args:
        content: {id: text}, entries with an image and a caption or of {id: text}, or a list of texts.
        source: how messages name it.
        keep_first: of several captions of an image take the first.
        bare_texts: whether a list of texts is meant, whose ids are 0, 1, 2, ...

    Raises:
        DataError: an image has several captions, or an entry the wrong form; the message names it.
    """
    captions: dict[str, str] = {}
    repeated = set()
    for key, given in _entries(content, source, bare_texts):
        image, text = _checked(key, given, f"{source}: the caption")
        if image in captions:
            repeated.add(image)
        captions.setdefault(image, text)
    if repeated and not keep_first:
        raise DataError(
            f"{source}: {len(repeated)} image(s) are predicted more than once: {summarise(sorted(repeated))}; "
            "showtell score --keep-first scores the first caption of each."
        )
    return captions


def _entries(content: object, source: str, bare_texts: bool) -> Iterator[tuple[Any, Any]]:
    """Image and caption of each prediction, as they stand there."""
    if isinstance(content, Mapping):
        if isinstance(content.get("annotations"), list):
            raise DataError(
                f"{source}: these are COCO's captions, several for an image, which are references; give them with "
                "--references, and predictions as {id: text} or COCO results."
            )
        content = [content]
    if not isinstance(content, Sequence) or isinstance(content, str):
        raise DataError(f"{source}: {content!r:.60} is not {{id: text}}, COCO results or a list of texts.")
    for number, entry in enumerate(content):
        if not isinstance(entry, Mapping):
            if not bare_texts:
                raise DataError(
                    f"{source}: entry {number} is {entry!r:.60}, which does not say of which image it is; give {{id: "
                    'text}, or entries such as {"image_id": 42, "caption": "a dog"}.'
                )
            yield number, entry
            continue
        image = next((key for key in IMAGE_KEYS if key in entry), None)
        text = next((key for key in CAPTION_KEYS if key in entry), None)
        if image is not None and text is not None:
            yield entry[image], _first(entry[text])
        elif image is None and text is None:
            yield from ((key, _first(text)) for key, text in entry.items())
        elif "error" not in entry:
            known = IMAGE_KEYS if image is None else CAPTION_KEYS
            raise DataError(f"{source}: entry {number} has no {' or '.join(known)}: {dict(entry)!r:.80}.")


def _first(caption: Any) -> Any:
    """The text of a caption that stands alone in a list, or first among those of `showtell caption`."""
    if not isinstance(caption, list) or not caption:
        return caption
    first = caption[0]
    return first.get("text", caption) if isinstance(first, Mapping) else first if len(caption) == 1 else caption


def read_references(content: References, source: str = "References") -> dict[str, tuple[str, ...]]:
    """Image id to its captions; images of a COCO dictionary that have no caption are kept, with none.

    Raises:
        DataError: an entry has the wrong form; the message names it.
    """
    if not isinstance(content, Mapping | Sequence) or isinstance(content, str):
        raise DataError(
            f"{source}: {content!r:.60} is not {{id: [texts]}}, a COCO captions dictionary or a list of lists of texts."
        )
    references: dict[str, list[str]] = {}
    if isinstance(content, Mapping) and isinstance(content.get("annotations"), list):
        try:
            references = {str(image["id"]): [] for image in content.get("images", [])}
            for annotation in content["annotations"]:
                image, text = _checked(annotation["image_id"], annotation["caption"], f"{source}: an annotation")
                references.setdefault(image, []).append(text)
        except (KeyError, TypeError) as error:
            raise DataError(
                f'{source}: in a COCO captions dictionary each image has an "id" and each annotation an "image_id" and '
                f'a "caption"; one lacks {error}.'
            ) from error
    else:
        for key, texts in content.items() if isinstance(content, Mapping) else enumerate(content):
            if isinstance(texts, str) or not isinstance(texts, Sequence):
                raise DataError(f"{source}: those of image {key} are {texts!r:.60}, not a list of texts.")
            if odd := [text for text in texts if not isinstance(text, str)]:
                raise DataError(f"{source}: a reference of image {key} is {odd[0]!r:.60}, not a text.")
            references[str(key)] = list(texts)
    return {image: tuple(texts) for image, texts in references.items()}


def _checked(image: object, text: object, what: str) -> tuple[str, str]:
    """An image id as text, and a caption."""
    if not isinstance(image, str | Integral):
        raise DataError(f"{what} is of image {image!r:.60}; an image id is a text or a whole number.")
    if not isinstance(text, str):
        raise DataError(f"{what} of image {image} is {text!r:.60}, not a text.")
    return str(image), text
