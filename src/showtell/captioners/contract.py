"""What a captioner is: photos to captions, and photos with texts to the log-probabilities of those texts.

An implementation prepares a photo (in a thread), encodes a batch of prepared photos, and answers three questions about
what it encoded: captions, log-probabilities of given texts, and captions explained. Everything else here follows from
these, and is the same for every captioner:

    photo -> prepare -> encode_prepared -> caption_encoded | logprobs_encoded | explain_encoded

`abilities` say what a captioner can do beyond that; settings that it cannot honour are refused.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Self, TypeVar, overload

import torch
from typing_extensions import TypeIs

from showtell.captions import Caption, Explanation, ModelExplanation, TextLogprobs
from showtell.confidence.calibration import CALIBRATION, Calibration, load_calibration
from showtell.confidence.familiarity import Floats
from showtell.decoding_config import DecodingConfig
from showtell.errors import CheckpointError, ImageError, UsageError, nearest, or_raise, shorten
from showtell.features.store import FeatureStore, StoredImage
from showtell.images.loading import prefetch, prepare_batches
from showtell.images.photo import PhotoSource

PhotoToCaption = PhotoSource | StoredImage  # a photo, or an image whose features are in a store
Texts = str | Caption | Sequence[str | Caption]  # about one photo
Names = Sequence[str] | None  # of photos: what their samples depend on; None: their pixels
SourceT = TypeVar("SourceT", bound=PhotoToCaption)
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True)
class Source:
    """What a captioner is opened from."""

    name: str  # as the user gave it
    folder: Path  # on this machine
    revision: str | None = None  # commit of the repository on the hub; None for a folder
    fingerprints: dict[str, Any] = field(default_factory=dict)  # of the weights and of what else captions depend on


@dataclass(frozen=True)
class About:
    """What a captioner is and where it comes from."""

    name: str  # of the model, for people
    library: str  # what runs it, with its version
    parameters: int  # number of weights
    preprocessing: dict[str, Any]  # how photos are prepared
    knows: str  # what it learned from, as the end of a sentence
    source: str | None = None  # the folder or the name on the hub that it was opened from; None: made in memory
    folder: Path | None = None  # on this machine, with its files
    revision: str | None = None  # commit of the repository on the hub
    fingerprints: dict[str, Any] = field(default_factory=dict)  # of its weights and of what else its captions depend on
    licence: str | None = None
    origin: dict[str, Any] = field(default_factory=dict)  # of the weights: data, scores, whatever its maker wrote down


@dataclass(frozen=True)
class Abilities:
    """What a captioner can do."""

    searches: tuple[str, ...]  # names of searches
    settings: tuple[str, ...]  # fields of `DecodingConfig` that it honours
    attention: str | None = None  # what the attention of a word is over: "grid" or "regions"; None: there is none
    saliency: tuple[str, ...] = ("pixels",)  # methods that measure which regions a word needed


class Captioner(abc.ABC):
    """Captions photos: `Captioner.from_pretrained` opens one, of showtell or of transformers.

    >>> captioner = Captioner.from_pretrained("small")  # doctest: +SKIP
    >>> captioner.caption("photo.jpg")[0].text  # doctest: +SKIP
    'a brown dog is running through the grass'
    """

    decoding: DecodingConfig  # default settings
    calibration: Calibration | None = None  # gives captions their chance of being good; kept beside the weights

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | Path,
        device: str | torch.device | None = None,
        *,
        dtype: str | torch.dtype | None = None,
    ) -> Self:
        """Open a checkpoint of showtell, or a captioning model of transformers.

        Args:
            path_or_hub_id: a folder; "small", the captioner that comes with showtell; or owner/name or
                owner/name@revision on the Hugging Face hub. A folder wins.
            device: where to compute; None is a GPU if there is one.
            dtype: precision: fp32, bf16, fp16 or one of torch, such as torch.bfloat16; or auto, which is bf16 where the
                device is faster in it. Of the weights of a model of transformers (None: fp32); of the products of an
                encoder of timm (None: as trained).

        Raises:
            CheckpointError: there is none, it is damaged, or it cannot caption.
            UsageError: there is no such precision or device.
            MissingDependencyError: it is of transformers, which is not installed.
        """
        from showtell.captioners.opening import open_checkpoint

        captioner = open_checkpoint(path_or_hub_id, device, dtype)
        if not isinstance(captioner, cls):
            raise CheckpointError(
                f"{path_or_hub_id} is a captioner of {captioner.about.library}, and this needs a checkpoint of "
                "showtell: a folder with model.safetensors and config.json that showtell train wrote."
            )
        about = captioner.about
        if about.folder is not None and (about.folder / CALIBRATION).is_file():
            captioner.calibration = load_calibration(about.folder, about.fingerprints["weights"])
        return captioner

    # --- what an implementation gives ---

    @property
    @abc.abstractmethod
    def about(self) -> About:
        """What it is and where it comes from."""

    @property
    @abc.abstractmethod
    def abilities(self) -> Abilities:
        """What it can do."""

    @property
    @abc.abstractmethod
    def device(self) -> torch.device:
        """Where it computes."""

    @abc.abstractmethod
    def to(self, device: str | torch.device) -> Self:
        """Move the weights."""

    @abc.abstractmethod
    def prepare(self, photo: PhotoToCaption) -> Any:
        """Open a photo, in any form that `caption` takes, and prepare it for `encode_prepared`. Threads call it.

        Raises:
            ImageError: it is not an image.
            UsageError: it is an image of a store, and this captioner reads no features.
        """

    @abc.abstractmethod
    def encode_prepared(self, photos: Sequence[Any]) -> Any:
        """A batch of at least one prepared photo, in a form that only the methods below know."""

    @abc.abstractmethod
    def caption_encoded(
        self, photos: Any, settings: DecodingConfig, *, image_ids: Sequence[str] | None = None, attention: bool = False
    ) -> list[list[Caption]]:
        """The captions of each photo, the best first, without calibrated confidence. A captioner on a server may give
        an `ImageError` in their place.

        Args:
            photos: from `encode_prepared`.
            settings: that `check` has accepted.
            image_ids: names that samples depend on; None is the pixels of each photo.
            attention: keep the attention weights of the words; a `UsageError` if there are none.
        """

    @abc.abstractmethod
    def logprobs_encoded(
        self, photos: Any, texts: Sequence[Sequence[str | Caption]], settings: DecodingConfig
    ) -> list[list[TextLogprobs]]:
        """The log-probabilities of the texts of each photo, teacher-forced; see `logprobs`."""

    @abc.abstractmethod
    def explain_encoded(
        self, photos: Any, settings: DecodingConfig, *, saliency: str | None = None
    ) -> list[ModelExplanation]:
        """The best caption of each photo, explained; saliency is one of the methods of `abilities` (default: none)."""

    def reads(self, store: FeatureStore) -> bool:
        """Whether the features of a store are those that it looks at."""
        return False

    # --- what follows from it ---

    def settings(self, **changes: Any) -> DecodingConfig:
        """The default decoding settings with some of them changed; a `UsageError` says which it cannot honour."""
        return self.check(self.decoding.changed(**changes))

    def check(self, settings: DecodingConfig) -> DecodingConfig:
        """The settings, those that were not given as by default, if this captioner can honour them.

        Raises:
            UsageError: it cannot; the sentence says what it can.
        """
        settings = settings.over(self.decoding)
        name, abilities = self.about.name, self.abilities
        if settings.kind not in abilities.searches:
            raise UsageError(f"{name} has no search {settings.kind}; choose one of {', '.join(abilities.searches)}.")
        for setting, value in settings:
            if setting not in abilities.settings and value != type(settings).model_fields[setting].default:
                shown = shorten(",".join(value) if isinstance(value, tuple) else str(value))
                raise UsageError(f"{name} cannot honour {setting}={shown}; it knows {', '.join(abilities.settings)}.")
        return settings

    def check_saliency(self, method: str | None) -> None:
        """Raise a `UsageError` that names its saliency methods if it does not have this one; None is none."""
        if method is not None and method not in self.abilities.saliency:
            raise UsageError(
                f'{self.about.name} has no saliency method "{method}"; {nearest(method, self.abilities.saliency)}.'
            )

    def calibrated(self, captions: list[list[Caption]], settings: DecodingConfig, photos: Any) -> list[list[Caption]]:
        """The captions that a search found of encoded photos, with their chances of being good.

        They stay as they are if the captioner was not calibrated, or was calibrated for another search.
        """
        if self.calibration is None or not self.calibration.fits(settings):
            return captions
        return self.calibration.calibrated(captions, self.mean_features(photos))

    def mean_features(self, photos: Any) -> Floats | None:
        """The mean feature vector of each encoded photo, (B, D); None for a captioner that does not show them."""
        return None

    @overload
    def caption(self, photo: PhotoToCaption, **options: Any) -> list[Caption]: ...
    @overload
    def caption(self, photo: Iterable[PhotoToCaption], **options: Any) -> list[list[Caption]]: ...
    def caption(
        self, photo: Any, *, batch_size: int = 32, attention: bool = False, **decoding: Any
    ) -> list[Caption] | list[list[Caption]]:
        """Captions of one photo, the best first; or of many, a list for each.

        Args:
            photo: a path, the bytes of an image file, an image of Pillow, an array (height, width, 3) uint8 in RGB, or
                a `StoredImage`; or many of them.
            batch_size: of many, how many are encoded at a time.
            attention: keep the attention weights of the words.
            decoding: fields of `DecodingConfig` in place of the default settings, such as num_beams=5.

        Raises:
            ImageError: a photo is not an image; `caption_photos` continues without it.
            UsageError: an unknown decoding setting, a value out of range or that this captioner cannot honour, or no
                attention where it is asked for.
        """
        settings = self.settings(**decoding)
        photos = [photo] if is_one_photo(photo) else photo
        results = self.caption_photos(photos, settings, batch_size, first_alone=False, attention=attention)
        captions = [or_raise(result) for _, result in results]
        return captions[0] if is_one_photo(photo) else captions

    def caption_photos(
        self,
        photos: Iterable[SourceT],
        settings: DecodingConfig | None = None,
        batch_size: int = 32,
        *,
        first_alone: bool = True,
        attention: bool = False,
        image_ids: Iterable[str] | None = None,
    ) -> Iterator[tuple[SourceT, list[Caption] | ImageError]]:
        """Captions of many photos, read a batch ahead, in their order; what is not an image gives its error.

        Photos, `batch_size` and `attention` are as in `caption`, and `settings` are the default ones unless given.
        With `first_alone` the first photo is a batch of its own, so that the first result comes soon. `image_ids` are
        names, one for each photo, that samples depend on (default: on its pixels).
        """
        settings = self.check(settings or self.decoding)

        def answer(encoded: Any, names: list[str]) -> list[list[Caption]]:
            ids = None if image_ids is None else names
            captions = self.caption_encoded(encoded, settings, image_ids=ids, attention=attention)
            return self.calibrated(captions, settings, encoded)

        pairs = zip(photos, repeat("") if image_ids is None else image_ids, strict=image_ids is not None)
        yield from self._answers(pairs, answer, batch_size, first_alone=first_alone)

    def _answers(
        self,
        pairs: Iterable[tuple[Any, Any]],
        answer: Callable[[Any, list[Any]], Iterable[AnswerT]],
        batch_size: int,
        *,
        first_alone: bool = False,
    ) -> Iterator[tuple[Any, AnswerT | ImageError]]:
        """Answers about photos, each with what else its answer depends on; a thread has those of a GPU ahead."""

        def answer_batch(batch: list[tuple[tuple[Any, Any], Any]]) -> list[tuple[Any, AnswerT | ImageError]]:
            good = [(other, photo) for (_, other), photo in batch if not isinstance(photo, ImageError)]
            results: Iterator[AnswerT] = iter(())
            if good:
                others, photos = zip(*good, strict=True)
                results = iter(answer(self.encode_prepared(photos), list(others)))
            return [(source, photo if isinstance(photo, ImageError) else next(results)) for (source, _), photo in batch]

        batches = prepare_batches(
            pairs, lambda pair: self.prepare(pair[0]), batch_size, first_alone=first_alone, device=self.device
        )
        answers: Iterator[list[tuple[Any, AnswerT | ImageError]]] = map(answer_batch, batches)
        yield from chain.from_iterable(prefetch(answers, ahead=1) if self.device.type == "cuda" else answers)

    def logprobs(self, photos: Any, texts: Any, *, batch_size: int = 32, **conditions: Any) -> list[Any]:
        """How likely texts are as captions of photos: the log-probability of each token and of the end, teacher-forced.

        Args:
            photos: a photo in any form that `caption` takes, or many.
            texts: of one photo a text or several; of many photos, for each of them a text or several. A `Caption` of
                this captioner stands for exactly the tokens that it was made of. Our models tokenize texts as captions
                are; a word that their vocabulary lacks has the log-probability of the token of unknown words.
            batch_size: of many, how many photos are encoded at a time.
            conditions: the `stage` that the captions would be of, or the `prompt` that they would follow.

        Returns:
            For one photo a list of a `TextLogprobs` for each text; for many photos such a list for each. Natural
            logarithms, before any rule of a search.

        Raises:
            ImageError: a photo is not an image.
            UsageError: a condition that this captioner does not know, or not as many entries of texts as photos.
        """
        settings = self.settings(**conditions)
        pairs = [(photos, texts)]
        if not is_one_photo(photos):
            photos, texts = list(photos), list(texts)
            if len(photos) != len(texts):
                raise UsageError("There are not as many entries of texts as photos; give an entry for each photo.")
            pairs = list(zip(photos, texts, strict=True))

        def answer(encoded: Any, of_batch: list[Texts]) -> list[list[TextLogprobs]]:
            return self.logprobs_encoded(encoded, list(map(as_list, of_batch)), settings)

        results = [or_raise(result) for _, result in self._answers(pairs, answer, batch_size)]
        return results[0] if is_one_photo(photos) else results

    @overload
    def explain(self, photo: PhotoToCaption, **options: Any) -> Explanation: ...
    @overload
    def explain(self, photo: Iterable[PhotoToCaption], **options: Any) -> list[Explanation]: ...
    def explain(
        self, photo: Any, *, saliency: str | None = None, batch_size: int = 32, **decoding: Any
    ) -> Explanation | list[Explanation]:
        """Explain the best caption of a photo, or of each of many: the probabilities of its words and of others in
        their place, and attention.

        Args:
            photo: in any form that `caption` takes, or many of them.
            saliency: how to measure which regions each word needed, one of the methods in `abilities` (default: not).
            batch_size: photos in a batch.
            decoding: fields of `DecodingConfig` in place of the default settings.

        Raises:
            ImageError: a photo cannot be read; `explanations.explain_photos` continues without it.
            UsageError: an unknown decoding setting, or a value out of range.
        """
        from showtell.captioners.photos import explain_photos

        photos, title = [photo] if is_one_photo(photo) else list(photo), self.about.name
        settings = {title: self.settings(**decoding)}
        results = explain_photos({title: self}, photos, settings, saliency=saliency, batch_size=batch_size)
        explanations: list[Explanation] = [or_raise(result) for _, result in results]
        return explanations[0] if is_one_photo(photo) else explanations

    def explain_photos(
        self,
        photos: Iterable[SourceT],
        settings: DecodingConfig | None = None,
        batch_size: int = 32,
        *,
        saliency: str | None = None,
    ) -> Iterator[tuple[SourceT, ModelExplanation | ImageError]]:
        """The best captions of many photos, explained: order and errors are those of `caption_photos`.

        `saliency` is one of the methods of `abilities`.
        """
        settings = self.check(settings or self.decoding)
        self.check_saliency(saliency)
        pairs = ((photo, None) for photo in photos)
        return self._answers(
            pairs, lambda encoded, _: self.explain_encoded(encoded, settings, saliency=saliency), batch_size
        )


def is_one_photo(photo: object) -> TypeIs[PhotoToCaption]:
    """Whether this is one photo, or something that is none, rather than many photos."""
    return isinstance(photo, PhotoToCaption) or not isinstance(photo, Iterable)


def as_list(texts: Texts) -> Sequence[str | Caption]:
    """The texts of one photo: a single one is a list of one."""
    return [texts] if isinstance(texts, str | Caption) else list(texts)
