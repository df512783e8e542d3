"""Predictions and references in the forms people have them, matched by image id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from showtell.errors import DataError, summarise
from showtell.scores.base import Corpus
from showtell.scores.facts import ImageFacts
from showtell.scores.ngrams import DocumentFrequency
from showtell.text.caption_columns import CAPTION, ID, IMAGE, Columns, captions_in, is_left_out

if TYPE_CHECKING:
    from showtell.scores.encoders import ClipEncoder

Predictions = Mapping[Any, str] | Sequence[Mapping[str, Any]] | Sequence[str]
References = Mapping[Any, Any] | Sequence[Sequence[str]] | Sequence[Mapping[str, Any]]
MAX_CHARACTERS = 50_000  # of a caption; METEOR takes a minute of longer ones
_MANY = 100  # an entry with so many keys is {id: text}


def match(
    predictions: Predictions,
    references: References,
    document_frequency: DocumentFrequency | None = None,
    clip: ClipEncoder | None = None,
) -> Corpus:
    """Put each prediction beside the references of its image, sorted by id; a DataError lists images without either."""
    predicted, facts = read_predictions(predictions), _read_facts(references)
    if not predicted:
        raise DataError("There are no predictions to score.")
    problems = {
        "image(s) have no prediction": facts.keys() - predicted.keys(),
        "prediction(s) are for unknown images": predicted.keys() - facts.keys(),
    }
    parts = [f"{len(images)} {problem}: {summarise(sorted(images))}" for problem, images in problems.items() if images]
    if parts:
        raise DataError(
            f"Predictions and references must name the same images; {'; '.join(parts)}; showtell score --common scores "
            "those that both name."
        )
    every = ((image, text) for image in facts for text in (predicted[image], *facts[image].references))
    if too_long := next(((image, len(text)) for image, text in every if len(text) > MAX_CHARACTERS), None):
        raise DataError(
            f"A text of image {too_long[0]} has {too_long[1]:,} characters; captions and references have "
            f"{MAX_CHARACTERS:,} at most."
        )
    bare = sorted(image for image, known in facts.items() if not known.references and known.objects is None)
    if bare:
        raise DataError(f"{len(bare)} image(s) have no reference: {summarise(bare)}; each needs at least one.")
    ids = tuple(sorted(predicted))
    texts, known = tuple(predicted[image] for image in ids), tuple(facts[image] for image in ids)
    return Corpus(ids, texts, known, document_frequency, clip)


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
        if isinstance(given, list) and given and isinstance(given[0], Mapping):
            given = given[0]  # the likeliest of what `showtell caption` writes
        image, texts = _checked(key, given, f"{source}: the caption")
        if image in captions or len(texts) > 1:
            repeated.add(image)
        captions.setdefault(image, texts[0])
    if repeated and not keep_first:
        raise DataError(
            f"{source}: {len(repeated)} image(s) are predicted more than once: {summarise(sorted(repeated))}; "
            "showtell score --keep-first scores the first caption of each."
        )
    return captions


def _entries(content: object, source: str, bare_texts: bool) -> Iterator[tuple[Any, Any]]:
    """Image and caption of each prediction, as the content has them, not yet checked."""
    if isinstance(content, Mapping):
        if isinstance(content.get("annotations"), list):
            raise DataError(
                f"{source}: these are COCO's captions, several for an image, which are references; give them with "
                "--references, and predictions as {id: text} or COCO results."
            )
        content = [content]  # {id: text} is a single entry that names all images
    if not isinstance(content, Sequence) or isinstance(content, str):
        raise DataError(f"{source}: {content!r:.60} is not {{id: text}}, COCO results or a list of texts.")
    for number, entry in enumerate(content):
        if isinstance(entry, Mapping):
            yield from _entry(number, entry, source)
        elif bare_texts:
            yield number, entry
        else:
            raise DataError(
                f"{source}: entry {number} is {entry!r:.60}, which does not say of which image it is; give {{id: "
                'text}, or entries such as {"image_id": 42, "caption": "a dog"}.'
            )


def _entry(number: int, entry: Mapping[Any, Any], source: str) -> Iterator[tuple[Any, Any]]:
    """Image and captions of an entry: of each of its images, if it is {id: text}; nothing, if it holds an error."""
    keys = tuple(map(str, entry)) if len(entry) < _MANY else ()
    columns, values = Columns.of(keys, predicted=True), list(entry.values())
    if columns is not None and ("error" not in entry or any(values[at] for at in columns.captions)):
        # Of several columns of captions those that are filled; a single one is checked even if it is empty.
        captions = [values[at] for at in columns.captions if values[at] is not None or len(columns.captions) == 1]
        yield values[columns.image], captions[0] if len(captions) == 1 else captions
        return
    # It has an image if a caption is all that it lacks, and the other way round.
    has_image, has_caption = (Columns.of((*keys, key), predicted=True) for key in ("caption", "image"))
    if not has_image and not has_caption:
        yield from entry.items()
    elif "error" not in entry:
        missing, known = ("caption", CAPTION) if has_image else ("image", (*ID, *IMAGE))
        raise DataError(f"{source}: entry {number} has no {missing} ({', '.join(known)}): {dict(entry)!r:.80}.")


def read_references(content: References, source: str = "References") -> dict[str, tuple[str, ...]]:
    """Image id to its captions; images of a COCO dictionary that have no caption are kept, with none.

    Captions that VizWiz marks as rejected or ready-made are left out, and images without any other.

    Args:
        content: {id: [texts]}, COCO's captions, entries of an image and a caption or several, grouped by image, or a
            list of lists of texts, whose ids are 0, 1, 2, ...
        source: how messages name it.

    Raises:
        DataError: an entry has the wrong form; the message names it.
    """
    if not isinstance(content, Mapping | Sequence) or isinstance(content, str):
        raise DataError(
            f"{source}: {content!r:.60} is not {{id: [texts]}}, a COCO captions dictionary or a list of lists of texts."
        )
    references: dict[str, list[str]] = {}
    skipped = set()
    if isinstance(content, Mapping) and isinstance(content.get("annotations"), list):
        try:
            references = {str(image["id"]): [] for image in content.get("images", [])}
            for annotation in content["annotations"]:
                image, texts = _checked(annotation["image_id"], annotation["caption"], f"{source}: an annotation")
                if is_left_out(annotation):
                    skipped.add(image)
                else:
                    references.setdefault(image, []).extend(texts)
        except (KeyError, TypeError) as error:
            raise DataError(
                f'{source}: in a COCO captions dictionary each image has an "id" and each annotation an "image_id" and '
                f'a "caption"; one lacks {error}.'
            ) from error
    elif isinstance(content, Sequence) and any(isinstance(entry, Mapping) for entry in content):
        for key, given in _entries(content, source, bare_texts=False):
            image, texts = _checked(key, given, f"{source}: a reference")
            references.setdefault(image, []).extend(texts)
    else:
        for key, given in content.items() if isinstance(content, Mapping) else enumerate(content):
            if isinstance(given, str) or not isinstance(given, Sequence):
                raise DataError(f"{source}: those of image {key} are {given!r:.60}, not a list of texts.")
            references[str(key)] = _checked(str(key), list(given), f"{source}: a reference")[1] if given else []
    return {image: tuple(texts) for image, texts in references.items() if texts or image not in skipped}


def _checked(image: object, given: object, what: str) -> tuple[str, list[str]]:
    """An image id as text, and at least one caption."""
    if not isinstance(image, str | Integral):
        raise DataError(f"{what} is of image {image!r:.60}; an image id is a text or a whole number.")
    texts = captions_in(given)
    if not texts:
        raise DataError(f"{what} of image {image} is {given!r:.60}, not a text.")
    return str(image), texts
