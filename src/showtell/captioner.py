"""Open a checkpoint, give it a photo, get a caption."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch
from torch import Tensor

from showtell import checkpoint
from showtell.captions import Attention, Caption, Word
from showtell.confidence.calibration import Calibration
from showtell.decoding import Captions, DecodingConfig, Ensemble, search
from showtell.errors import CheckpointError, ImageError, UsageError
from showtell.features import Encoder
from showtell.features.ensemble import EnsembleEncoder
from showtell.images.loading import READERS, PreparedPhoto, prepare_batches, prepare_photo, stack_photos
from showtell.images.photo import PhotoSource
from showtell.models import Decoder
from showtell.models.contract import eval_mode
from showtell.text.vocabulary import SPECIAL, Vocabulary
from showtell.types import Features, PreparedBatch

if TYPE_CHECKING:
    from showtell.explanations import Explanation

SourceT = TypeVar("SourceT", bound=PhotoSource)
ResultT = TypeVar("ResultT")


class Captioner:
    """An encoder, a decoder and their vocabulary, ready to caption photos.

    >>> captioner = Captioner.from_pretrained("runs/scenes/best")  # doctest: +SKIP
    >>> captioner.caption("photo.jpg")[0].text  # doctest: +SKIP
    'a red circle is above a small blue star'
    """

    def __init__(
        self,
        *,
        encoder: Encoder,
        decoder: Decoder,
        vocabulary: Vocabulary,
        decoding: DecodingConfig,
        about: dict[str, Any] | None = None,
    ) -> None:
        self.encoder = encoder
        self.decoder = decoder
        self.vocabulary = vocabulary
        self.decoding = decoding
        self.about = about or {}
        self.calibration: Calibration | None = (
            None  # gives captions a calibrated confidence; `confidence.load_calibration`
        )

    def __repr__(self) -> str:
        model, encoder = (_part_name(part) for part in (self.decoder, self.encoder))
        weights = sum(weight.numel() for part in (self.encoder, self.decoder) for weight in part.parameters())
        return (
            f"Captioner(model={model}, encoder={encoder}, vocabulary={len(self.vocabulary) - len(SPECIAL)} words, "
            f"weights={weights:,}, device={self.device})"
        )

    @classmethod
    def from_pretrained(cls, path_or_hub_id: str | Path, device: str | torch.device | None = None) -> Captioner:
        """Open a checkpoint.

        Args:
            path_or_hub_id: a folder, or the name of a repository on the Hugging Face hub; an existing folder wins.
            device: where to compute; None is a GPU if there is one.

        Raises:
            CheckpointError: there is none, or it is damaged.
        """
        opened = checkpoint.load_checkpoint(checkpoint.find_checkpoint(path_or_hub_id))
        captioner = cls(
            encoder=opened.encoder,
            decoder=opened.decoder,
            vocabulary=opened.vocabulary,
            decoding=opened.decoding,
            about=opened.about,
        )
        return captioner.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))

    @classmethod
    def ensemble(cls, paths_or_hub_ids: Sequence[str | Path], device: str | torch.device | None = None) -> Captioner:
        """Open several checkpoints as one captioner that averages the probabilities of their next words.

        Each member looks with its own encoder; members whose encoders are the same share its work. The decoding
        settings are those of the first.

        Args:
            paths_or_hub_ids: the members, as `from_pretrained` takes them.
            device: where to compute; None is a GPU if there is one.

        Raises:
            CheckpointError: a member has another vocabulary than the first, or prepares photos differently.
            UsageError: there are no members.
        """
        if not paths_or_hub_ids:
            raise UsageError("An ensemble needs at least one checkpoint.")
        members = [cls.from_pretrained(one, device) for one in paths_or_hub_ids]
        first, name = members[0], paths_or_hub_ids[0]
        for other, member in zip(paths_or_hub_ids, members, strict=True):
            if member.vocabulary.fingerprint != first.vocabulary.fingerprint:
                raise CheckpointError(
                    f"{other} and {name} cannot be averaged: their vocabularies differ ({len(member.vocabulary)} "
                    f"words, fingerprint {member.vocabulary.fingerprint}, and {len(first.vocabulary)} words, "
                    f"fingerprint {first.vocabulary.fingerprint}); train the members with one vocabulary."
                )
            if member.encoder.preprocessing != first.encoder.preprocessing:
                raise CheckpointError(
                    f"{other} and {name} cannot be averaged: their encoders prepare photos differently "
                    f"({member.encoder.preprocessing} and {first.encoder.preprocessing})."
                )
        captioner = cls(
            encoder=EnsembleEncoder([member.encoder for member in members]),
            decoder=Ensemble([member.decoder for member in members]),
            vocabulary=first.vocabulary,
            decoding=first.decoding,
            about={"members": [member.about for member in members]},
        )
        captioner.encoder.eval()
        captioner.decoder.eval()
        return captioner

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a checkpoint that `from_pretrained` opens.

        Raises:
            UsageError: it is an ensemble, which is opened from the checkpoints of its members.
        """
        if isinstance(self.decoder, Ensemble):
            raise UsageError("An ensemble is not saved; keep the checkpoints of its members.")
        content = checkpoint.Checkpoint(self.encoder, self.decoder, self.vocabulary, self.decoding, self.about)
        checkpoint.save_checkpoint(Path(folder), content)

    def to(self, device: str | torch.device) -> Captioner:
        """Move the weights."""
        self.encoder.to(device)
        self.decoder.to(device)
        return self

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.decoder.parameters()).device

    @overload
    def caption(
        self, photo: PhotoSource, *, batch_size: int = ..., attention: bool = ..., **decoding: Any
    ) -> list[Caption]: ...
    @overload
    def caption(
        self, photo: Iterable[PhotoSource], *, batch_size: int = ..., attention: bool = ..., **decoding: Any
    ) -> list[list[Caption]]: ...
    def caption(
        self,
        photo: PhotoSource | Iterable[PhotoSource],
        *,
        batch_size: int = 32,
        attention: bool = False,
        **decoding: Any,
    ) -> list[Caption] | list[list[Caption]]:
        """Captions of one photo, the most likely first; or of many, a list for each.

        Args:
            photo: a path, the bytes of an image file, an image of Pillow, or an array (height, width, 3) uint8 in RGB;
                or many of them.
            batch_size: of many, how many are encoded at a time.
            attention: keep the attention weights of the words.
            decoding: fields of `DecodingConfig` in place of the checkpoint's, such as num_beams=5.

        Raises:
            ImageError: one of them is no image; `caption_photos` skips it.
            UsageError: an unknown decode setting, a value out of range, or no attention where it is asked for.
        """
        settings = self.settings(**decoding)
        if isinstance(photo, PhotoSource) or not isinstance(photo, Iterable):
            prepared = prepare_photo(photo, self.encoder.preprocessing)
            return self._caption_photos([prepared], settings, attention)[0]
        many = self.caption_photos(photo, settings, batch_size, first_alone=False, attention=attention)
        return [_or_raise(captions) for _, captions in many]

    @overload
    def explain(
        self, photo: PhotoSource, *, occlusion: str | None = ..., batch_size: int = ..., **decoding: Any
    ) -> Explanation: ...
    @overload
    def explain(
        self, photo: Iterable[PhotoSource], *, occlusion: str | None = ..., batch_size: int = ..., **decoding: Any
    ) -> list[Explanation]: ...
    def explain(
        self,
        photo: PhotoSource | Iterable[PhotoSource],
        *,
        occlusion: str | None = None,
        batch_size: int = 32,
        **decoding: Any,
    ) -> Explanation | list[Explanation]:
        """Explain a caption: each word with its probability, the most likely other words and its attention.

        Args:
            photo: in any form that `caption` takes, or many of them.
            occlusion: occlusion method, one of `explanations.occlusion.OCCLUSION_METHODS` (default: no occlusion).
            batch_size: of many, how many are encoded at a time.
            decoding: fields of `DecodingConfig` in place of the checkpoint's. The best caption is explained.

        Raises:
            ImageError: one of them is no image; `explanations.explain_photos` skips it.
            UsageError: an unknown decode setting, or a value out of range.
        """
        from showtell.explanations import explain

        return explain(self, photo, occlusion=occlusion, batch_size=batch_size, **decoding)

    def caption_photos(
        self,
        photos: Iterable[SourceT],
        settings: DecodingConfig | None = None,
        batch_size: int = 32,
        *,
        first_alone: bool = True,
        attention: bool = False,
        readers: int = READERS,
    ) -> Iterator[tuple[SourceT, list[Caption] | ImageError]]:
        """Captions of many photos, batch by batch, in their order. What is no image gives its error.

        Nothing is read before the first result is asked for, and then one batch ahead.

        Args:
            photos: in any form that `caption` takes.
            settings: None is the checkpoint's own.
            batch_size: how many are encoded at a time.
            first_alone: the first photo is a batch of its own, so that the first result comes soon.
            attention: keep the attention weights of the words.
            readers: threads that open and prepare photos.
        """
        batches = prepare_batches(
            photos, self.encoder.preprocessing, batch_size, first_alone=first_alone, readers=readers
        )
        for batch in batches:
            prepared = [photo for _, photo in batch if not isinstance(photo, ImageError)]
            captions = iter(self._caption_photos(prepared, settings, attention))
            for source, photo in batch:
                yield source, photo if isinstance(photo, ImageError) else next(captions)

    def _caption_photos(
        self, photos: Sequence[PreparedPhoto], settings: DecodingConfig | None, attention: bool
    ) -> list[list[Caption]]:
        return self.caption_batch(stack_photos(photos), settings, attention=attention) if photos else []

    def caption_batch(
        self, batch: PreparedBatch, settings: DecodingConfig | None = None, *, attention: bool = False
    ) -> list[list[Caption]]:
        """Captions of prepared photos.

        Args:
            batch: photos, prepared by `encoder.preprocessing`.
            settings: None is the checkpoint's own.
            attention: keep the attention weights of the words.
        """
        settings = settings or self.decoding
        ids = [pixel_hash(image) for image in batch.images] if settings.kind == "sample" else None
        features = self.encode(batch)
        boxes = self.encoder.rectangles(features, batch.windows.to(self.device)) if attention else None
        return self.caption_features(features, settings, image_ids=ids, attention=attention, boxes=boxes)

    def encode_photos(self, photos: Iterable[PhotoSource], batch_size: int = 64) -> Iterator[Features]:
        """The features of photos, batch by batch.

        Raises:
            ImageError: one of them is no image.
        """
        for batch in prepare_batches(photos, self.encoder.preprocessing, batch_size):
            yield self.encode(stack_photos([_or_raise(photo) for _, photo in batch]))

    @torch.no_grad()
    def encode(self, batch: PreparedBatch) -> Features:
        """The features of prepared photos, in eval mode."""
        with eval_mode(self.encoder):
            features: Features = self.encoder(batch.to(self.device))
        return features

    @torch.no_grad()
    def caption_features(
        self,
        features: Features,
        settings: DecodingConfig | None = None,
        *,
        image_ids: Sequence[str] | None = None,
        attention: bool = False,
        boxes: Tensor | None = None,
    ) -> list[list[Caption]]:
        """Captions of encoded images, in eval mode.

        Args:
            features: from `encode`.
            settings: None is the checkpoint's own.
            image_ids: names that samples depend on; None counts the images.
            attention: keep the attention weights of the words.
            boxes: (B, R, 4) where each vector is in its photo, from `encoder.rectangles`; kept with the attention.

        Raises:
            UsageError: the model has no attention and is asked for it, or does not know a required word.
        """
        settings = settings or self.decoding
        with eval_mode(self.decoder):
            result = search(
                self.decoder, features, settings, self.vocabulary, image_ids=image_ids, keep_outputs=attention
            )
        captions = self.read_captions(result, settings.num_return_sequences)
        if attention:
            captions = _with_attention(captions, result.attention, features.is_region, boxes)
        if self.calibration is not None:
            captions = [_with_confidences(of_image, self.calibration) for of_image in captions]
        return captions

    def settings(self, **changes: Any) -> DecodingConfig:
        """The checkpoint's decoding settings with some of them changed.

        Raises:
            UsageError: an unknown name, or a value out of range.
        """
        return self.decoding.changed(**changes)

    def read_captions(self, result: Captions, count: int | None = None) -> list[list[Caption]]:
        """The tensors of a search as words: the best `count` captions of each image, or all of them."""
        read = []
        lengths = result.is_word.sum(-1).tolist()
        rows = zip(
            result.words.tolist(), lengths, result.word_logprobs.tolist(), result.logprob.tolist(),
            result.score.tolist(), result.is_finished.tolist(), strict=True,
        )  # fmt: skip
        for image in rows:
            captions = []
            for ids, length, logprobs, logprob, score, finished in zip(*image, strict=True):
                if logprob == float("-inf"):  # the last rows, where there are fewer captions than were asked for
                    continue
                word_count = length - 1 if finished else length  # without the end
                words = [self.vocabulary.words[index] for index in ids[:word_count]]
                captions.append(
                    Caption(
                        " ".join(words),
                        logprob,
                        finished,
                        tuple(Word(*pair) for pair in zip(words, logprobs[:word_count], strict=True)),
                        score,
                    )
                )
            read.append(captions[:count])
        return read


