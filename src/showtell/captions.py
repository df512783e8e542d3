"""What a captioner gives of a photo: captions with their words and attention, and their form in JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from showtell.errors import ImageError


@dataclass(frozen=True)
class Word:
    """One word of a caption."""

    word: str
    logprob: float  # natural logarithm of its probability, given the image and the words before

    def __repr__(self) -> str:
        return f"Word({self.word!r}, logprob={self.logprob:.2f})"


@dataclass(frozen=True)
class Attention:
    """The attention of the words of a caption."""

    weights: Tensor  # (T, R) of each word on each region; every row sums to one
    boxes: Tensor | None  # (R, 4) left, top, right, bottom in pixels of the upright photo; None for features alone

    def __repr__(self) -> str:
        return f"Attention({self.weights.shape[0]} words over {self.weights.shape[1]} regions)"

    def to_json(self) -> dict[str, Any]:
        """As `showtell caption --attention` writes it: weights to 4 decimals, pixels to one."""
        boxes = None if self.boxes is None else [[round(edge, 1) for edge in box] for box in self.boxes.tolist()]
        return {
            "shape": list(self.weights.shape),
            "weights": [[round(weight, 4) for weight in word] for word in self.weights.tolist()],
            "boxes": boxes,
        }


@dataclass(frozen=True)
class Caption:
    """One caption of one image."""

    text: str
    logprob: float  # of the whole caption, its end included
    finished: bool  # false where the limit on the length cut it off
    words: tuple[Word, ...]
    score: float | None = None  # what a search ranked it by: logprob over the length penalty's divisor
    calibrated_confidence: float | None = None  # probability that it is good, where the captioner has a calibration
    attention: Attention | None = field(default=None, compare=False, repr=False)  # if it was asked for

    def __repr__(self) -> str:
        cut_off = "" if self.finished else ", finished=False"
        return f"Caption(text={self.text!r}, logprob={self.logprob:.2f}, confidence={self.confidence:.2f}{cut_off})"

    def __str__(self) -> str:
        return self.text

    @property
    def confidence(self) -> float:
        """The calibrated probability that it is good, 0 to 1; without a calibration the geometric mean of the
        probabilities of its words, end included."""
        if self.calibrated_confidence is not None:
            return self.calibrated_confidence
        return math.exp(self.logprob / max(1, len(self.words) + self.finished))

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Caption:
        """The caption that `to_json` wrote, without attention; where `calibrated` is missing, the confidence is."""
        words = tuple(Word(word["word"], word["logprob"]) for word in content["words"])
        confidence = content.get("confidence") if content.get("calibrated", True) else None
        return cls(content["text"], content["logprob"], content["finished"], words, content.get("score"), confidence)

    def to_json(self) -> dict[str, Any]:
        """As `showtell caption --format json` writes it."""
        return {
            "text": self.text,
            "logprob": self.logprob,
            "score": self.score,
            "confidence": self.confidence,
            "calibrated": self.calibrated_confidence is not None,
            "finished": self.finished,
            "words": [{"word": word.word, "logprob": word.logprob} for word in self.words],
            **({} if self.attention is None else {"attention": self.attention.to_json()}),
        }


CaptionResult = dict[str, Any]  # {"image": name, "captions": [...]}, or {"image": name, "error": sentence}


def caption_result(name: str, captions: list[Caption] | ImageError) -> CaptionResult:
    """The captions of a photo, or its error, as `showtell caption --format json` writes them."""
    if isinstance(captions, ImageError):
        return {"image": name, "error": str(captions)}
    return {"image": name, "captions": [caption.to_json() for caption in captions]}
