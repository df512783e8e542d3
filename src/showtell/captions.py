"""What a captioner gives of a photo: captions with their words and attention, explanations, and their JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from PIL import Image
from torch import Tensor

from showtell.errors import CheckpointError, ImageError, NoCaptionError
from showtell.text.endings import is_degenerate
from showtell.text.objects import keywords

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOUBTFUL = 1 / 3  # chance of being good below which a caption is marked: likelier bad than good by two to one
UNLIKELY, UNFAMILIAR = "probably wrong", "unlike the photos it knows"  # the two doubts
# Chance of being good below which a caption is gibberish to its own captioner: half of the least of 450 validation
# photos of `small` (0.043). Without a calibration likelihood tells nothing: words of pages of print are as likely.
GIBBERISH = 0.02


@dataclass(frozen=True)
class Word:
    """One word of a caption."""

    word: str
    logprob: float  # natural logarithm of its probability, given the image and the words before


@dataclass(frozen=True)
class Token:
    """A token of a model whose vocabulary is not made of words."""

    id: int  # in the model's vocabulary; -1: a server did not tell
    token: str
    logprob: float  # natural logarithm of its probability, given the image and the tokens before


@dataclass(frozen=True)
class TextLogprobs:
    """The log-probabilities of a given text as a caption of a photo."""

    text: str
    words: tuple[Word, ...]  # of the text; one that the model does not know has the log-probability of `<unknown>`
    end: float  # log-probability of the end token after the last word
    tokens: tuple[Token, ...] = ()  # where the model's tokens are not words: a word has the sum of its tokens

    def __post_init__(self) -> None:
        _require_number(self.logprob)

    @property
    def logprob(self) -> float:
        """The log-probability of the whole text, its end included."""
        return sum(word.logprob for word in self.words) + self.end

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        words, tokens = [asdict(word) for word in self.words], [asdict(token) for token in self.tokens]
        content = {"text": self.text, "logprob": self.logprob, "words": words, "end": self.end}
        return {**content, "tokens": tokens} if tokens else content


@dataclass(frozen=True)
class Attention:
    """The attention of the words of a caption."""

    weights: Tensor  # (T, R) of each word on each region; a row sums to at most one
    boxes: Tensor | None  # (R, 4) left, top, right, bottom in pixels of the upright photo; None for features alone

    def __repr__(self) -> str:
        return f"Attention({self.weights.shape[0]} words over {self.weights.shape[1]} regions)"

    def to_json(self) -> dict[str, Any]:
        """As JSON has it: weights to 4 decimals, pixels to one."""
        boxes = None if self.boxes is None else [_rounded(box, 1) for box in self.boxes]
        weights = [_rounded(word, 4) for word in self.weights]
        return {"shape": list(self.weights.shape), "weights": weights, "boxes": boxes}


@dataclass(frozen=True)
class Caption:
    """One caption of one image."""

    text: str
    logprob: float | None  # of the whole caption, its end included; None: a server did not tell
    finished: bool  # false where the limit on the length cut it off
    words: tuple[Word, ...]
    score: float | None = None  # what a search ranked it by: logprob over the length penalty's divisor
    calibrated_confidence: float | None = None  # probability that it is good, where the captioner has a calibration
    is_familiar: bool = True  # false where a calibration says that the photo is unlike those the captioner knows
    attention: Attention | None = field(default=None, compare=False, repr=False)  # if it was asked for
    tokens: tuple[Token, ...] = field(default=(), repr=False)  # without the end, where the model's tokens are not words
    writer: Literal["captioner", "person"] = "captioner"

    def __post_init__(self) -> None:
        _require_number(self.logprob)

    def __repr__(self) -> str:
        cut_off = "" if self.finished else ", finished=False"
        sure = "" if self.logprob is None else f", logprob={self.logprob:.2f}, confidence={self.confidence:.2f}"
        doubt = f", doubt={self.doubt!r}" if self.doubt else ""
        return f"Caption(text={self.text!r}{sure}{doubt}{cut_off})"

    def __str__(self) -> str:
        return self.text

    @property
    def confidence(self) -> float | None:
        """The calibrated probability that it is good, 0 to 1; without a calibration the geometric mean of the
        probabilities of its tokens, which are words or pieces of words, end included; None if these are not known."""
        if self.calibrated_confidence is not None or self.logprob is None:
            return self.calibrated_confidence
        return math.exp(self.logprob / max(1, len(self.tokens or self.words) + self.finished))

    @property
    def doubt(self) -> str | None:
        """Why a calibrated captioner would not rely on it, in words; None if it would, or is not calibrated."""
        if not self.is_familiar:
            return UNFAMILIAR
        return UNLIKELY if self.calibrated_confidence is not None and self.calibrated_confidence < DOUBTFUL else None

    def is_accepted(self, least: float | None = None) -> bool:
        """Whether it may be used unseen: by a person, of at least this confidence, or by default without a doubt."""
        if self.writer == "person":
            return True
        return self.doubt is None if least is None else (self.confidence or 0.0) >= least

    @property
    def keywords(self) -> list[str]:
        """The things that it names; see `text.objects.keywords`."""
        return keywords(self.text)

    @classmethod
    def of_person(cls, text: str) -> Caption:
        """A caption that a person wrote or accepted; nothing is known of its words."""
        return cls(text, None, True, (), writer="person")

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Caption:
        """The caption that `to_json` wrote, without attention; where `calibrated` is missing, the confidence is."""
        words = tuple(Word(word["word"], word["logprob"]) for word in content["words"])
        tokens = tuple(Token(**token) for token in content.get("tokens", ()))
        confidence = content.get("confidence") if content.get("calibrated", True) else None
        return cls(
            content["text"], content["logprob"], content["finished"], words, content.get("score"), confidence,
            is_familiar=content.get("doubt") != UNFAMILIAR, tokens=tokens, writer=content.get("writer", "captioner"),
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """As `showtell caption --format json` writes it."""
        return {
            "text": self.text,
            "logprob": self.logprob,
            "score": self.score,
            "confidence": self.confidence,
            "calibrated": self.calibrated_confidence is not None,
            "doubt": self.doubt,
            "writer": self.writer,
            "keywords": self.keywords,
            "finished": self.finished,
            "words": [asdict(word) for word in self.words],
            **({"tokens": [asdict(token) for token in self.tokens]} if self.tokens else {}),
            **({} if self.attention is None else {"attention": self.attention.to_json()}),
        }


def state_confidence(confidence: float | None, doubt: str | None) -> str:
    """A confidence as people read it, with the doubt if there is one; "" if it is not known.

    >>> state_confidence(0.2345, UNLIKELY)
    '23%, probably wrong'
    """
    return "" if confidence is None else f"{confidence:.0%}, {doubt}" if doubt else f"{confidence:.0%}"


def gibberish(caption: Caption | ExplainedCaption, *, is_calibrated: bool) -> str | None:
    """Why nobody should be shown a caption, as the end of a sentence; None if it is no gibberish."""
    if is_degenerate(caption.text):
        return "all that the captioner says repeats itself"
    if is_calibrated and caption.confidence is not None and caption.confidence < GIBBERISH:
        return f"all that the captioner says is gibberish to itself (confidence {caption.confidence:.2g})"
    return None


def without_gibberish(captions: list[Caption] | ImageError, name: str) -> list[Caption] | ImageError:
    """The captions of a photo that may be shown; where none of them may, a `NoCaptionError` that names the photo."""
    if isinstance(captions, ImageError) or not captions:
        return captions
    reasons = [gibberish(one, is_calibrated=one.calibrated_confidence is not None) for one in captions]
    sensible = [caption for caption, reason in zip(captions, reasons, strict=True) if reason is None]
    return sensible or NoCaptionError(name, str(reasons[0]), captions)


# {"image": name, "captions": [...]}; {"image": name, "error": sentence}, with "captions": [] where all were gibberish
CaptionResult = dict[str, Any]


def caption_result(name: str, captions: list[Caption] | ImageError) -> CaptionResult:
    """The captions of a photo, or its error, as `showtell caption --format json` writes them."""
    if isinstance(captions, ImageError):
        none: dict[str, Any] = {"captions": []} if isinstance(captions, NoCaptionError) else {}
        return {"image": name, **none, "error": str(captions)}
    return {"image": name, "captions": [caption.to_json() for caption in captions]}


NUM_RUNNERS_UP = 5  # alternatives that are kept of each word


@dataclass(frozen=True)
class ExplainedWord:
    """One word of a caption. The end token is the last word of a finished caption."""

    word: str  # "" for the end token
    probability: float  # given the image and the previous words
    others: tuple[tuple[str, float], ...]  # the most likely alternatives and their probabilities, in descending order
    sampled_region: int | None = None  # index of the region that hard attention sampled; None if it took the mean
    hallucinated: str | None = None  # category of the object that the word names, if the image is known not to have one
    # (R,) how far each region raises the word's log-probability, by the method of its `ModelExplanation`
    saliency: Tensor | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class WordValues:
    """Values of a model at each word of a caption, such as those of a gate or the subgoals of HACap."""

    title: str
    values: Tensor = field(compare=False, repr=False)  # (T, K)


@dataclass(frozen=True)
class ExplainedCaption:
    """A caption with its words, attention and other values of the model."""

    text: str
    words: tuple[ExplainedWord, ...]  # T, including the end token if the caption is finished
    logprob: float  # of the whole caption, including its end token
    finished: bool  # False if it was cut off at the maximum length
    confidence: float  # see `captions.Caption.confidence`
    doubt: str | None = None  # see `captions.Caption.doubt`
    title: str = ""  # such as "stage 0 of 0 to 2"
    attention: Tensor | None = field(default=None, compare=False, repr=False)  # (T, R), a row sums to at most one
    word_values: tuple[WordValues, ...] = ()

    def __post_init__(self) -> None:
        _require_number(self.logprob)

    def to_json(self) -> dict[str, Any]:
        """Plain data: numbers to 6 decimals, maps to 4."""
        return {
            **({"title": self.title} if self.title else {}),
            "text": self.text,
            "logprob": round(self.logprob, 6),
            "confidence": round(self.confidence, 6),
            **({} if self.doubt is None else {"doubt": self.doubt}),
            "finished": self.finished,
            "words": [_word_to_json(word) for word in self.words],
            "attention": None if self.attention is None else [_rounded(row, 4) for row in self.attention],
            "word_values": {kind.title: [_rounded(row, 4) for row in kind.values] for kind in self.word_values},
        }


@dataclass(frozen=True)
class ModelExplanation:
    """The captions of one model for a photo, with the regions that it attends to."""

    model: str  # a short title
    captions: tuple[ExplainedCaption, ...]  # one; of a multi-stage decoder one per stage, the last stage last
    # (R, 4) left, top, right, bottom in pixels of the upright photo; None where it is not known what the regions saw
    boxes: Tensor | None = field(compare=False, repr=False)
    grid: tuple[int, int] | None = None  # (rows, columns) if the R regions are the cells of a grid, row by row
    labels: tuple[str, ...] | None = None  # class of each of the R regions, if the encoder has classes
    scores: Mapping[str, float] = field(default_factory=dict)  # of the final caption against the references
    saliency: str | None = None  # the method by which it was measured

    @property
    def caption(self) -> ExplainedCaption:
        """The final caption."""
        return self.captions[-1]

    def to_json(self) -> dict[str, Any]:
        """Plain data; pixels to one decimal."""
        return {
            "model": self.model,
            "grid": None if self.grid is None else list(self.grid),
            "boxes": None if self.boxes is None else [_rounded(box, 1) for box in self.boxes],
            "labels": None if self.labels is None else list(self.labels),
            "scores": dict(self.scores),
            **({} if self.saliency is None else {"saliency": self.saliency}),
            "captions": [caption.to_json() for caption in self.captions],
        }


@dataclass(frozen=True)
class Explanation:
    """The captions of one or several models for a photo, explained."""

    image: str  # path of the photo, or "photo 1" and so on for photos without a path
    size: tuple[int, int]  # (width, height) of the upright photo, in whose pixels boxes are; zeros: unknown
    photo: Image.Image = field(compare=False, repr=False)  # upright, RGB, longer side at most `THUMBNAIL_SIDE`
    models: tuple[ModelExplanation, ...]
    references: tuple[str, ...] = ()

    def __repr__(self) -> str:
        captions = ", ".join(f"{model.model} {model.caption.text!r}" for model in self.models)
        return f"<Explanation of {self.image}: {captions}>"

    def __str__(self) -> str:
        """Each caption with a line for each word: its probability and the most likely alternatives."""
        lines = [self.image]
        for model in self.models:
            lines += ["", f"{model.model}: {model.caption.text}"]
            for word in model.caption.words:
                others = ", ".join(f"{other or '(end)'} {share:.2f}" for other, share in word.others[:3])
                lines.append(f"  {word.word or '(end)':12}  {word.probability:.2f}  not {others}".rstrip())
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """As `showtell explain --out FILE.json` writes it; docs/explaining.md has the keys."""
        return {
            "image": self.image,
            "size": list(self.size),
            "references": list(self.references),
            "models": [model.to_json() for model in self.models],
        }

    def figure(
        self, *, words: Sequence[str] | None = None, scale: Literal["word", "absolute"] = "word", size: float = 1.7
    ) -> Figure:
        """A matplotlib figure: a panel for each word, lit where the model looked, and a row for each map of a caption.

        Args:
            words: draw these alone, such as ["dog"]; "" is the end of a caption (default: all).
            scale: light each word up to its own highest weight, or all of them up to the highest of the figure.
            size: inches that a panel is wide.

        Raises:
            UsageError: no caption has one of the words.
        """
        from showtell.reports.figure import draw

        return draw(self, words=words, scale=scale, size=size)

    def _repr_html_(self) -> str:
        """The HTML that a notebook displays."""
        from showtell.reports.explanation_page import fragment

        return fragment(self)


def _require_number(logprob: float | None) -> None:
    """Make sure that a captioner gives log-probabilities; weights that overflow give NaN."""
    if logprob is not None and (math.isnan(logprob) or logprob == math.inf):
        raise CheckpointError(
            f"The captioner gives {logprob} as a log-probability: its weights are damaged or overflow; get or train it "
            "again, or open it in fp32."
        )


def _word_to_json(word: ExplainedWord) -> dict[str, Any]:
    return {
        "word": word.word,
        "probability": round(word.probability, 6),
        "others": [{"word": other, "probability": round(probability, 6)} for other, probability in word.others],
        **({} if word.sampled_region is None else {"sampled_region": word.sampled_region}),
        **({} if word.hallucinated is None else {"hallucinated": word.hallucinated}),
        **({} if word.saliency is None else {"saliency": _rounded(word.saliency, 4)}),
    }


def _rounded(values: Tensor, decimals: int) -> list[float]:
    return [round(value, decimals) for value in values.tolist()]
