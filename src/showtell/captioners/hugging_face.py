"""Captioners of Hugging Face transformers: BLIP, GIT, Florence-2, chat models with pictures, and whatever comes next.

Photos go through their processor, captions come from their `generate`. A token of theirs is a piece of a word, so a
caption has both: `Caption.tokens`, and words whose log-probabilities are the sums of those of their tokens.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import torch
from PIL import Image

from showtell.captioners.contract import Abilities, About, Captioner, Names, PhotoToCaption, Source
from showtell.captioners.hugging_face_explaining import explain_batch
from showtell.captioners.hugging_face_families import Family, Inputs, Photos, Processor
from showtell.captioners.hugging_face_generation import Generated, Generator
from showtell.captioners.hugging_face_words import bad_sequences, encode, read_tokens
from showtell.captions import Caption, TextLogprobs
from showtell.decoding_config import DecodingConfig
from showtell.errors import CheckpointError, ShowtellError, UsageError, first_line, shorten
from showtell.features.store import StoredImage
from showtell.hub import quiet
from showtell.images.photo import to_photo

SEARCHES = ("greedy", "beam", "sample")
SETTINGS = (
    "search", "num_return_sequences", "min_length", "max_length", "no_repeat_ngram_size", "bad_words", "no_unknown",
    "num_beams", "length_penalty", "temperature", "top_k", "top_p", "seed",
)  # fmt: skip
LOGITS_MEMORY = 2 * 2**30  # bytes of logits that a call of generate may keep
Generate = Callable[[Inputs, slice], list[list[Generated]]]  # of the photos in a slice


@dataclass(frozen=True)
class Adapted:
    """How a captioner differs from the one that it was."""

    config: Any  # `hugging_face_adapters.TransformersConfig`
    base: Source  # with the fingerprint of its weights
    tuner: Any  # of peft, which put adapters into the model
    origin: dict[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def translate_errors(failure: str, advice: str) -> Iterator[None]:
    """Inside the block transformers is quiet, and whatever goes wrong in it is a `CheckpointError` of one sentence."""
    import transformers

    try:
        with quiet():
            yield
    except ShowtellError:
        raise
    except Exception as error:  # each model, processor and template fails in its own way
        reason = f"{type(error).__name__}: {shorten(first_line(error))}"
        raise CheckpointError(
            f"{failure} with transformers {transformers.__version__} ({reason}); {advice}."
        ) from error


@dataclass(eq=False, repr=False, kw_only=True)
class TransformersCaptioner(Captioner):
    """A captioning model of transformers with its processor."""

    model: Any  # generates text from photos
    processor: Processor
    family: Family  # how models of its type caption
    decoding: DecodingConfig  # default settings
    source: Source  # what it was opened from
    dtype: str = "fp32"  # precision of the weights, one of `opening.DTYPES`
    licence: str | None = None  # of the weights
    adapted: Adapted | None = None  # what has learned since

    def __post_init__(self) -> None:
        self.tokenizer = self.processor.tokenizer
        self.generator = Generator(self.model.eval(), self.family.generating_part(self.model))

    def __repr__(self) -> str:
        return (
            f"Captioner(model={self.name}, library={self._library}, weights={self.model.num_parameters():,}, "
            f"device={self.device})"
        )

    @property
    def name(self) -> str:
        """The model's name in messages: that of its repository or folder."""
        if self.adapted is not None and self.source.folder != self.adapted.base.folder:
            return f"{self.adapted.base.name}, adapted,"
        return self.source.name.partition("@")[0] if self.source.revision else self.source.folder.resolve().name

    @property
    def about(self) -> About:
        """What it is and where it comes from. Its weights are hashed when it is asked for the first time."""
        precision = {} if self.dtype == "fp32" else {"dtype": self.dtype}
        return About(
            name=self.name,
            library=self._library,
            parameters=self.model.num_parameters(),
            preprocessing=json.loads(self.processor.images.to_json_string()),
            knows="was trained by others: its model card says on what."
            if self.adapted is None
            else f"is {self.adapted.base.name} and what it learned from {self.adapted.origin.get('data', 'nothing')}.",
            source=self.source.name,
            folder=self.source.folder,
            revision=self.source.revision,
            fingerprints={"weights": self._fingerprint, **precision},
            licence=self.licence,
            origin={
                "model_type": self.model.config.model_type, "class": type(self.model).__name__, "dtype": self.dtype,
                "prompt": self.decoding.prompt, **(self.adapted.origin if self.adapted else {}),
            },
        )  # fmt: skip

    @property
    def abilities(self) -> Abilities:
        """What it can do."""
        prompt = ("prompt",) if self.family.takes_prompt else ()
        return Abilities(SEARCHES, (*SETTINGS, *prompt))

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return torch.device(self.model.device)

    def to(self, device: str | torch.device) -> Self:
        """Move the weights."""
        self.model.to(device)
        return self

    @property
    def _library(self) -> str:
        import transformers

        return f"transformers {transformers.__version__}"

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256(self.adapted.base.fingerprints["weights"].encode() if self.adapted else b"")
        for file in sorted(self.source.folder.glob("*.safetensors")):
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").hexdigest().encode())
        return digest.hexdigest()[:12]

    def check(self, settings: DecodingConfig) -> DecodingConfig:
        """The settings, if this captioner can honour them."""
        settings = super().check(settings)
        if self.family.prompts and settings.prompt not in self.family.prompts:
            raise UsageError(
                f'{self.name} captions for the prompts {", ".join(self.family.prompts)}, not for "{settings.prompt}".'
            )
        limit = self.position_limit
        if limit is not None and settings.max_length > limit:
            raise UsageError(
                f"max_length={settings.max_length} is more than the {limit} tokens that {self.name} has positions for."
            )
        return settings

    @property
    def position_limit(self) -> int | None:
        """The maximum number of tokens that the model can read; None if it has no limit."""
        config = self.generator.part.config.get_text_config(decoder=True)
        limits = (getattr(config, name, None) for name in ("max_position_embeddings", "n_positions"))
        return next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)

    def prepare(self, photo: PhotoToCaption) -> Image.Image:
        """Open a photo, upright and in RGB, in its full size: the processor of the model makes of it what it wants."""
        if isinstance(photo, StoredImage):
            raise UsageError(f"{self.name} looks at photos itself and reads no features from a store; give it photos.")
        return to_photo(photo).image

    def encode_prepared(self, photos: Photos) -> Photos:
        """The photos themselves: the model looks at them once it knows the prompt."""
        return photos

    def inputs(self, images: Photos, prompt: str | None) -> Inputs:
        """The arguments of `generate` for photos, on the device and in the precision of the model."""
        from transformers import BatchFeature

        inputs = BatchFeature(self.family.inputs(self.processor, images, prompt))
        return dict(inputs.to(self.device, dtype=self.model.dtype))

    def errors(self) -> contextlib.AbstractContextManager[None]:
        """See `translate_errors`: files that do not fit each other, or a prompt that the model cannot take."""
        return translate_errors(f"{self.name} cannot caption", "check its prompt, if you gave one, and its files")

    def caption_encoded(
        self, photos: Photos, settings: DecodingConfig, *, image_ids: Names = None, attention: bool = False
    ) -> list[list[Caption]]:
        """The captions of each photo, the best first."""
        if attention:
            raise UsageError(
                f"{self.name} has no attention to show: models of transformers have no map of words over the photo; "
                "leave attention out, or explain with saliency=pixels."
            )
        return [list(map(self.caption_of, rows)) for rows in self.search(photos, settings, image_ids)]

    def search(
        self, photos: Photos, settings: DecodingConfig, image_ids: Names = None, *, keep_logits: bool = False
    ) -> list[list[Generated]]:
        """The tokens of the captions of each photo."""
        names = image_ids or [_pixel_hash(image) if settings.kind == "sample" else "" for image in photos]
        bad = bad_sequences(self.tokenizer, settings.bad_words, no_unknown=settings.no_unknown)
        rows = settings.num_beams if settings.kind == "beam" else settings.num_return_sequences

        def generate(inputs: Inputs, of_call: slice) -> list[list[Generated]]:
            return self.generator.search(inputs, settings, bad, names[of_call], keep_logits)

        return self._in_calls(photos, settings.prompt, settings.max_length + 2, rows, generate)

    def _in_calls(
        self, photos: Photos, prompt: str | None, steps: int, rows: int, generate: Generate
    ) -> list[list[Generated]]:
        """Results for as many photos at a time as fit into memory, each with the logits of these steps and rows."""
        count = max(1, LOGITS_MEMORY // (2 * 4 * self.generator.vocabulary_size * steps * rows))
        results: list[list[Generated]] = []
        for start in range(0, len(photos), count):
            of_call = slice(start, start + count)
            with self.errors():
                results += generate(self.inputs(photos[of_call], prompt), of_call)
        return results

    def caption_of(self, generated: Generated) -> Caption:
        """A caption of tokens."""
        text, words, tokens = read_tokens(self.tokenizer, generated.tokens, generated.logprobs)
        score = generated.logprob if generated.score is None else generated.score
        return Caption(text, generated.logprob, generated.finished, words, score, tokens=tokens)

    def logprobs_encoded(
        self, photos: Photos, texts: Sequence[Sequence[str | Caption]], settings: DecodingConfig
    ) -> list[list[TextLogprobs]]:
        """The log-probabilities of the texts of each photo, teacher-forced."""
        follows_word = self.follows_word(settings.prompt)
        tokens = [[self.tokens_of(text, follows_word) for text in of_image] for of_image in texts]
        forced = self.force(photos, tokens, settings.prompt)

        def read(text: str | Caption, row: Generated) -> TextLogprobs:
            _, words, tokens = read_tokens(self.tokenizer, row.tokens, row.logprobs)
            return TextLogprobs(str(text), words, row.end, tokens)

        return [list(map(read, of_image, rows)) for of_image, rows in zip(texts, forced, strict=True)]

    def tokens_of(self, text: str | Caption, follows_word: bool) -> list[int]:
        """The tokens that a text has as a caption; those of a `Caption` are its own."""
        if isinstance(text, Caption) and text.tokens:
            tokens = [token.id for token in text.tokens]
        else:
            encoded = encode(self.tokenizer, str(text), follows_word=follows_word)
            tokens = [token for token in encoded if token not in self.generator.end_ids]
        limit = self.position_limit
        if limit is not None and len(tokens) >= limit:
            raise UsageError(
                f'The text "{shorten(str(text))}" is {len(tokens)} tokens long, and {self.name} has positions for '
                f"{limit}; shorten it."
            )
        return tokens

    def follows_word(self, prompt: str | None) -> bool:
        """Whether a caption stands right behind a word of the prompt, so that its first token has a space."""
        if not prompt or self.generator.part.config.is_encoder_decoder:
            return False
        with self.errors():
            last = self.inputs([Image.new("RGB", (64, 64))], prompt)["input_ids"][0, -1].item()
        text = "" if last in self.tokenizer.all_special_ids else self.tokenizer.decode([last])
        return bool(text) and not text[-1].isspace()

    def force(
        self, photos: Photos, tokens: Sequence[Sequence[Sequence[int]]], prompt: str | None
    ) -> list[list[Generated]]:
        """The captions of each photo with given tokens; see `Generator.force`."""
        most = max(map(len, tokens))
        if not most:
            return [[] for _ in tokens]
        padded = [[*of_image, *[[]] * (most - len(of_image))] for of_image in tokens]
        steps = max(len(text) for of_image in tokens for text in of_image) + 2
        forced = self._in_calls(
            photos, prompt, steps, most, lambda inputs, call: self.generator.force(inputs, padded[call])
        )
        return [rows[: len(of_image)] for rows, of_image in zip(forced, tokens, strict=True)]

    explain_encoded = explain_batch


def _pixel_hash(image: Image.Image) -> str:
    """What the samples of a photo depend on: what is in the picture and nothing else."""
    return hashlib.sha256(f"{image.size}".encode() + image.tobytes()).hexdigest()
