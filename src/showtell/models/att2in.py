"""Att2in, the attention model of Self-Critical Sequence Training: Rennie et al., CVPR 2017, §2.

    a_it = w . tanh(W_aI I_i + W_ah h_{t-1} + b_a),  alpha_t = softmax(a_t + b_alpha)
    I_t = sum_i alpha_it I_i                                    what attention gives, of the regions or cells I_i
    x_t = E 1_{w_{t-1}}                                         the embedding of the word before
    i, f, o = sigmoid(W_x x_t + W_h h_{t-1} + b)                gates that do not see the image
    g = max(W_x1 x_t + W_h1 h_{t-1} + W_I1 I_t + b_1,           the image enters the candidate alone ("att2in"),
            W_x2 x_t + W_h2 h_{t-1} + W_I2 I_t + b_2)           which is a maxout of two
    c_t = i * g + f * c_{t-1},  h_t = o * tanh(c_t)
    p(w_t | w_<t) = softmax(W_s h_t + b_s)

ImageCaptioning.pytorch (Luo), whose weights are published, has two of it: `att2in` as above, and `att2in2` with

    I_i <- max(0, W_v I_i + b_v)                                `project_features: 512`
    max(0, x_t) in place of x_t                                 `embedding_relu: true`

and what `models/region_input.py` does to the I_i. alpha_t is computed in `AdditiveAttention` (`models/attention.py`),
the gates, g, c_t and h_t in `MaxoutLstmCell` (`models/recurrent.py`). The self-critical reward is
`objectives/self_critical.py`; the FC model of the same paper is `models/nic.py` with `cell: lstm_maxout` and
`image: input`.

Where this differs from the paper, or the paper is silent:
 1. b_alpha adds the same number to all scores and cancels in the softmax; we have none.
 2. LSTM and cell begin with zeros.
 3. The paper drops out inputs and outputs of the LSTM. Dropout acts on h_t in front of W_s here, and with
    `input_dropout` on projected features and word embeddings; masks come from `counter_rng.py`.
 4. The paper's encoder is a ResNet-101 whose map over the unresized photo is pooled to 14 x 14 cells
    (`features/resnet_caffe.py`); any features will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from showtell.config import Size
from showtell.counter_rng import Dropout
from showtell.models.attention import AdditiveAttention
from showtell.models.contract import Capability, Decoder, HiddenOutput, Output, State
from showtell.models.layers import Linear, feature_projection
from showtell.models.recurrent import MaxoutLstmCell, initialise
from showtell.models.region_input import RegionInput, RegionInputConfig
from showtell.types import Features


class Att2InConfig(RegionInputConfig):
    """Sizes and choices of Att2in."""

    provides: ClassVar = {Capability.ATTENTION: {}}

    name: Literal["att2in"] = "att2in"
    embedding_size: Size = Field(512, description="Size of the word embeddings.")
    hidden_size: Size = Field(512, description="Size of the LSTM.")
    attention_size: Size = Field(512, description="Size of the hidden layer of the attention.")
    project_features: Size | None = Field(
        None, description="Project features to this size by a linear layer with ReLU (default: no projection)."
    )
    embedding_relu: bool = Field(False, description="Apply ReLU to the word embeddings.")
    dropout: float = Field(0.5, ge=0, lt=1, description="Dropout on h_t.")


@dataclass(frozen=True)
class Att2InImage:
    """The half of the state that belongs to an image."""

    vectors: Tensor  # (B, R, D) I
    projected: Tensor  # (B, R, A) W_aI I + b_a
    is_region: Tensor  # (B, R)


@dataclass(frozen=True)
class Att2InRows:
    """The LSTM's state of each row."""

    hidden: Tensor  # (B, N, H) h
    cell: Tensor  # (B, N, H) c


Att2InState = State[Att2InImage, Att2InRows]


@dataclass(frozen=True)
class Att2InInputs:
    """The output of `embed`: one of the two."""

    gates: Tensor | None = None  # (..., 5 H) x_t's part of gates and candidates
    word: Tensor | None = None  # (..., E) x_t, where dropout is to act on it


class Att2InDecoder(Decoder[Att2InInputs, Att2InImage, Att2InRows]):
    """The decoder of Att2in."""

    config: Att2InConfig

    def __init__(self, config: Att2InConfig, *, feature_size: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        size = config.project_features or config.input_size(feature_size)
        hidden = config.hidden_size
        self.region_input = RegionInput(config, feature_size=feature_size, projected_size=size)
        self.feature_projection = feature_projection(self.region_input.size, config.project_features)
        self.embedding = nn.Embedding(vocabulary_size, config.embedding_size)  # E
        self.attention = AdditiveAttention(
            feature_size=size, query_size=hidden, attention_size=config.attention_size
        )  # W_aI with b_a, W_ah, w
        self.lstm = MaxoutLstmCell(config.embedding_size, hidden)  # W_x, W_h, b
        self.context_to_candidates = Linear(size, 2 * hidden)  # W_I1, W_I2
        self.dropout = Dropout(config.dropout)
        self.output = Linear(hidden, vocabulary_size)  # W_s
        initialise(self, [self.lstm])
        self.region_input.initialise()

    def start(self, features: Features) -> Att2InState:
        """I and the attention's part of it, which no word changes; zeros for the LSTM."""
        vectors = self.region_input.project(features, self.feature_projection)
        zeros = vectors.new_zeros(len(vectors), 1, self.config.hidden_size)
        image = Att2InImage(vectors, self.attention.project(vectors), features.is_region)
        return State(image, Att2InRows(zeros, zeros))

    def embed(self, words: Tensor) -> Att2InInputs:
        """x_t, and with it its part of gates and candidates."""
        word = self.embedding(words)
        if self.config.embedding_relu:
            word = word.relu()
        if self.training and self.config.input_dropout:
            return Att2InInputs(word=word)  # a mask belongs to a row, and so to its step
        return Att2InInputs(self.lstm.project_input(word))

    def step(self, words: Tensor | Att2InInputs, state: Att2InState) -> tuple[HiddenOutput, Att2InState]:
        """Attend with h_{t-1}, then one step of the LSTM."""
        image, rows = state.image, state.rows
        inputs = words if isinstance(words, Att2InInputs) else self.embed(words)
        alpha = self.attention(rows.hidden, image.projected, image.is_region)
        context = alpha @ image.vectors  # I_t
        gates = inputs.gates
        if gates is None:
            assert inputs.word is not None
            gates = self.lstm.project_input(self.region_input.dropout(inputs.word))
        hidden, cell = self.lstm(gates, rows.hidden, rows.cell, self.context_to_candidates(context))
        return HiddenOutput(hidden=hidden, attention=alpha), State(image, Att2InRows(hidden, cell))

    def readout(self, output: Output, stage: int = -1) -> Tensor:
        """W_s h_t + b_s, with dropout."""
        assert isinstance(output, HiddenOutput)
        return self.output(self.dropout(output.hidden))
