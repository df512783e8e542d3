"""A captioner of transformers while its adapters learn: encoder, decoder and vocabulary as training takes them.

A token of the model is the id `token + 4` here: `pad`, `begin`, `end` and `unknown` keep theirs. Given captions are
read in one pass, and the end has the probability of all tokens that end a caption. New captions come from `generate`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from PIL import Image
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.captioners.encoder_decoder import EncoderDecoderCaptioner
from showtell.captioners.hugging_face import TransformersCaptioner
from showtell.captioners.hugging_face_adapters import load_learned, save_adapted
from showtell.captioners.hugging_face_families import Inputs
from showtell.captions import Caption
from showtell.decoding_config import DecodingConfig
from showtell.features import Encoder, EncoderConfig
from showtell.images.preprocessing import Preprocessing
from showtell.models import Decoder, Output, State
from showtell.text.vocabulary import SPECIAL, Vocabulary
from showtell.types import Features, PreparedBatch

# Photos as they are: the model's own processor makes of them what it wants.
FULL_SIZE = Preprocessing(
    image_size=8, resize="none", longest=16_384, interpolation="bicubic", mean=(0, 0, 0), deviation=(1, 1, 1)
)


class TransformersEncoderConfig(EncoderConfig):
    """The processor of a model of transformers, which has no settings here."""

    name: Literal["transformers"] = "transformers"
    trained: bool = Field(False, description="Has to be false: the processor has no weights.")


@dataclass(frozen=True, repr=False)
class PhotoFeatures(Features):
    """B photos, and what the model's processor made of them; there are no vectors."""

    photos: tuple[Image.Image, ...] = ()
    inputs: Inputs = field(default_factory=dict)  # of `generate`


class TransformersEncoder(Encoder):
    """Photos through the processor of a model."""

    preprocessing = FULL_SIZE
    feature_size = 1

    def __init__(self, captioner: TransformersCaptioner, prompt: str | None) -> None:
        super().__init__()
        self.config = TransformersEncoderConfig()
        self.captioner, self.prompt = captioner, prompt

    def forward(self, batch: PreparedBatch) -> PhotoFeatures:
        """The inputs of the model."""
        photos = tuple(Image.fromarray(image.permute(1, 2, 0).cpu().numpy()) for image in batch.images)
        nothing = torch.zeros(len(photos), 1, 1, device=self.captioner.device)
        inputs = self.captioner.inputs(photos, self.prompt)
        return PhotoFeatures(nothing, nothing.squeeze(-1).bool(), None, photos, inputs)

    def rectangles(self, features: Features, windows: Tensor) -> None:
        """Not known."""


class TokenVocabulary(Vocabulary):
    """The tokens of a captioner of transformers as ids."""

    unit = "tokens"

    def __init__(self, captioner: TransformersCaptioner, prompt: str | None) -> None:
        super().__init__(())
        self._captioner, self._follows_word = captioner, captioner.follows_word(prompt)

    def __len__(self) -> int:
        return len(SPECIAL) + self._captioner.generator.vocabulary_size

    def encode_text(self, text: str, max_length: int | None = None) -> list[int]:
        """begin, the tokens of a caption (at most `max_length` of them), end."""
        tokens = self._captioner.tokens_of(text, self._follows_word)[:max_length]
        return [self.begin, *(token + len(SPECIAL) for token in tokens), self.end]

    def unknown_rate(self, captions: object) -> float:
        """0: whatever is written has tokens."""
        return 0.0

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change with any token."""
        content = json.dumps(sorted(self._captioner.tokenizer.get_vocab().items()))
        return hashlib.sha256(content.encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class TokenOutput(Output):
    """The logits of the model's tokens, (B, N, T, V)."""

    logits: Tensor


class TransformersDecoder(Decoder[Tensor, Features, None]):
    """A model of transformers that reads given captions, which follow a prompt."""

    has_fixed_shapes = False  # what its own library does is not known

    def __init__(self, captioner: TransformersCaptioner, prompt: str | None) -> None:
        super().__init__()
        assert captioner.adapted is not None
        self.config = captioner.adapted.config
        self.captioner, self.prompt = captioner, prompt
        self.model: nn.Module = captioner.model

    def start(self, features: Features) -> State[Features, None]:
        """The photos."""
        return State(features, None)

    def step(self, words: Tensor, state: State[Features, None]) -> tuple[Output, State[Features, None]]:
        """Not here: `all_steps` reads given captions, and new ones come from `generate`."""
        raise NotImplementedError("a model of transformers takes its steps in `generate`")

    def all_steps(self, words: Tensor, state: State[Features, None]) -> tuple[TokenOutput, State[Features, None]]:
        """Read captions (B, N, T), `begin` first."""
        assert isinstance(state.image, PhotoFeatures)
        captioner, rows, inputs = self.captioner, words.shape[1], state.image.inputs
        if rows > 1:
            inputs = captioner.inputs([photo for photo in state.image.photos for _ in range(rows)], self.prompt)
        tokens = (words[..., 1:] - len(SPECIAL)).clamp_min(0)  # what stands for padding is behind what counts
        logits = captioner.family.logits(captioner.model, dict(inputs), tokens.flatten(0, 1))
        return TokenOutput(logits=torch.unflatten(logits, 0, tokens.shape[:2])), state

    def readout(self, output: Output, stage: int = -1) -> Tensor:
        """The logits of our ids, (..., 4 + V)."""
        assert isinstance(output, TokenOutput)
        ends = torch.tensor(self.captioner.generator.end_ids, device=output.logits.device)
        others = output.logits.index_fill(-1, ends, float("-inf"))
        ours = F.pad(others, (len(SPECIAL), 0), value=float("-inf"))
        ours[..., Vocabulary.end] = output.logits[..., ends].logsumexp(-1)
        return ours


@dataclass(eq=False, repr=False, kw_only=True)
class TransformersLearner(EncoderDecoderCaptioner):
    """A captioner of transformers while it learns."""

    @property
    def learning(self) -> TransformersCaptioner:
        """The captioner whose adapters learn."""
        assert isinstance(self.decoder, TransformersDecoder)
        return self.decoder.captioner

    def check(self, settings: DecodingConfig) -> DecodingConfig:
        """The same settings, if the model can honour them."""
        return self.learning.check(settings)

    def caption_features(self, features: Features, settings: DecodingConfig | None = None) -> list[list[Caption]]:
        """Captions of photos that `encode` has prepared."""
        assert isinstance(features, PhotoFeatures)
        return self.learning.caption_encoded(features.photos, settings or self.decoding)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write what learned."""
        save_adapted(Path(folder), self.learning, self.decoding, self.origin)

    def load_weights(self, folder: Path) -> None:
        """Take what learned from a checkpoint."""
        load_learned(self.learning, folder)
