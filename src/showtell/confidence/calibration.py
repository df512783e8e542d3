"""The chance that a caption is good, from how sure the model was of it: a logistic map fitted on a validation split.

A model's probabilities rank captions but do not say how often it is right. The map is Platt's (1999) over features of
a caption and of its photo: with m the mean log-probability of the words, l the lowest, n their number, f whether the
caption reached the end token, and v the photo's mean feature vector on the first principal components of validation
photos (a captioner is righter on some kinds of photo than on others),

    p(good) = sigmoid(w . standardised(m, l, log(1 + n), f, v) + b)

fitted by Newton's method to penalised log-likelihood. The caller defines "good"; the definition is kept with the
map. Its figures, measured on captions that were not fitted on (each fold by a map of the other folds), are the Brier
score and the expected calibration error over bins of equal size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from showtell.captions import Caption
from showtell.confidence.familiarity import Familiarity, Floats
from showtell.decoding_config import DecodingConfig
from showtell.errors import DataError, notify
from showtell.files import read_json, write_json

CALIBRATION = "calibration.json"  # in the folder of a checkpoint
RIDGE = 1.0  # variance 1 of each weight a priori: keeps the map finite where the two kinds can be told apart exactly
FOLDS, BINS = 5, 10
FEWEST = 20  # captions that a map can be fitted to
_IRRELEVANT = {"num_return_sequences", "seed"}  # settings that do not change how sure the model is
CAPTION_FEATURES, PHOTO_FEATURES = 4, 8  # of a photo at most, one per `CAPTIONS_PER_FEATURE` captions
CAPTIONS_PER_FEATURE = 50
MAX_DEVIATIONS = 3.0  # to which features of a photo are clipped: farther out nothing was fitted
_Features = tuple[FiniteFloat, ...]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Bin:
    """Captions of about the same confidence."""

    confidence: FiniteFloat  # mean
    good: FiniteFloat  # share of them that is good
    captions: int


@dataclass(frozen=True)
class Reliability:
    """How reliable stated probabilities are."""

    expected_calibration_error: FiniteFloat  # mean over captions of |confidence - share of good|, 0 to 1
    brier: FiniteFloat  # mean squared distance between chance and what came true; lower is better
    brier_of_base_rate: FiniteFloat  # that of stating the share of good captions every time
    bins: tuple[Bin, ...]

    @classmethod
    def of(cls, confidences: Sequence[float], is_good: Sequence[bool], bins: int = BINS) -> Self:
        """Measure some confidences, each 0 to 1, over at most this number of bins of equally many captions."""
        chances, good = np.asarray(confidences, np.float64), np.asarray(is_good, np.float64)
        parts = [part for part in np.array_split(np.argsort(chances, kind="stable"), bins) if len(part)]
        binned = tuple(Bin(float(chances[part].mean()), float(good[part].mean()), len(part)) for part in parts)
        error = sum(abs(part.confidence - part.good) * part.captions for part in binned) / len(good)
        brier, brier_of_base_rate = (float(np.mean((stated - good) ** 2)) for stated in (chances, good.mean()))
        return cls(error, brier, brier_of_base_rate, binned)


@dataclass(frozen=True)
class Calibration:
    """A fitted map, with what it means and how good it is."""

    meaning: str  # what a good caption is, in words
    weights: _Features  # w
    bias: FiniteFloat  # b
    means: _Features  # of the features in the captions that it was fitted to
    deviations: tuple[_Positive, ...]
    captions: int  # how many those were
    reliability: Reliability  # on captions that were not fitted on
    before: Reliability  # of the geometric mean probability of a caption's words, on the same captions
    search: dict[str, Any]  # settings of the search of these captions, and of those that the map is for
    familiarity: Familiarity | None = None  # of their photos; None where the captioner shows no features

    @classmethod
    def fit(
        cls,
        captions: Sequence[Caption],
        is_good: Sequence[bool],
        meaning: str,  # what a good caption is, in words
        settings: DecodingConfig,
        vectors: Floats | None = None,  # (images, D), the mean feature vectors of the photos
        familiarity: Familiarity | None = None,  # of photos that the captioner knows (default: of these)
    ) -> Self:
        """Fit a map to captions of a validation split, one for each image; a DataError for too few, or one kind."""
        good = np.asarray(is_good, np.float64)
        kinds = int(good.sum())
        if len(good) < FEWEST or kinds in (0, len(good)):
            raise DataError(
                f"Confidence cannot be calibrated on {len(good)} captions of which {kinds} are good ({meaning}); it "
                f"takes at least {FEWEST}, good ones and bad ones: fit it on more photos or by another measure of "
                "good, or use the confidence that captions have without it, which ranks them but does not say how "
                "often they are good."
            )
        if familiarity is None and vectors is not None:
            familiarity = Familiarity.fit(vectors)
        features = _features(captions)
        if familiarity is not None and vectors is not None:
            number = min(PHOTO_FEATURES, len(captions) // CAPTIONS_PER_FEATURE)
            features = np.column_stack([features, familiarity.coordinates(vectors)[:, :number]])
        weights, bias, means, deviations = _fit(features, good)
        fold = np.arange(len(good)) % FOLDS
        chances = np.empty(len(good))
        for number in range(FOLDS):
            held = fold == number
            chances[held] = _chances(features[held], *_fit(features[~held], good[~held]))
        return cls(
            meaning=meaning,
            weights=tuple(weights.tolist()),
            bias=bias,
            means=tuple(means.tolist()),
            deviations=tuple(deviations.tolist()),
            captions=len(good),
            reliability=Reliability.of(chances.tolist(), is_good),
            before=Reliability.of(np.exp(features[:, 0]).tolist(), is_good),
            search=_search(settings),
            familiarity=familiarity,
        )

    def fits(self, settings: DecodingConfig) -> bool:
        """Whether it is for the captions of a search with these settings."""
        return self.search == _search(settings)

    def confidences(self, captions: Sequence[Caption], vectors: Floats | None = None) -> list[float]:
        """The chance that each caption is good, with the vectors of its photo; without them, of an average one."""
        weights, means, deviations = map(np.asarray, (self.weights, self.means, self.deviations))
        features = np.tile(means, (len(captions), 1))
        features[:, :CAPTION_FEATURES] = _features(captions)
        if self.familiarity is not None and vectors is not None:
            features[:, CAPTION_FEATURES:] = self.familiarity.coordinates(vectors)[:, : len(means) - CAPTION_FEATURES]
        return list(map(float, _chances(features, weights, self.bias, means, deviations)))

    def calibrated(self, captions: Sequence[list[Caption]], vectors: Floats | None) -> list[list[Caption]]:
        """The captions of each photo with their chances of being good; vectors are those of `fit`, for these photos."""
        familiar = [True] * len(captions)
        if self.familiarity is not None and vectors is not None:
            familiar = self.familiarity.is_familiar(vectors)
        of_photos = np.arange(len(captions)).repeat([len(of_photo) for of_photo in captions])
        flat = [caption for of_photo in captions for caption in of_photo]
        confidences = iter(self.confidences(flat, None if vectors is None else vectors[of_photos]))
        return [
            [replace(caption, calibrated_confidence=next(confidences), is_familiar=is_familiar) for caption in of_photo]
            for of_photo, is_familiar in zip(captions, familiar, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """As `calibration.json` of a checkpoint has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any, source: object) -> Self:
        """Read what `to_json` wrote; a DataError if it is something else."""
        try:
            return TypeAdapter(cls).validate_python(content)
        except ValidationError as error:
            problem = error.errors()[0]
            key = ".".join(map(str, problem["loc"]))
            raise DataError(
                f"{source} is no calibration ({key}: {problem['msg']}); calibrate the checkpoint again."
            ) from error


