"""All searches on one photo: captions, scores, diversity and time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from showtell.captioners import Captioner, PhotoToCaption
from showtell.captions import Caption
from showtell.decoding import DecodingConfig
from showtell.errors import UsageError
from showtell.scores.diagnostics import diversity

MEASURES = ("mbleu_4", "distinct_1", "distinct_2")  # of `scores.diagnostics.diversity` that a single photo has
REPEATS = 3  # runs of each search; their median time is reported
_PLAIN = {"length_normalisation": "none"}  # some captioners of transformers have another default
# Settings of each search by name; settings that all searches share come from the checkpoint or the caller.
PRESETS: dict[str, dict[str, Any]] = {
    "greedy": {"search": "greedy"},
    "beam 3": {"search": "beam", "num_beams": 3, "num_return_sequences": 3, **_PLAIN},
    "beam 5": {"search": "beam", "num_beams": 5, "num_return_sequences": 5, **_PLAIN},
    "beam 5, average": {
        "search": "beam", "num_beams": 5, "num_return_sequences": 5, "length_normalisation": "average",
    },
    "beam 5, wu": {"search": "beam", "num_beams": 5, "num_return_sequences": 5, "length_normalisation": "wu"},
    "beam 10": {"search": "beam", "num_beams": 10, "num_return_sequences": 5, **_PLAIN},
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
    """The captions of one search, with diversity and time."""

    name: str
    settings: DecodingConfig
    captions: tuple[Caption, ...]  # all different, the best first
    milliseconds: float  # of the search; without encoding, if the captioner encodes on its own
    words: float  # mean per caption
    diversity: dict[str, float] | None  # mbleu_4, distinct_1, distinct_2; None for a single caption

    def to_json(self) -> dict[str, Any]:
        """As `showtell compare-searches --json` writes it."""
        return {
            **asdict(self),
            "settings": self.settings.model_dump(mode="json"),
            "captions": [caption.to_json() for caption in self.captions],
        }


def compare_searches(captioner: Captioner, photo: PhotoToCaption, **decoding: Any) -> Iterator[SearchResult]:
    """Caption one photo by every search, one after the other. The photo is encoded once.

    Args:
        captioner: the model. Those of its settings that all searches share apply to each.
        photo: in any form that `Captioner.caption` takes.
        decoding: overrides of those: lengths and rules, and `seed` for sampling; `force_words` adds a beam search that
            requires them.

    Raises:
        ImageError: the photo cannot be read.
        UsageError: an unknown setting, a value out of range or of no effect, or a required word that is not known.
    """
    configs, _ = plan_searches(captioner, **decoding)
    encoded = captioner.encode_prepared([captioner.open_photo(photo)])
    captioner.caption_encoded(encoded, configs["greedy"])  # warm up
    for name, settings in configs.items():
        seconds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            (captions,) = captioner.caption_encoded(encoded, settings)
            seconds.append(time.perf_counter() - start)
        yield SearchResult(
            name,
            settings,
            tuple(captions),
            1000 * statistics.median(seconds),
            statistics.mean(len(caption.words) for caption in captions),
            _diversity([caption.text for caption in captions]),
        )


def plan_searches(captioner: Captioner, **decoding: Any) -> tuple[dict[str, DecodingConfig], dict[str, str]]:
    """The settings of each search by name, and why a captioner cannot run others.

    Args:
        captioner: the model.
        decoding: as of `compare_searches`.

    Raises:
        UsageError: no search can honour an override.
    """
    forced = decoding.pop("force_words", ())
    shared = captioner.settings(search="greedy")
    captioner.check(shared.changed(**decoding))
    configs: dict[str, DecodingConfig] = {}
    refused: dict[str, str] = {}
    for name, preset in PRESETS.items():
        settings = shared.changed(**preset, **decoding)
        try:
            configs[name] = captioner.check(settings)
        except UsageError as error:
            refused[name] = str(error)
    if forced:
        required = ", ".join((forced,) if isinstance(forced, str) else forced)
        settings = shared.changed(**PRESETS["beam 5"], **decoding, force_words=forced)
        configs[f"beam 5 with {required}"] = captioner.check(settings)
    return configs, refused


def _diversity(texts: list[str]) -> dict[str, float] | None:
    if len(texts) < 2:
        return None
    measures = diversity({"photo": texts})
    return {name: measures[name] for name in MEASURES}
