"""A captioner of transformers as training takes one: encoder, decoder and vocabulary on the contracts of showtell.

A token of the model is the id `token + 4` here: `pad`, `begin`, `end` and `unknown` keep theirs. The readout puts the
end, with the probability of all tokens that end a caption, among the logits of the others, so that probabilities are
the model's own. Objectives that read given captions do so in one pass; samples come from the model's own `generate`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Literal

import torch
from PIL import Image
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from showtell.captioners.encoder_decoder import EncoderDecoderCaptioner
from showtell.captioners.hugging_face import TransformersCaptioner
from showtell.captioners.hugging_face_adapters import load_learned, save_adapted
from showtell.captioners.hugging_face_families import Inputs
from showtell.captioners.hugging_face_generation import only
from showtell.captioners.hugging_face_words import decode
from showtell.captions import Caption
from showtell.decoding_config import DecodingConfig
from showtell.features import Encoder, EncoderConfig
from showtell.images.preprocessing import Preprocessing
from showtell.models import Decoder, Output, State
from showtell.text.tokenizer import tokenize
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
    """B photos, and what the model's processor made of them; `vectors` and `is_region` are empty."""

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
        inputs = self.captioner.inputs(photos, self.prompt)
        nothing = torch.zeros(len(photos), 1, 1, device=self.captioner.device)
        return PhotoFeatures(nothing, nothing.squeeze(-1).bool(), None, photos, inputs)

    def rectangles(self, features: Features, windows: Tensor) -> None:
        """Not known."""