def save_calibration(folder: Path, weights: str, calibration: Calibration) -> Path:
    """Keep a calibration in the folder of its checkpoint, whose weights have this fingerprint."""
    write_json(folder / CALIBRATION, {"weights": weights, "calibration": calibration.to_json()})
    return folder / CALIBRATION


def load_calibration(folder: Path, weights: str) -> Calibration | None:
    """The calibration in a folder; None, with a notice, if it is of other weights. A DataError if it is damaged."""
    file = folder / CALIBRATION
    content = read_json(file)
    calibration = Calibration.from_json(content.get("calibration") if isinstance(content, dict) else content, file)
    if content.get("weights") == weights:
        return calibration
    notify(f"{file} was made for other weights and is not used; make it again: showtell calibrate {folder} DATASET.")
    return None


def describe(calibration: Calibration) -> str:
    """Both reliabilities of a calibration as a table: errors, then bin by bin."""
    before, after = calibration.before, calibration.reliability
    rows = [
        ("expected calibration error", before.expected_calibration_error, after.expected_calibration_error),
        ("Brier score", before.brier, after.brier),
        ("Brier score of the share", before.brier_of_base_rate, after.brier_of_base_rate),
    ]
    return "\n".join(
        [
            f"{calibration.captions} captions; a good one: {calibration.meaning}",
            "",
            f"{'':26}  {'word probability':>16}  {'calibrated':>16}",
            *[f"{name:26}  {one:16.3f}  {other:16.3f}" for name, one, other in rows],
            "",
            f"{'captions':26}  {'stated':>7}  {'good':>7}  {'stated':>7}  {'good':>7}",
            *[
                f"{old.captions:<26}  {old.confidence:7.3f}  {old.good:7.3f}  {new.confidence:7.3f}  {new.good:7.3f}"
                for old, new in zip(before.bins, after.bins, strict=True)
            ],
        ]
    )


