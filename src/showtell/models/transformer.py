"""The transformer as a captioner: Vaswani et al., "Attention is all you need", NeurIPS 2017.

    Attention(Q, K, V) = softmax(Q K' / sqrt(d_k)) V                                                       (eq. 1)
    MultiHead(Q, K, V) = [head_1; ..; head_h] W_O,  head_i = Attention(Q W_Qi, K W_Ki, V W_Vi)             (§3.2.2)
    FFN(x) = max(0, x W_1 + b_1) W_2 + b_2                                                                 (eq. 2)
    sublayer(x) = LayerNorm(x + F(x))                  `norm: post`, the paper                             (§3.1)
    sublayer(x) = x + F(LayerNorm(x))                  `norm: pre`, and one more norm behind each stack
    PE(t, 2i) = sin(t / 10000^(2i/d)),  PE(t, 2i + 1) = cos(t / 10000^(2i/d))                              (§3.5)

    x_i = max(0, W_v v_i + b_v)                        the regions (or grid cells) as the source sequence, with what
                                                       `models/region_input.py` does to the v_i
    m = encoder(x)                                     N layers: MultiHead(x, x, x), FFN                   (§3.1)
    z_t = sqrt(d) W_e y_{t-1} + PE(t)                  the words                                           (§3.4)
    s_t = decoder(z_1 .. z_t, m)                       N layers: MultiHead(z, z, z), MultiHead(z, m, m), FFN
    p(y_t | y_<t) = softmax(W_p s_t + b_p)

The keys and values of m are computed once for each image, those of a word once for each row: the state keeps them, so
that a step costs O(t). Given words are read at once, under a causal mask (`all_steps`).

Where this differs from the paper, or the paper is silent:
 1. The source is a set of regions: it has no words, no embedding and no positions. W_v is a linear layer with ReLU, as
    in ImageCaptioning.pytorch (R below), whose published transformers this model can hold exactly.
 2. `norm: pre` is the default, as in R. It trains without a long warm-up (Xiong et al., "On layer normalization in the
    transformer architecture", 2020).
 3. `layer_norm: unbiased` is R's: the deviation divides by d - 1, and epsilon, 1e-6, is added to it. The default is
    torch's, whose epsilon, 1e-5, is added to the variance; the paper names neither.
 4. W_e and W_p do not share their weights, which the paper has (§3.4) and R has not.
 5. W_Q, W_K, W_V and W_O have biases, as in R. That of W_K changes nothing: it adds the same number to all scores of
    a query.
 6. Dropout acts on the sums of embeddings and positions and on each F (§5.4), on the weights of attention and behind
    the ReLU of FFN (the authors' code, and R); `input_dropout` on the x_i alone. The masks come from `counter_rng.py`.
    Those of `all_steps` are not those of the same words read one by one.
 7. `attention` of the output is that of the last layer over the regions, the mean over its heads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from showtell.config import Size
from showtell.counter_rng import Dropout
from showtell.models.contract import Capability, Decoder, HiddenOutput, Output, State
from showtell.models.layers import Linear
from showtell.models.region_input import RegionInput, RegionInputConfig
from showtell.types import Features, map_tensors

Layers = Annotated[int, Field(ge=1, le=64)]


class TransformerConfig(RegionInputConfig):
    """Sizes and choices of the transformer; the sizes are those of the paper's base model."""

    provides: ClassVar = {Capability.ATTENTION: {}, Capability.PARALLEL: {}}

    name: Literal["transformer"] = "transformer"
    hidden_size: Size = Field(512, description="Size d of the vectors between layers.")
    encoder_layers: Layers = Field(6, description="Number of layers over the regions.")
    decoder_layers: Layers = Field(6, description="Number of layers over the words.")
    heads: Size = Field(8, description="Number h of attention heads; a divisor of `hidden_size`.")
    feed_forward_size: Size = Field(2048, description="Size of the hidden layer of FFN.")
    norm: Literal["pre", "post"] = Field(
        "pre", description="LayerNorm in front of each sublayer (`pre`), or behind its sum (`post`, the paper)."
    )
    layer_norm: Literal["torch", "unbiased"] = Field(
        "torch",
        description="Deviation of LayerNorm: torch's, or unbiased with epsilon outside the root (published weights).",
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout on embeddings, sublayers, attention and in FFN.")

    @model_validator(mode="after")
    def _heads_have_a_size(self) -> Self:
        if self.hidden_size % self.heads:
            raise ValueError(
                f"heads={self.heads} does not divide hidden_size={self.hidden_size}; every head has the same size"
            )
        return self


@dataclass(frozen=True)
class KeysValues:
    """What attention looks at, in h heads of size d: K regions of an image or K words of a row."""

    keys: Tensor  # (B, h, K, d) of images, (B, N, h, K, d) of rows
    values: Tensor  # the same shape


@dataclass(frozen=True)
class TransformerImage:
    """The half of the state that belongs to an image."""

    memory: tuple[KeysValues, ...]  # of each layer (B, h, R, d)
    is_region: Tensor  # (B, R)


@dataclass(frozen=True)
class TransformerRows:
    """The words that each row has read; how many is the position of the next."""

    words: tuple[KeysValues, ...]  # of each layer (B, N, h, T, d)
    is_key: Tensor  # (B, N, T) bool, False for padding, which rows that have read fewer words have


TransformerState = State[TransformerImage, TransformerRows]


class UnbiasedLayerNorm(nn.LayerNorm):
    """g (x - mean) / (deviation + epsilon) + b, with the deviation that divides by d - 1."""

    def __init__(self, size: int) -> None:
        super().__init__(size, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        centred = x - x.mean(-1, keepdim=True)
        deviation = torch.linalg.vector_norm(centred, dim=-1, keepdim=True) / (x.shape[-1] - 1) ** 0.5
        return torch.addcmul(self.bias, centred / (deviation + self.eps), self.weight)


LAYER_NORMS: dict[str, type[nn.LayerNorm]] = {"torch": nn.LayerNorm, "unbiased": UnbiasedLayerNorm}


class MultiHeadAttention(nn.Module):
    """Attention in h heads (§3.2, eq. 1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.heads = config.heads
        self.query = Linear(size, size)
        self.key = Linear(size, size)
        self.value = Linear(size, size)
        self.output = Linear(size, size)
        self.dropout = Dropout(config.dropout)

    def read(self, x: Tensor) -> KeysValues:
        """The keys and values of (..., K, H): (..., h, K, d)."""
        parts = (torch.unflatten(layer(x), -1, (self.heads, -1)) for layer in (self.key, self.value))
        return KeysValues(*(part.transpose(-2, -3).contiguous() for part in parts))

    def forward(self, x: Tensor, of: KeysValues, is_key: Tensor) -> tuple[Tensor, Tensor]:
        """What x, regions (B, R, H) or words (B, N, T, H), finds in the keys `of` an image or a row, and its weights.

        Those are (B, h, ..., K) over an image and (B, N, h, T, K) over a row; `is_key` is broadcast to them.
        """
        owners = of.keys.dim() - 3  # axes of what has its own keys: an image, or a row of it
        lookers = x.shape[owners:-1]  # the others
        queries = torch.unflatten(self.query(x), -1, (self.heads, -1)).flatten(owners, -3).transpose(-2, -3)
        scores = (queries * queries.shape[-1] ** -0.5) @ of.keys.mT  # eq. 1, Q K' / sqrt(d_k): (..., h, Q, K)
        weights = torch.unflatten(scores, -2, lookers).masked_fill(~is_key, float("-inf")).softmax(-1)
        contexts = self.dropout(weights).flatten(-1 - len(lookers), -2) @ of.values  # eq. 1: (..., h, Q, d)
        return self.output(contexts.transpose(-2, -3).reshape(x.shape)), weights


class FeedForward(nn.Module):
    """FFN (§3.3, eq. 2)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.inner = Linear(config.hidden_size, config.feed_forward_size)
        self.dropout = Dropout(config.dropout)
        self.outer = Linear(config.feed_forward_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """(..., H) to (..., H)."""
        return self.outer(self.dropout(torch.relu(self.inner(x))))  # eq. 2


class Residual(nn.Module):
    """The sum and the norm around a sublayer F: what F reads is `enter(x)`, what follows is `add(x, F)`."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.is_pre = config.norm == "pre"
        self.norm = LAYER_NORMS[config.layer_norm](config.hidden_size)
        self.dropout = Dropout(config.dropout)

    def enter(self, x: Tensor) -> Tensor:
        """The input of F."""
        return cast(Tensor, self.norm(x)) if self.is_pre else x

    def add(self, x: Tensor, result: Tensor) -> Tensor:
        """The output of the sublayer."""
        summed = x + self.dropout(result)
        return summed if self.is_pre else cast(Tensor, self.norm(summed))


class EncoderLayer(nn.Module):
    """Self-attention of the regions, and FFN."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, is_region: Tensor) -> Tensor:
        """(B, R, H) and (B, R) to (B, R, H)."""
        regions = self.self_attention_residual.enter(x)
        context, _ = self.self_attention(regions, self.self_attention.read(regions), is_region[:, None, None])
        x = self.self_attention_residual.add(x, context)
        return self.feed_forward_residual.add(x, self.feed_forward(self.feed_forward_residual.enter(x)))


class DecoderLayer(nn.Module):
    """Self-attention of the words, attention over the regions, and FFN."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_residual = Residual(config)
        self.attention = MultiHeadAttention(config)
        self.attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self, x: Tensor, past: KeysValues, is_visible: Tensor, memory: KeysValues, is_region: Tensor
    ) -> tuple[Tensor, KeysValues, Tensor]:
        """Read T words behind P: (B, N, T, H), all keys and values, and the weights over regions, (B, h, N, T, R)."""
        new = self.self_attention_residual.enter(x)
        words = map_tensors(past, lambda old, new: torch.cat([old, new], -2), self.self_attention.read(new))
        context, _ = self.self_attention(new, words, is_visible.unsqueeze(2))
        x = self.self_attention_residual.add(x, context)
        context, weights = self.attention(self.attention_residual.enter(x), memory, is_region[:, None, None, None])
        x = self.attention_residual.add(x, context)
        x = self.feed_forward_residual.add(x, self.feed_forward(self.feed_forward_residual.enter(x)))
        return x, words, weights


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """PE (§3.5): positions (...) to (..., size), float32."""
    rates = torch.exp(torch.arange(0, size, 2, device=positions.device) * (-math.log(10_000.0) / size))
    angles = positions.unsqueeze(-1) * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[..., :size]


class TransformerDecoder(Decoder[Tensor, TransformerImage, TransformerRows]):
    """Encoder layers over the regions, decoder layers over the words."""

    config: TransformerConfig
    decoder_layers: Sequence[DecoderLayer]  # a ModuleList

    def __init__(self, config: TransformerConfig, *, feature_size: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        size, norm = config.hidden_size, LAYER_NORMS[config.layer_norm]
        has_last_norm = config.norm == "pre"  # whose sums no layer has normalised
        self.region_input = RegionInput(config, feature_size=feature_size, projected_size=size)
        self.feature_projection = nn.Sequential(Linear(self.region_input.size, size), nn.ReLU())  # W_v
        self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.encoder_norm = norm(size) if has_last_norm else nn.Identity()
        self.embedding = nn.Embedding(vocabulary_size, size)  # W_e
        self.dropout = Dropout(config.dropout)
        decoder_layers = (DecoderLayer(config) for _ in range(config.decoder_layers))
        self.decoder_layers = nn.ModuleList(decoder_layers)  # type: ignore[assignment]
        self.decoder_norm = norm(size) if has_last_norm else nn.Identity()
        self.output = Linear(size, vocabulary_size)  # W_p
        self.initialise()

    def initialise(self) -> None:
        """Matrices Xavier uniform, biases 0; W_e normal, std 1 / sqrt(d): a word is as large as its position."""
        for name, parameter in self.named_parameters():
            if name == "embedding.weight":
                nn.init.normal_(parameter, std=self.config.hidden_size**-0.5)
            elif parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        self.region_input.initialise()

    def start(self, features: Features) -> TransformerState:
        """The regions through the encoder, and their keys and values in each layer of the decoder; no words."""
        is_region = features.is_region
        x = self.region_input.project(features, self.feature_projection)
        for layer in self.encoder_layers:
            x = layer(x, is_region)
        x = self.encoder_norm(x)  # m
        memory = tuple(layer.attention.read(x) for layer in self.decoder_layers)
        none = x.new_empty(len(x), 1, self.config.heads, 0, x.shape[-1] // self.config.heads)
        rows = TransformerRows((KeysValues(none, none),) * len(memory), is_region.new_empty(len(x), 1, 0))
        return State(TransformerImage(memory, is_region), rows)

    def all_steps(self, words: Tensor, state: TransformerState) -> tuple[HiddenOutput, TransformerState]:
        """Read T words behind those of the state, each of which sees itself and those before it."""
        image, rows = state.image, state.rows
        steps = torch.arange(words.shape[-1], device=words.device)
        positions = rows.is_key.sum(-1, keepdim=True) + steps  # (B, N, T)
        embedded = self.embedding(words)
        positioned = embedded * self.config.hidden_size**0.5 + sinusoids(positions, embedded.shape[-1]).to(embedded)
        x = self.dropout(positioned)  # z_1 .. z_T (§3.4)
        is_past = rows.is_key.unsqueeze(2).expand(*words.shape, -1)
        # (B, N, T, P + T): all words before, and of these no later one
        is_visible = torch.cat([is_past, (steps <= steps.unsqueeze(-1)).expand(*words.shape, -1)], -1)
        read = []
        for layer, past, memory in zip(self.decoder_layers, rows.words, image.memory, strict=True):
            x, keys_values, weights = layer(x, past, is_visible, memory, image.is_region)
            read.append(keys_values)
        is_key = torch.cat([rows.is_key, torch.ones_like(words, dtype=torch.bool)], -1)
        output = HiddenOutput(hidden=self.decoder_norm(x), attention=weights.mean(1))
        return output, State(image, TransformerRows(tuple(read), is_key))

    def step(self, words: Tensor, state: TransformerState) -> tuple[HiddenOutput, TransformerState]:
        """Read one word behind those of the state."""
        output, state = self.all_steps(words.unsqueeze(-1), state)
        return map_tensors(output, lambda x: x.squeeze(2)), state

    def readout(self, output: Output, stage: int = -1) -> Tensor:
        """W_p s_t + b_p."""
        assert isinstance(output, HiddenOutput)
        return self.output(output.hidden)
