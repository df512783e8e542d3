"""Captioners of showtell: an encoder, a decoder and their vocabulary, as a checkpoint has them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from showtell import __version__, checkpoint
from showtell.captioners.contract import Abilities, About, Captioner, Names, PhotoToCaption, Source, Texts, as_list
from showtell.captioners.explaining import explain_batch
from showtell.captioners.saliency import METHODS
from showtell.captions import Attention, Caption, TextLogprobs, Word
from showtell.confidence.familiarity import Floats
from showtell.decoding import SEARCHES, Captions, DecodingConfig, StageView, search
from showtell.decoding.rollout import pad_captions, word_logprobs
from showtell.errors import UsageError, or_raise
from showtell.features import Encoder
from showtell.features.grid import GridEncoder
from showtell.features.store import FeatureStore, StoredImage, collate_features
from showtell.files import listed_paths
from showtell.images.loading import PreparedPhoto, prepare_batches, stack_photos
from showtell.images.photo import PhotoSource
from showtell.models import Capability, Decoder
from showtell.models.attention import masked_mean
from showtell.models.contract import eval_mode
from showtell.text.vocabulary import SPECIAL, Vocabulary
from showtell.types import EncodedBatch, Features, PreparedBatch, map_tensors, upcast_half


@dataclass(eq=False, repr=False, kw_only=True)
class EncoderDecoderCaptioner(Captioner):
    """An encoder, a decoder and their vocabulary; it captions features, too, trains, and has stages."""

    encoder: Encoder
    decoder: Decoder  # of the encoder's features
    vocabulary: Vocabulary  # of the decoder
    decoding: DecodingConfig  # default settings
    origin: dict[str, Any] = field(default_factory=dict)  # of the weights: data, scores, whatever training wrote down
    source: Source | None = None  # what it was opened from
    _stores: set[Path] = field(default_factory=set, init=False)  # of this encoder's features

    def __repr__(self) -> str:
        model, encoder = (_part_name(part) for part in (self.decoder, self.encoder))
        return (
            f"Captioner(model={model}, encoder={encoder}, vocabulary={len(self.vocabulary) - len(SPECIAL)} words, "
            f"weights={self.about.parameters:,}, device={self.device})"
        )

    @property
    def about(self) -> About:
        """What it is and where it comes from."""
        opened: dict[str, Any] = {}
        if self.source is not None:
            opened = {"source" if key == "name" else key: value for key, value in vars(self.source).items()}
        return About(
            name=_part_name(self.decoder),
            library=f"showtell {__version__}",
            parameters=sum(weight.numel() for part in (self.encoder, self.decoder) for weight in part.parameters()),
            preprocessing=self.encoder.preprocessing.model_dump(mode="json"),
            knows=f"has {len(self.vocabulary) - len(SPECIAL):,} words, learned from {_describe_training(self.origin)}.",
            licence=self.origin.get("licence"),
            origin=self.origin,
            **opened,
        )

    @property
    def abilities(self) -> Abilities:
        """What it can do."""
        attention = None
        if Capability.ATTENTION in self.decoder.config.capabilities:
            attention = "grid" if isinstance(self.encoder, GridEncoder) else "regions"
        settings = tuple(name for name in DecodingConfig.model_fields if name != "prompt")
        return Abilities(tuple(SEARCHES), settings, attention, METHODS)

    def check(self, settings: DecodingConfig) -> DecodingConfig:
        """The settings, if this captioner can honour them: it knows the required words and has the stage."""
        if settings.prompt is not None:
            raise UsageError(
                f"{self.about.name} takes no prompt: the models of showtell caption photos alone; leave --prompt out."
            )
        settings = super().check(settings)
        settings.rules(self.vocabulary)
        if settings.stage is not None:
            StageView(self.decoder, settings.stage)
        return settings

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.decoder.parameters()).device

    def to(self, device: str | torch.device) -> Self:
        """Move the weights."""
        self.encoder.to(device)
        self.decoder.to(device)
        return self

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a checkpoint that `from_pretrained` opens."""
        content = checkpoint.Checkpoint(self.encoder, self.decoder, self.vocabulary, self.decoding, self.origin)
        checkpoint.save_checkpoint(Path(folder), content)

    def load_weights(self, folder: Path) -> None:
        """Take the weights of a checkpoint of the same encoder, decoder and vocabulary."""
        saved = checkpoint.load_checkpoint(folder)
        self.encoder.load_state_dict(saved.encoder.state_dict())
        self.decoder.load_state_dict(saved.decoder.state_dict())

    def prepare(self, photo: PhotoToCaption) -> PreparedPhoto | StoredImage:
        """Open a photo and prepare it as the encoder wants it."""
        if isinstance(photo, StoredImage):
            if photo.store.path not in self._stores:
                photo.store.require(self.encoder)
                self._stores.add(photo.store.path)
            return photo
        return self.encoder.prepare(photo)

    def reads(self, store: FeatureStore) -> bool:
        """Whether the features of a store are those of its encoder."""
        return self.encoder.fingerprint() == store.info.fingerprint

    def encode_prepared(self, photos: Sequence[PreparedPhoto | StoredImage]) -> EncodedBatch:
        """The features of prepared photos, or of images of a store.

        Raises:
            DataError: a store lacks an image, or is damaged.
            UsageError: some are photos, and others are images of a store.
        """
        stored = [photo for photo in photos if isinstance(photo, StoredImage)]
        prepared = [photo for photo in photos if isinstance(photo, PreparedPhoto)]
        if stored and prepared:
            raise UsageError("Photos and images of a store cannot be in one batch; caption one kind after the other.")
        if prepared:
            batch = stack_photos(prepared, self.device)
            return EncodedBatch(self.encode(batch), batch.windows, batch)
        images = [photo.read() for photo in stored]
        features = map_tensors(collate_features(images), lambda tensor: upcast_half(tensor.to(self.device)))
        windows = [self.encoder.preprocessing.window(image.extent) for image in images]
        seen, names = torch.tensor(windows, dtype=torch.float32), tuple(photo.image_id for photo in stored)
        info = stored[0].store.info
        return EncodedBatch(features, seen, None, names, info.categories, info.attributes)

    @torch.no_grad()
    def encode(self, batch: PreparedBatch) -> Features:
        """The features of prepared photos, in eval mode."""
        with eval_mode(self.encoder):
            features: Features = self.encoder(batch.to(self.device))
        return features

    def encode_photos(self, photos: Iterable[PhotoSource], batch_size: int = 64) -> Iterator[Features]:
        """The features of photos, batch by batch; an `ImageError` if one of them is no image."""
        for batch in prepare_batches(photos, self.encoder.prepare, batch_size, device=self.device):
            yield self.encode(stack_photos([or_raise(photo) for _, photo in batch], self.device))

    @torch.no_grad()
    def caption_encoded(
        self, photos: EncodedBatch, settings: DecodingConfig, *, image_ids: Names = None, attention: bool = False
    ) -> list[list[Caption]]:
        """The captions of each photo, the best first."""
        names = self.sample_names(photos, settings) if image_ids is None else image_ids
        with eval_mode(self.decoder):
            result = search(
                self.decoder, photos.features, settings, self.vocabulary, image_ids=names, keep_outputs=attention
            )
        captions = self.read_captions(result, settings.num_return_sequences)
        if attention:
            captions = _with_attention(captions, result.attention, photos.features.is_region, self.rectangles(photos))
        return captions

    def rectangles(self, photos: EncodedBatch) -> Tensor | None:
        """Where in its photo each feature vector looks: (B, R, 4) left, top, right, bottom in pixels; None: unknown."""
        return self.encoder.rectangles(photos.features, photos.windows.to(self.device))

    @torch.no_grad()
    def caption_features(self, features: Features, settings: DecodingConfig | None = None) -> list[list[Caption]]:
        """Captions of features that `encode` gives, not calibrated; settings are the checkpoint's own unless given.

        Raises:
            UsageError: the features are of another size, or the model does not know a required word.
        """
        settings = self.check(settings or self.decoding)
        with eval_mode(self.decoder):
            result = search(self.decoder, self._fitting(features), settings, self.vocabulary)
        return self.read_captions(result, settings.num_return_sequences)

    def mean_features(self, photos: EncodedBatch) -> Floats:
        """The mean feature vector of each encoded photo, (B, D)."""
        return masked_mean(photos.features.vectors, photos.features.is_region).double().cpu().numpy()

    def _fitting(self, features: Features) -> Features:
        """Features that a person made, in the precision and on the device of the weights, if they fit."""
        vectors, is_region = features.vectors, features.is_region
        if vectors.dim() != 3 or is_region.shape != vectors.shape[:2] or not bool(is_region.any(-1).all()):
            raise UsageError(
                "Features should have vectors of shape (images, regions, numbers) and is_region of (images, regions), "
                f"not shapes {tuple(vectors.shape)} and {tuple(is_region.shape)} or an image without a region."
            )
        with_boxes = getattr(self.decoder, "region_input", None)
        sizes = {self.encoder.feature_size} | ({with_boxes.size} if with_boxes is not None else set())
        if vectors.shape[-1] not in sizes:
            raise UsageError(
                f"The features have {vectors.shape[-1]:,} numbers to a vector, and {_part_name(self.decoder)} was "
                f"trained on {' or, with those of boxes, '.join(f'{size:,}' for size in sorted(sizes))}."
            )
        dtype = next(self.decoder.parameters()).dtype
        return map_tensors(features, lambda x: x.to(self.device, dtype if x.is_floating_point() else x.dtype))

    def read_captions(self, result: Captions, count: int | None = None) -> list[list[Caption]]:
        """The tensors of a search as words: the best `count` captions of each image, or all of them."""
        columns = (result.words, result.is_word.sum(-1), result.word_logprobs, result.logprob, result.score)
        rows = zip(*(column.tolist() for column in (*columns, result.is_finished)), strict=True)
        return [  # a beam that was not filled has -infinity; NaN is no log-probability, which `Caption` says
            [self._read_caption(*row) for row in zip(*of_image, strict=True) if row[3] != -math.inf][:count]
            for of_image in rows
        ]

    def _read_caption(
        self, ids: list[int], length: int, logprobs: list[float], logprob: float, score: float, is_finished: bool
    ) -> Caption:
        words = [self.vocabulary.words[index] for index in ids[: length - is_finished]]  # without the end
        logprob = logprob if length else math.nan  # neither a word nor the end came: no probability was a number
        return Caption(" ".join(words), logprob, is_finished, tuple(map(Word, words, logprobs)), score)

    def logprobs_encoded(
        self, photos: EncodedBatch, texts: Sequence[Sequence[str | Caption]], settings: DecodingConfig
    ) -> list[list[TextLogprobs]]:
        """The log-probabilities of the texts of each photo, teacher-forced."""
        return self.logprobs_features(photos.features, texts, settings)

    @torch.no_grad()
    def logprobs_features(
        self, features: Features, texts: Sequence[Texts], settings: DecodingConfig | None = None
    ) -> list[list[TextLogprobs]]:
        """The log-probabilities of a text or several of each encoded image, teacher-forced; see `logprobs`.

        Raises:
            UsageError: not as many entries of texts as images, or features of another size.
        """
        given = [as_list(of_image) for of_image in texts]
        logprobs = self.token_logprobs(self._fitting(features), given, (settings or self.decoding).stage).tolist()
        return [
            [
                TextLogprobs(str(text), tuple(map(Word, own, row[: len(own)])), row[len(own)])
                for text, row in zip(of_image, rows, strict=False)
                for own in [self._words_of(text)]
            ]
            for of_image, rows in zip(given, logprobs, strict=True)
        ]

    def token_logprobs(
        self, photos: Features | PreparedBatch, texts: Sequence[Texts], stage: int | None = None
    ) -> Tensor:
        """The log-probabilities of given texts as a tensor with a graph to the weights, the features and the pixels.

        In eval mode. `docs/explaining.md` has an example for each kind of gradient.

        Args:
            photos: of B images the features, or prepared photos, whose pixels may be floats from 0 to 255 that require
                a gradient. Encoders that detect regions, and ResNet with the weights of Caffe, give none to pixels.
            texts: of each image a text or several, at most N; see `logprobs`.
            stage: of a model with several (default: the last).

        Returns:
            (B, N, T) natural logarithms of each word and, behind the last, of the end; 0 for padding.

        Raises:
            UsageError: not as many entries of texts as images.
        """
        count = len(photos.vectors) if isinstance(photos, Features) else len(photos)
        if len(texts) != count:
            raise UsageError(f"There are {len(texts)} entries of texts for {count} images.")
        ids = [[self.vocabulary.encode(self._words_of(text)) for text in as_list(of_image)] for of_image in texts]
        decoder = self.decoder if stage is None else StageView(self.decoder, stage)
        with eval_mode(self.encoder), eval_mode(decoder):
            features = photos if isinstance(photos, Features) else self.encoder(photos.to(self.device))
            return word_logprobs(decoder, features, pad_captions(ids).to(self.device))

    def _words_of(self, text: str | Caption) -> list[str]:
        """The words of a text, or those that a caption was made of."""
        return self.vocabulary.split(text) if isinstance(text, str) else [word.word for word in text.words]

    explain_encoded = explain_batch

    def sample_names(self, photos: EncodedBatch, settings: DecodingConfig) -> Sequence[str] | None:
        """What the samples of each photo depend on: its pixels, or its id in the store."""
        if settings.kind != "sample":
            return None
        return photos.names if photos.photos is None else [pixel_hash(image) for image in photos.photos.images]


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
            "This captioner has no attention to show: its model sees the whole photo at once; leave attention out."
        )
    for image, of_image in enumerate(captions):
        regions = is_region[image]
        own = None if boxes is None else boxes[image, regions].cpu()
        weights = attention[image, ..., regions].cpu()  # (K, T, R of this image)
        captions[image] = [
            replace(caption, attention=Attention(weights[row, : len(caption.words)], own))
            for row, caption in enumerate(of_image)
        ]
    return captions


def _describe_training(origin: dict[str, Any]) -> str:
    """What a captioner learned from, the last first."""
    if not isinstance(origin.get("data"), str):
        return "data that its checkpoint does not name"
    paths = [Path(path) for path in listed_paths(origin["data"])]
    data = " and ".join(path.name if path.is_absolute() else str(path) for path in paths)
    images = origin.get("train_images")
    photos = f"{images:,} photo{'s' * (images != 1)}" if isinstance(images, int) else "the photos"
    description = f"{photos} of {data}"
    if "trained" in origin:
        description += f" ({origin['trained']})"
    if "about" in origin:
        description += f": {origin['about']}"
    before = origin.get("before")
    return f"{description}; before that from {_describe_training(before)}" if isinstance(before, dict) else description


def _part_name(part: Decoder | Encoder) -> str:
    """The name that recipes have for a decoder or an encoder."""
    return str(getattr(part.config, "name", type(part).__name__))