class TokenVocabulary(Vocabulary):
    """The tokens of a captioner of transformers as ids; `word_vocabulary` has the words of the training captions."""

    unit = "tokens"

    def __init__(self, captioner: TransformersCaptioner, word_vocabulary: Vocabulary, prompt: str | None) -> None:
        super().__init__(())
        self._word_vocabulary = word_vocabulary
        self._captioner, self._follows_word = captioner, captioner.follows_word(prompt)
        self._size = captioner.generator.vocabulary_size

    def __len__(self) -> int:
        return len(SPECIAL) + self._size

    def encode_text(self, text: str, max_length: int | None = None) -> list[int]:
        """begin, the tokens of a caption (at most `max_length` of them), end."""
        tokens = self._captioner.tokens_of(text, self._follows_word)[:max_length]
        return [self.begin, *(token + len(SPECIAL) for token in tokens), self.end]

    def as_word_ids(self, captions: Sequence[Sequence[int]]) -> list[list[int]]:
        """Captions as ids of the words that their tokens make; words of no training caption are `unknown`."""
        made = []
        for caption in captions:
            tokens = [index - len(SPECIAL) for index in caption if index >= len(SPECIAL)]
            ids = self._word_vocabulary.encode(tokenize(decode(self._captioner.tokenizer, tokens)))
            has_begin, has_end = list(caption[:1]) == [self.begin], self.end in caption
            made.append(ids[not has_begin : len(ids) - (not has_end)])
        return made

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
    """A model of transformers that reads captions and samples them.

    Args:
        captioner: whose model it is.
        vocabulary: its tokens.
        prompt: that captions follow.
    """

    def __init__(self, captioner: TransformersCaptioner, vocabulary: TokenVocabulary, prompt: str | None) -> None:
        super().__init__()
        assert captioner.adapted is not None
        self.has_fixed_shapes = False  # what its own library does is not known
        self.config = captioner.adapted.config
        self.captioner, self.vocabulary, self.prompt = captioner, vocabulary, prompt
        self.model: nn.Module = captioner.model
        names = ("image_token_id", "image_token_index", "video_token_id")
        tokens = {getattr(captioner.model.config, name, None) for name in names}
        self._photos = sorted(token for token in tokens if token is not None)

    def start(self, features: Features) -> State[Features, None]:
        """The photos."""
        return State(features, None)

    def step(self, words: Tensor, state: State[Features, None]) -> tuple[Output, State[Features, None]]:
        """Not here: `all_steps` reads given captions, `generate` makes new ones."""
        raise NotImplementedError("a model of transformers takes its steps in `generate`")

    def all_steps(self, words: Tensor, state: State[Features, None]) -> tuple[TokenOutput, State[Features, None]]:
        """Read captions (B, N, T), `begin` first."""
        assert isinstance(state.image, PhotoFeatures)
        captioner, rows, inputs = self.captioner, words.shape[1], state.image.inputs
        if rows > 1 and captioner.family.read is None:
            photos = [photo for photo in state.image.photos for _ in range(rows)]
            inputs = captioner.inputs(photos, self.prompt)
        tokens = (words[..., 1:] - len(SPECIAL)).clamp_min(0)  # what stands for padding is behind what counts
        logits = captioner.family.logits(captioner.model, inputs, tokens.flatten(0, 1))
        return TokenOutput(logits=torch.unflatten(logits, 0, tokens.shape[:2])), state

    def readout(self, output: Output, stage: int = -1) -> Tensor:
        """The logits of our ids, (..., 4 + V)."""
        assert isinstance(output, TokenOutput)
        return self._as_ours(output.logits)

    def _as_ours(self, logits: Tensor) -> Tensor:
        """Logits (..., V) of tokens to (..., 4 + V) of ids. `end` is any token that ends a caption, `begin`, which is
        never generated, any that stands for a photo."""
        ids = (self.captioner.generator.end_ids, self._photos)
        ends, photos = (torch.tensor(tokens, dtype=torch.long, device=logits.device) for tokens in ids)
        end, begin = (logits[..., tokens].logsumexp(-1, keepdim=True) for tokens in (ends, photos))
        never = torch.full_like(end, float("-inf"))
        others = logits.index_fill(-1, torch.cat([ends, photos]), float("-inf"))
        return torch.cat([never, begin, end, never, others], -1)

    @torch.no_grad()
    def generate(
        self, features: Features, max_length: int, rows: int, choose: Callable[[Tensor, Tensor, int], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """N rows for each photo by the `generate` of the model, whose tokens `choose` takes."""
        assert isinstance(features, PhotoFeatures)
        generator, images = self.captioner.generator, torch.arange(len(features.photos), device=features.vectors.device)
        steps = count(-len(generator.begin))
        ids: list[Tensor] = []
        logprobs: list[Tensor] = []

        def process(_: Tensor, scores: Tensor) -> Tensor:
            step = next(steps)
            if step < 0:  # what the model's settings force in front of captions
                return scores
            ours = self._as_ours(scores)
            ours[:, Vocabulary.begin] = float("-inf")
            logprob = torch.unflatten(ours.log_softmax(-1, dtype=torch.float32), 0, (-1, rows))
            chosen = choose(logprob, images, step)
            ids.append(chosen)
            logprobs.append(logprob.gather(-1, chosen.unsqueeze(-1)).squeeze(-1))
            tokens = torch.where(chosen == Vocabulary.end, generator.end_ids[0], chosen - len(SPECIAL))
            return only(tokens.flatten(), scores)

        generator.walk(features.inputs, process, max_length + 1, rows)
        words, of_words = (torch.stack(columns, -1) for columns in (ids, logprobs))
        is_end = words == Vocabulary.end
        is_over = (is_end.cumsum(-1) - is_end.long()) > 0  # what `generate` puts behind the end
        is_over[..., max_length:] |= ~is_end[..., max_length:]  # cut off
        return words.masked_fill(is_over, Vocabulary.pad), of_words.masked_fill(is_over, 0.0)

    def as_words(self, words: Tensor, is_word: Tensor) -> tuple[Tensor, Tensor]:
        """Captions of tokens as ids of the words that they make."""
        lengths = is_word.sum(-1).flatten().tolist()
        captions = [ids[:length] for ids, length in zip(words.flatten(0, 1).tolist(), lengths, strict=True)]
        rows = [torch.tensor(caption, dtype=torch.long) for caption in self.vocabulary.as_word_ids(captions)]
        made = pad_sequence(rows, batch_first=True, padding_value=Vocabulary.pad).to(words.device)
        made = torch.unflatten(made, 0, words.shape[:2])
        return made, made != Vocabulary.pad


@dataclass(eq=False, repr=False, kw_only=True)
class TransformersLearner(EncoderDecoderCaptioner):
    """A captioner of transformers while it learns."""

    @property
    def learning(self) -> TransformersCaptioner:
        """The captioner whose weights learn."""
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