def _search(settings: DecodingConfig) -> dict[str, Any]:
    return settings.model_dump(mode="json", exclude=_IRRELEVANT) | {"search": settings.kind}


def _features(captions: Sequence[Caption]) -> Floats:
    """(captions, 4): mean and lowest log-probability, log(1 + words), whether it reached the end token."""
    rows = []
    for caption in captions:
        steps = len(caption.words) + caption.finished
        if caption.logprob is None:
            raise DataError("Captions without log-probabilities, as of some servers, cannot be calibrated.")
        end = caption.logprob - sum(word.logprob for word in caption.words)
        lowest = min([*(word.logprob for word in caption.words), end if caption.finished else 0.0])
        rows.append((caption.logprob / max(steps, 1), lowest, np.log1p(len(caption.words)), float(caption.finished)))
    return np.asarray(rows, np.float64).reshape(-1, CAPTION_FEATURES)


def _fit(features: Floats, good: Floats) -> tuple[Floats, float, Floats, Floats]:
    """Weights, bias, means and deviations. Newton's method; the problem is convex and its optimum is unique."""
    means, deviations = features.mean(0), features.std(0)
    deviations[deviations < 1e-9] = 1.0  # a feature that is the same for all has no weight
    inputs = np.column_stack([(features - means) / deviations, np.ones(len(features))])
    penalty = np.diag([RIDGE] * features.shape[1] + [1e-6])  # the bias is next to free
    weights = np.zeros(inputs.shape[1])

    def loss(w: Floats) -> float:
        scores = inputs @ w
        return float(np.logaddexp(0, scores).sum() - good @ scores + 0.5 * w @ penalty @ w)

    for _ in range(100):
        chances = _sigmoid(inputs @ weights)
        gradient = inputs.T @ (chances - good) + penalty @ weights
        hessian = (inputs * (chances * (1 - chances))[:, None]).T @ inputs + penalty
        step = np.linalg.solve(hessian, gradient)
        size = 1.0
        while loss(weights - size * step) > loss(weights) and size > 1e-6:  # far from the optimum it is too long
            size /= 2
        weights = weights - size * step
        if np.abs(step).max() < 1e-10:
            break
    return weights[:-1], float(weights[-1]), means, deviations


def _chances(features: Floats, weights: Floats, bias: float, means: Floats, deviations: Floats) -> Floats:
    standardised = (features - means) / deviations
    standardised[:, CAPTION_FEATURES:] = standardised[:, CAPTION_FEATURES:].clip(-MAX_DEVIATIONS, MAX_DEVIATIONS)
    return _sigmoid(standardised @ weights + bias)


def _sigmoid(x: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(0.5 * x))
