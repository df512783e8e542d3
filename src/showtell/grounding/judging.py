"""Explanations judged by what is known of their photos: scores, hallucinated objects, and the worst caption first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from showtell import scores as scoring
from showtell.captioners import Captioner
from showtell.captioners.photos import display_name, explain_photos
from showtell.captions import Explanation
from showtell.decoding import DecodingConfig
from showtell.errors import ImageError
from showtell.explanations.photo_set import PhotoSet
from showtell.features.store import StoredImage
from showtell.grounding.mentions import mark_hallucinations
from showtell.text.tokenizer import tokenize


def explain_and_judge(
    captioners: Mapping[str, Captioner],
    photo_set: PhotoSet,
    settings: Mapping[str, DecodingConfig] | None = None,
    *,
    saliency: str | None = None,
    batch_size: int = 32,
    progress: Callable[[int], None],
) -> tuple[list[Explanation], dict[Path | StoredImage, ImageError]]:
    """The photos' explanations, judged, and the errors of unreadable photos; `progress(1)` is called for each photo."""
    sources = [photo.source for photo in photo_set.photos]
    explanations: list[Explanation] = []
    failures: dict[Path | StoredImage, ImageError] = {}
    for source, result in explain_photos(captioners, sources, settings, saliency=saliency, batch_size=batch_size):
        if isinstance(result, ImageError):
            failures[source] = result
        else:
            explanations.append(result)
        progress(1)
    return judge(explanations, photo_set), failures


def judge(explanations: Sequence[Explanation], photo_set: PhotoSet) -> list[Explanation]:
    """Add references, scores and hallucinated objects; the first model's worst captions first, unscored photos last."""
    facts = {display_name(photo.source): photo.facts for photo in photo_set.photos}
    judged = []
    for explanation in explanations:
        known = facts[explanation.image]
        judged.append(mark_hallucinations(replace(explanation, references=known.references), known))
    scores = [_scores(judged, model, facts, photo_set) for model in range(len(judged[0].models) if judged else 0)]
    for index, photo in enumerate(judged):
        pairs = zip(photo.models, scores, strict=True)
        models = tuple(replace(model, scores=own.get(photo.image, {})) for model, own in pairs)
        judged[index] = replace(photo, models=models)
    return sorted(judged, key=lambda photo: next(iter(photo.models[0].scores.values()), math.inf))


def _scores(
    explanations: Sequence[Explanation], model: int, facts: Mapping[str, scoring.ImageFacts], photo_set: PhotoSet
) -> dict[str, dict[str, float]]:
    """The numbers of each image that has references, in the order in which they are shown."""
    texts = {photo.image: photo.models[model].caption.text for photo in explanations if photo.references}
    if not texts:
        return {}
    words = (map(tokenize, captions) for captions in photo_set.references)
    frequency = scoring.DocumentFrequency.of(words, "references")
    numbers = scoring.explained_numbers()
    known = {image: facts[image] for image in texts}
    metrics = scoring.available_metrics(map(scoring.metric_of, numbers), known.values(), frequency)
    report = scoring.score(texts, known, metrics, document_frequency=frequency)
    return {
        image: {name: value for name in numbers if (value := values.get(name)) is not None}
        for image, values in report.per_image.items()
    }