def pixel_hash(image: Tensor) -> str:
    """What the samples of a prepared photo (3, height, width) depend on: what is in the picture and nothing else,
    neither its file's name nor its batch."""
    return hashlib.sha256(image.cpu().numpy().tobytes()).hexdigest()


def _with_attention(
    captions: list[list[Caption]], attention: Tensor | None, is_region: Tensor, boxes: Tensor | None
) -> list[list[Caption]]:
    """Captions with the attention of their words: attention (B, K, T, R), is_region (B, R), boxes (B, R, 4)."""
    if attention is None:
        raise UsageError(
            "This captioner has no attention to show: its model sees the whole photo at once, or it is an ensemble "
            "whose members look at different places; leave attention out."
        )
    attended = []
    for image, of_image in enumerate(captions):
        regions = is_region[image]
        own = None if boxes is None else boxes[image, regions].cpu()
        weights = attention[image, ..., regions].cpu()  # (K, T, R of this image)
        attended.append(
            [
                replace(caption, attention=Attention(weights[row, : len(caption.words)], own))
                for row, caption in enumerate(of_image)
            ]
        )
    return attended


def _with_confidences(captions: list[Caption], calibration: Calibration) -> list[Caption]:
    confidences = calibration.confidences(captions)
    pairs = zip(captions, confidences, strict=True)
    return [replace(caption, calibrated_confidence=confidence) for caption, confidence in pairs]


def _or_raise(result: ResultT | ImageError) -> ResultT:
    if isinstance(result, ImageError):
        raise result
    return result


def _part_name(part: Decoder | Encoder) -> str:
    """The name that recipes have for a decoder or an encoder; of an ensemble, those of its members."""
    members = getattr(part, "members", None)
    if members is not None:
        return f"ensemble of {', '.join(map(_part_name, members))}"
    return str(getattr(part.config, "name", type(part).__name__))
