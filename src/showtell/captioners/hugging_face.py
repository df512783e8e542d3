"""Captioners of Hugging Face transformers: BLIP, GIT, Florence-2, chat models with pictures, and whatever comes next.

Photos go through their processor, captions come from their `generate`. A token of theirs is a piece of a word, so a
caption has both: `Caption.tokens`, and words whose log-probabilities are the sums of those of their tokens.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from PIL import Image
from torch import Tensor

from showtell.captioners.contract import Abilities, About, Captioner, PhotoToCaption, Source
from showtell.captioners.hugging_face_explaining import attention_of, explain_batch
from showtell.captioners.hugging_face_families import Family, Inputs, Processor, patch_grid
from showtell.captioners.hugging_face_generation import Generated, TokenIds, force, rows_that_fit, search
from showtell.captioners.hugging_face_words import TokenTexts, bad_sequences, encode
from showtell.captions import Caption, ModelExplanation, TextLogprobs, Token
from showtell.decoding_config import DecodingConfig
from showtell.errors import CheckpointError, ImageError, ShowtellError, UsageError, first_line, shorten
from showtell.features.store import StoredImage
from showtell.hub import quiet
from showtell.images.photo import IN_MEMORY, to_photo

SEARCHES = ("greedy", "beam", "sample")
SETTINGS = (
    "search", "num_return_sequences", "min_length", "max_length", "no_repeat_ngram_size", "bad_words", "no_unknown",
    "num_beams", "length_normalisation", "length_penalty", "temperature", "top_k", "top_p", "seed",
)  # fmt: skip
ODD_SHAPE, ODD_SIDE = 50, 16  # a ratio of sides, and pixels, from which on a photo is tried beforehand


@dataclass
class PhotoBatch:
    """Photos on their way through a model."""

    images: list[Image.Image]
    inputs: dict[tuple[str | None, int, int], Inputs] = field(default_factory=dict)  # by prompt, first and last photo


class TransformersCaptioner(Captioner):
    """A captioning model of transformers with its processor."""

    def __init__(
        self,
        *,
        model: Any,
        processor: Processor,
        family: Family,
        decoding: DecodingConfig,
        source: Source,
        dtype: str = "fp32",
        licence: str | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            model: of transformers, that generates text from photos.
            processor: of the model.
            family: how models of its type caption.
            decoding: default settings.
            source: what it was opened from.
            dtype: precision of the weights, one of `opening.DTYPES`.
            licence: of the weights.
        """
        self.model = model.eval()
        self.processor = processor
        self.texts = TokenTexts(processor.tokenizer)
        self.family = family
        self.decoding = decoding
        self.dtype = dtype
        self.source = source
        self._licence = licence
        self._after_word: dict[str, bool] = {}  # by prompt, whether a caption stands right behind a word of it

    def __repr__(self) -> str:
        return (
            f"Captioner(model={self.name}, library={self._library}, weights={self._parameters:,}, device={self.device})"
        )

    # --- what it is ---

    @property
    def name(self) -> str:
        """Of the model, for people: that of its repository or folder."""
        return self.source.name.partition("@")[0] if self.source.revision else self.source.folder.resolve().name

    @property
    def model_type(self) -> str:
        """The type that transformers has it under."""
        return str(self.model.config.model_type)

    @property
    def about(self) -> About:
        """What it is and where it comes from. Its weights are hashed when it is asked for the first time."""
        fingerprints = {"weights": self._fingerprint}
        if self.dtype != "fp32":
            fingerprints["dtype"] = self.dtype
        return About(
            name=self.name,
            library=self._library,
            parameters=self._parameters,
            preprocessing=_plain(self.processor.images.to_dict()),
            source=self.source.name,
            folder=self.source.folder,
            revision=self.source.revision,
            fingerprints=fingerprints,
            licence=self._licence,
            origin={
                "model_type": self.model_type,
                "class": type(self.model).__name__,
                "dtype": self.dtype,
                "prompt": self.decoding.prompt,
            },
        )

    @property
    def abilities(self) -> Abilities:
        """What it can do."""
        return Abilities(
            searches=SEARCHES,
            settings=(*SETTINGS, *(("prompt",) if self.family.takes_prompt else ())),
            attention="grid" if self.patches else None,
        )

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        device: torch.device = next(iter(self.model.parameters())).device
        return device

    @property
    def memory_bytes(self) -> int:
        """Bytes of its weights."""
        return sum(tensor.nbytes for tensor in (*self.model.parameters(), *self.model.buffers()))

    def to(self, device: str | torch.device) -> Self:
        """Move the weights."""
        self.model.to(device)
        return self

    @property
    def patches(self) -> int | None:
        """Patches along each side of a photo that the cross-attention of the text is over; None: there is none."""
        return patch_grid(self.model_type, self.model.config)

    @property
    def tokenizer(self) -> Any:
        """Of the model."""
        return self.processor.tokenizer

    @property
    def part(self) -> Any:
        """The part of the model that generates."""
        return self.family.generating_part(self.model)

    @property
    def _library(self) -> str:
        import transformers

        return f"transformers {transformers.__version__}"

    @cached_property
    def _parameters(self) -> int:
        return sum(weight.numel() for weight in self.model.parameters())

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for file in sorted(self.source.folder.glob("*.safetensors")):
            digest.update(_sha256(file).encode())
        return digest.hexdigest()[:12]

    def check(self, settings: DecodingConfig) -> DecodingConfig:
        """The same settings, if this captioner can honour them."""
        super().check(settings)
        if settings.length_normalisation == "wu":
            raise UsageError(
                f"{self.name} cannot honour length_normalisation=wu, which transformers does not have; use average, "
                "or none."
            )
        self.family.check_prompt(settings.prompt, self.name)
        limit = self.position_limit
        if limit is not None and settings.max_length > limit:
            raise UsageError(
                f"max_length={settings.max_length} is more than the {limit} tokens that {self.name} has positions for."
            )
        return settings

    @property
    def position_limit(self) -> int | None:
        """How many tokens the model can read, where it has a limit."""
        config = self.part.config.get_text_config(decoder=True)
        limits = (getattr(config, name, None) for name in ("max_position_embeddings", "n_positions"))
        return next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)

    # --- photos ---

    def prepare(self, photo: PhotoToCaption, boxes: Tensor | None = None) -> Image.Image:
        """Open a photo, upright and in RGB, in its full size: the processor of the model makes of it what it wants."""
        assert not isinstance(photo, StoredImage)  # `Captioner` refuses those
        image = to_photo(photo).image
        if max(image.size) > ODD_SHAPE * min(image.size) or min(image.size) < ODD_SIDE:
            self._try(image, str(photo) if isinstance(photo, str | Path) else IN_MEMORY)
        return image

    def _try(self, image: Image.Image, name: str) -> None:
        """Whether the processor takes a photo of a shape that some refuse."""
        try:
            with quiet():
                self.processor.images(images=[image], return_tensors="pt")
        except Exception as error:  # each processor has its own
            raise ImageError(
                f"{name} is {image.width} x {image.height} pixels, which the processor of {self.name} does not take: "
                f"{first_line(error)}."
            ) from error

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Inside the block whatever goes wrong in transformers is one sentence.

        Raises:
            CheckpointError: a processor, template or model that does not fit its repository's other files, or a prompt
                that its family cannot take.
        """
        try:
            yield
        except ShowtellError:
            raise
        except Exception as error:  # each model, processor and template fails in its own way
            raise CheckpointError(
                f"{self.name} cannot caption with {self._library} ({type(error).__name__}: "
                f"{shorten(first_line(error))}); check its prompt, if you gave one, and its files."
            ) from error

    def encode_prepared(self, photos: Sequence[Image.Image]) -> PhotoBatch:
        """Photos together. The model looks at them when it is known what it is asked."""
        return PhotoBatch(list(photos))

    def inputs(self, images: Sequence[Image.Image], prompt: str | None) -> Inputs:
        """The arguments of `generate` for photos, on the device and in the precision of the model."""
        with quiet(), self.errors():
            made = self.family.inputs(self.processor, images, prompt)
        placed = {}
        for name, value in made.items():
            if isinstance(value, Tensor):
                value = value.to(self.device, self.model.dtype) if value.is_floating_point() else value.to(self.device)
            placed[name] = value
        return placed

    def chunks(self, photos: PhotoBatch, prompt: str | None, size: int) -> list[tuple[int, int, Inputs]]:
        """The inputs of photos, at most so many at a time, with the first photo and the one behind the last."""
        chunks = []
        for start in range(0, len(photos.images), size):
            stop = min(start + size, len(photos.images))
            key = (prompt, start, stop)
            if key not in photos.inputs:
                photos.inputs[key] = self.inputs(photos.images[start:stop], prompt)
            chunks.append((start, stop, photos.inputs[key]))
        return chunks

    # --- captions ---

    def caption_encoded(
        self,
        photos: PhotoBatch,
        settings: DecodingConfig,
        *,
        image_ids: Sequence[str] | None = None,
        attention: bool = False,
    ) -> list[list[Caption]]:
        """The captions of each photo, the best first."""
        generated = self.search(photos, settings, image_ids)
        maps = attention_of(self, photos, generated, settings.prompt) if attention else None
        return [
            [self._caption_of(one, None if maps is None else maps[image][rank]) for rank, one in enumerate(of_image)]
            for image, of_image in enumerate(generated)
        ]

    def search(
        self, photos: PhotoBatch, settings: DecodingConfig, image_ids: Sequence[str] | None
    ) -> list[list[Generated]]:
        """The tokens of the captions of each photo."""
        names = image_ids
        if names is None:
            names = [_pixel_hash(image) if settings.kind == "sample" else "" for image in photos.images]
        bad = bad_sequences(self.tokenizer, settings.bad_words, no_unknown=settings.no_unknown)
        is_beam = settings.kind == "beam"
        rows = settings.num_beams if is_beam else settings.num_return_sequences
        size = rows_that_fit(self._vocabulary, settings.max_length + 2, rows, scores=is_beam)
        generated = []
        for start, stop, inputs in self.chunks(photos, settings.prompt, size):
            with self.errors():
                generated += search(self.model, self.part, inputs, settings, self._token_ids(bad), names[start:stop])
        return generated

    def _caption_of(self, generated: Generated, attention: Any) -> Caption:
        text, words = self.texts.words_of(generated.tokens, generated.logprobs)
        return Caption(
            text,
            generated.logprob,
            generated.finished,
            words,
            generated.logprob if generated.score is None else generated.score,
            attention=attention,
            tokens=self.tokens_of(generated),
        )

    def tokens_of(self, generated: Generated) -> tuple[Token, ...]:
        """The tokens of a caption."""
        return self.texts.tokens_of(generated.tokens, generated.logprobs)

    @property
    def _vocabulary(self) -> int:
        return int(self.part.config.get_text_config(decoder=True).vocab_size)

    def _token_ids(self, bad: tuple[tuple[int, ...], ...] = ()) -> TokenIds:
        begin = getattr(self.part.generation_config, "forced_bos_token_id", None)
        return TokenIds(self.family.end_ids(self.model), self._vocabulary, begin, bad)

    # --- given texts ---

    def logprobs_encoded(
        self, photos: PhotoBatch, texts: Sequence[Sequence[str | Caption]], settings: DecodingConfig
    ) -> list[list[TextLogprobs]]:
        """The log-probabilities of the texts of each photo, teacher-forced."""
        tokens = [[self.tokens_of_text(text, settings.prompt) for text in of_image] for of_image in texts]
        forced = self.force(photos, tokens, settings.prompt)
        results = []
        for of_image, rows in zip(texts, forced, strict=True):
            entries = []
            for text, row in zip(of_image, rows, strict=True):
                words = self.texts.words_of(row.tokens, row.logprobs)[1]
                entries.append(TextLogprobs(str(text), words, row.end, self.tokens_of(row)))
            results.append(entries)
        return results

    def tokens_of_text(self, text: str | Caption, prompt: str | None) -> list[int]:
        """The tokens that a text has as a caption; those of a `Caption` are its own.

        Raises:
            UsageError: the model has fewer positions.
        """
        if isinstance(text, Caption) and text.tokens:
            tokens = [token.id for token in text.tokens]
        else:
            tokens = encode(self.tokenizer, str(text), follows_word=self._follows_word(prompt))
        limit = self.position_limit
        if limit is not None and len(tokens) >= limit:
            raise UsageError(
                f'The text "{shorten(str(text))}" is {len(tokens)} tokens long, and {self.name} has positions for '
                f"{limit}; shorten it."
            )
        return tokens

    def _follows_word(self, prompt: str | None) -> bool:
        """Whether a caption stands right behind a word of the prompt, so that its first token has a space."""
        if not prompt or self.part.config.is_encoder_decoder:
            return False
        if prompt not in self._after_word:
            self._after_word[prompt] = self._ends_in_word(prompt)
        return self._after_word[prompt]

    def _ends_in_word(self, prompt: str) -> bool:
        blank = Image.new("RGB", (64, 64))
        ids = self.inputs([blank], prompt)["input_ids"][0].tolist()
        if ids[-1] in self.tokenizer.all_special_ids:
            return False
        last = self.tokenizer.decode(ids[-1:])
        return bool(last) and not last[-1].isspace()

    def force(
        self,
        photos: PhotoBatch,
        tokens: Sequence[Sequence[Sequence[int]]],
        prompt: str | None,
        *,
        keep_logits: bool = False,
    ) -> list[list[Generated]]:
        """The captions of each photo with given tokens; see `hugging_face_generation.force`."""
        most = max(map(len, tokens))
        if not most:
            return [[] for _ in tokens]
        padded = [[*of_image, *[[]] * (most - len(of_image))] for of_image in tokens]
        longest = max(len(text) for of_image in tokens for text in of_image)
        forced: list[list[Generated]] = []
        for start, stop, inputs in self.chunks(photos, prompt, rows_that_fit(self._vocabulary, longest + 2, most)):
            with self.errors():
                forced += force(
                    self.model, self.part, inputs, padded[start:stop], self._token_ids(), keep_logits=keep_logits
                )
        return [rows[: len(of_image)] for rows, of_image in zip(forced, tokens, strict=True)]

    # --- explanations ---

    def explain_encoded(
        self,
        photos: PhotoBatch,
        settings: DecodingConfig,
        *,
        image_ids: Sequence[str] | None = None,
        occlusion: str | None = None,
    ) -> list[ModelExplanation]:
        """The best caption of each photo, explained."""
        return explain_batch(self, photos, settings, image_ids, occlusion)


def _pixel_hash(image: Image.Image) -> str:
    """What the samples of a photo depend on: what is in the picture and nothing else."""
    return hashlib.sha256(f"{image.size}".encode() + image.tobytes()).hexdigest()


def _sha256(file: Path) -> str:
    stored = file.resolve()
    if stored.parent.name == "blobs" and len(stored.name) == 64:  # the cache of the hub names large files by it
        return stored.name
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """What of the settings of a processor is plain data."""
    return {
        name: list(value) if isinstance(value, tuple) else value.value if isinstance(value, Enum) else value
        for name, value in values.items()
        if isinstance(value, str | int | float | bool | list | tuple | dict)
    }
