"""Open a checkpoint, give it a photo, get a caption."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from showtell import checkpoint
from showtell.decoding import Captions, DecodingConfig, search
from showtell.errors import ImageError, UsageError, nearest
from showtell.features import Encoder
from showtell.images.loading import read_ahead, stack_images
from showtell.images.photo import open_photo
from showtell.models import Decoder
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features


@dataclass(frozen=True)
class Word:
    """One word of a caption."""

    word: str
    logprob: float  # natural logarithm of its probability, given the image and the words before


@dataclass(frozen=True)
class Caption:
    """One caption of one image."""

    text: str
    logprob: float  # of the whole caption, its end included
    finished: bool  # false where the limit on the length cut it off
    words: tuple[Word, ...]

    def to_json(self) -> dict[str, Any]:
        """As `showtell caption --format json` writes it."""
        return {
            "text": self.text,
            "logprob": self.logprob,
            "finished": self.finished,
            "words": [{"word": word.word, "logprob": word.logprob} for word in self.words],
        }


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

    @classmethod
    def from_pretrained(cls, path_or_hub_id: str | Path, device: str | torch.device | None = None) -> Captioner:
        """Open a checkpoint.

        Args:
            path_or_hub_id: a folder, or the name of a repository on the Hugging Face hub; an existing folder wins.
            device: where to compute; None is a GPU if there is one.

        Raises:
            CheckpointError: there is none, or it is damaged.
        """
        captioner = cls(**checkpoint.load_checkpoint(checkpoint.find_checkpoint(path_or_hub_id)))
        return captioner.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a checkpoint that `from_pretrained` opens."""
        checkpoint.save_checkpoint(
            Path(folder),
            encoder=self.encoder,
            decoder=self.decoder,
            vocabulary=self.vocabulary,
            decoding=self.decoding,
            about=self.about,
        )

    def to(self, device: str | torch.device) -> Captioner:
        """Move the weights."""
        self.encoder.to(device)
        self.decoder.to(device)
        return self

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.decoder.parameters()).device

    def caption(self, photo: str | Path | Image.Image, **decoding: Any) -> list[Caption]:
        """Captions of one photo, the likeliest first.

        Args:
            photo: a file or an image.
            decoding: fields of `DecodingConfig` in place of the checkpoint's, such as num_beams=5.

        Raises:
            ImageError: the file is no image.
            UsageError: an unknown decode setting or a value out of range.
        """
        settings = self.settings(**decoding)
        image = photo.convert("RGB") if isinstance(photo, Image.Image) else open_photo(Path(photo))
        preprocessing = self.encoder.preprocessing
        windows = torch.tensor([preprocessing.window(image.size)])
        return self.caption_images(preprocessing.prepare(image).unsqueeze(0), settings, windows=windows)[0]

    def caption_files(
        self, paths: Iterable[Path], settings: DecodingConfig | None = None, batch_size: int = 16
    ) -> Iterator[tuple[Path, list[Caption] | ImageError]]:
        """Captions of many files, batch by batch, in their order. A file that is no image gives its error."""
        for chunk in read_ahead(paths, self.encoder.preprocessing, batch_size, first_alone=True):
            photos = [photo for _, photo in chunk if not isinstance(photo, ImageError)]
            captions: Iterator[list[Caption]] = iter(())
            if photos:
                windows = torch.tensor([photo.window for photo in photos])
                captions = iter(
                    self.caption_images(stack_images([photo.pixels for photo in photos]), settings, windows=windows)
                )
            for path, photo in chunk:
                yield path, photo if isinstance(photo, ImageError) else next(captions)

    def caption_images(
        self,
        images: Tensor | Sequence[Tensor],
        settings: DecodingConfig | None = None,
        *,
        windows: Tensor | None = None,
    ) -> list[list[Caption]]:
        """Captions of prepared photos.

        Args:
            images: (B, 3, height, width) uint8, or B of (3, height, width), from `encoder.preprocessing.prepare`.
            settings: None is the checkpoint's own.
            windows: (B, 4), from `encoder.preprocessing.window`.
        """
        return self.caption_features(self.encode(images, windows), settings)

    def encode_files(self, paths: Iterable[Path], batch_size: int = 64) -> Iterator[Features]:
        """The features of photos, batch by batch.

        Raises:
            ImageError: a file is no image.
        """
        for chunk in read_ahead(paths, self.encoder.preprocessing, batch_size):
            photos = []
            for _, photo in chunk:
                if isinstance(photo, ImageError):
                    raise photo
                photos.append(photo)
            windows = torch.tensor([photo.window for photo in photos])
            yield self.encode(stack_images([photo.pixels for photo in photos]), windows)

    @torch.no_grad()
    def encode(self, images: Tensor | Sequence[Tensor], windows: Tensor | None = None) -> Features:
        """The features of prepared photos, in eval mode. See `caption_images`."""
        was_training = self.encoder.training
        self.encoder.eval()
        images = images.to(self.device) if isinstance(images, Tensor) else [image.to(self.device) for image in images]
        features = self.encoder(images, None if windows is None else windows.to(self.device))
        self.encoder.train(was_training)
        return features

    @torch.no_grad()
    def caption_features(self, features: Features, settings: DecodingConfig | None = None) -> list[list[Caption]]:
        """Captions of encoded images, in eval mode."""
        settings = settings or self.decoding
        was_training = self.decoder.training
        self.decoder.eval()
        found = search(self.decoder, features, settings)
        self.decoder.train(was_training)
        return self._read(found, settings.num_return_sequences)

    def settings(self, **changes: Any) -> DecodingConfig:
        """The checkpoint's decode settings with some of them changed.

        Raises:
            UsageError: an unknown name, or a value out of range.
        """
        for name in changes:
            if name not in DecodingConfig.model_fields:
                raise UsageError(f'There is no decode setting "{name}"; {nearest(name, DecodingConfig.model_fields)}.')
        return DecodingConfig.checked({**self.decoding.model_dump(), **changes})

    def _read(self, found: Captions, wanted: int) -> list[list[Caption]]:
        """Tensors to words."""
        read = []
        lengths = found.is_word.sum(-1).tolist()
        rows = zip(
            found.words.tolist(), lengths, found.word_logprobs.tolist(), found.logprob.tolist(),
            found.is_finished.tolist(), strict=True,
        )  # fmt: skip
        for image in rows:
            captions = []
            for ids, length, logprobs, logprob, finished in zip(*image, strict=True):
                if logprob == float("-inf"):  # a vocabulary with fewer captions than beams
                    continue
                said = length - 1 if finished else length
                words = [self.vocabulary.words[index] for index in ids[:said]]
                captions.append(
                    Caption(
                        " ".join(words),
                        logprob,
                        finished,
                        tuple(Word(*pair) for pair in zip(words, logprobs[:said], strict=True)),
                    )
                )
            read.append(captions[:wanted])
        return read
