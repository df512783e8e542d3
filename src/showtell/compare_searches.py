"""All searches for one photo side by side: captions, scores, diversity and time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from showtell.captioner import Captioner, pixel_hash
from showtell.captions import Caption
from showtell.decoding import DecodingConfig
from showtell.images.loading import prepare_photo, stack_photos
from showtell.images.photo import PhotoSource
from showtell.scores.diagnostics import diversity

MEASURES = ("mbleu_4", "distinct_1", "distinct_2")  # of `scores.diagnostics.diversity`, those that one photo has
TIMES = 3  # each search runs so often; the median counts
# name: the settings of the search; those that all searches share are the checkpoint's or the caller's
PRESETS: dict[str, dict[str, Any]] = {
    "greedy": {"search": "greedy"},
    "beam 3": {"search": "beam", "num_beams": 3, "num_return_sequences": 3},
    "beam 5": {"search": "beam", "num_beams": 5, "num_return_sequences": 5},
    "beam 5, average": {
        "search": "beam", "num_beams": 5, "num_return_sequences": 5, "length_normalisation": "average",
    },
    "beam 5, wu": {"search": "beam", "num_beams": 5, "num_return_sequences": 5, "length_normalisation": "wu"},
    "beam 10": {"search": "beam", "num_beams": 10, "num_return_sequences": 5},
    "diverse beam 10 in 5": {
        "search": "diverse-beam", "num_beams": 10, "num_beam_groups": 5, "num_return_sequences": 5,
    },
    "sample at 0.5": {"search": "sample", "temperature": 0.5, "num_return_sequences": 5},
    "sample at 1": {"search": "sample", "num_return_sequences": 5},
    "sample of 10 words": {"search": "sample", "top_k": 10, "num_return_sequences": 5},
    "sample of 90%": {"search": "sample", "top_p": 0.9, "num_return_sequences": 5},
}  # fmt: skip


@dataclass(frozen=True)
class SearchResult:
    """What one search found."""

    name: str
    settings: DecodingConfig
    captions: tuple[Caption, ...]  # different ones, the best first
    milliseconds: float  # of the search alone, the photo being encoded
    words: float  # per caption, mean
    diversity: dict[str, float] | None  # mbleu_4, distinct_1, distinct_2; None for a single caption

    def to_json(self) -> dict[str, Any]:
        """As `showtell compare-searches --json` writes it."""
        return {
            **asdict(self),
            "settings": self.settings.model_dump(mode="json"),
            "captions": [caption.to_json() for caption in self.captions],
        }


def compare_searches(captioner: Captioner, photo: PhotoSource, **decoding: Any) -> Iterator[SearchResult]:
    """Search for captions of one photo in all ways, one trial after the other. The photo is encoded once.

    Args:
        captioner: the model. Of its own settings, those that all searches share hold in each trial.
        photo: in any form that `Captioner.caption` takes.
        decoding: changes to those: lengths and rules for all trials, `seed` for the samples; with `force_words` there
            is one more trial, a beam that has to say them.

    Raises:
        ImageError: it is no image.
        UsageError: an unknown setting, a value out of range or of no effect, or a required word that is not known.
    """
    forced = decoding.pop("force_words", ())
    ways = {name: {**way, **decoding} for name, way in PRESETS.items()}
    if forced:
        said = ", ".join((forced,) if isinstance(forced, str) else forced)
        ways[f"beam 5 with {said}"] = {**ways["beam 5"], "force_words": forced}
    plain = captioner.settings(search="greedy")  # only what all searches share
    chosen = {name: plain.changed(**way) for name, way in ways.items()}
    for settings in chosen.values():
        settings.rules(captioner.vocabulary)  # a required word that is not known, before anything is searched
    prepared = prepare_photo(photo, captioner.encoder.preprocessing)
    ids = [pixel_hash(prepared.pixels)]  # the samples are those of `Captioner.caption`
    features = captioner.encode(stack_photos([prepared]))
    captioner.caption_features(features, chosen["greedy"])  # once, to warm up
    for name, settings in chosen.items():
        seconds = []
        for _ in range(TIMES):
            began = time.perf_counter()
            (captions,) = captioner.caption_features(features, settings, image_ids=ids)
            seconds.append(time.perf_counter() - began)
        yield SearchResult(
            name,
            settings,
            tuple(captions),
            1000 * statistics.median(seconds),
            statistics.mean(len(caption.words) for caption in captions),
            _diversity([caption.text for caption in captions]),
        )


def _diversity(texts: list[str]) -> dict[str, float] | None:
    if len(texts) < 2:
        return None
    found = diversity({"photo": texts})
    return {name: found[name] for name in MEASURES}
