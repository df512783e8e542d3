"""Bottom-Up and Top-Down attention, the captioning half: Anderson et al., CVPR 2018.

    V = {v_1 .. v_k},  vbar = mean_i v_i             the regions (or grid cells), and their mean
    x1_t = [h2_{t-1}; vbar; W_e Pi_t]                the input of the attention LSTM                       (eq. 2)
    h1_t = LSTM(x1_t, h1_{t-1})                                                                            (eq. 1)
    a_it = w_a . tanh(W_va v_i + W_ha h1_t)                                                                (eq. 3)
    alpha_t = softmax(a_t)                                                                                 (eq. 4)
    vhat_t = sum_i alpha_it v_i                                                                            (eq. 5)
    x2_t = [vhat_t; h1_t],  h2_t = LSTM(x2_t, h2_{t-1})                              the language LSTM
    p(y_t | y_<t) = softmax(W_p h2_t + b_p)

The system that the report itself trained (CIDEr 106.2) is this one with

    a_it = w_a . max(0, W_va v_i + W_ha h1_t)                                        `attention_activation: relu`
    each row of a matrix is g w / |w|, g and w learned                               `weight_norm: true`
    s = max_t (W_l h1_t + b_l)                         scores of labels              `multi_label: true`

whose s is for the further loss over words of `objectives/cross_entropy.py` (`objective.multi_label`).

The last two lines of the first block are missing in our copy of El Baz 2020 and are those of the original paper. Over a
grid instead of regions this is the "Top-Down" row of Gu et al. 2018.

The replication whose weights are published (ImageCaptioning.pytorch) is this one with

    v_i <- max(0, W_v v_i + b_v),  vbar = max(0, W_f mean_i v_i + b_f)     `mean_projection: own`, of the v_i before
    a_it = w_a . tanh(W_va v_i + W_ha h1_t + b)                                      `attention_bias: true`
    max(0, W_e Pi_t) in place of W_e Pi_t                                            `embedding_relu: true`

and with what `models/region_input.py` does to the v_i.

Where this differs from the paper, or the paper is silent:
 1. W_va, W_ha and w_a have no bias, as in the original; vbar is the mean of the regions, padding masked.
 2. Both LSTMs begin with zeros.
 3. Dropout acts on h2_t in front of W_p (where later work has it; the paper is silent), with masks from
    `counter_rng.py`. The default is 0.5. `input_dropout` acts on projected features and word embeddings as well.
 4. Features may first go through a linear layer with ReLU (`project_features`), as Gu et al. 2018 do; off by default.
 5. vbar's part of the gates of the attention LSTM is computed once per image; the sum is the same.
 6. The report prints no equation of its own system; these are read from the code that it names as its source (its
    reference 6). There too the weights of attention and output layers are normalised (Salimans and Kingma, 2016) and
    those of the LSTMs are not. The linear layers of its attention have biases and dropout, which ours lack, and its
    embedding begins uniform in +-0.1. Its loss over words is the discriminative supervision of Yang et al. (Review
    Networks, 2016).
 7. W_l only serves that loss: it changes no caption. Dropout acts on h1_t in front of it.
 8. Forbidding repeated words at test time (the authors' release) belongs to `decoding/`, not to the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from showtell.config import Size
from showtell.counter_rng import Dropout
from showtell.models.attention import AdditiveAttention, masked_mean
from showtell.models.contract import Capability, Decoder, HiddenOutput, Output, State
from showtell.models.layers import Linear, feature_projection
from showtell.models.recurrent import LstmCell, initialise
from showtell.models.region_input import RegionInput, RegionInputConfig
from showtell.types import Features


class UpDownConfig(RegionInputConfig):
    """Sizes and choices of Bottom-Up and Top-Down attention; the defaults are those of the authors' release."""

    provides: ClassVar = {Capability.ATTENTION: {}, Capability.LABELS: {"multi_label": True}}

    name: Literal["updown"] = "updown"
    embedding_size: Size = Field(1000, description="Size of the word embeddings.")
    hidden_size: Size = Field(1000, description="Size of both LSTMs.")
    attention_size: Size = Field(512, description="Size of the hidden layer of the attention.")
    attention_activation: Literal["tanh", "relu"] = Field(
        "tanh", description="Activation of the attention: Anderson et al. 2018, eq. 3, or that of El Baz 2020 (`relu`)."
    )
    attention_bias: bool = Field(False, description="Give the hidden layer of the attention a bias.")
    weight_norm: bool = Field(False, description="Normalise the weights of attention and output layers (El Baz 2020).")
    multi_label: bool = Field(
        False, description="Score the words of a caption from h1_t, for `objective.multi_label` (El Baz 2020)."
    )
    project_features: Size | None = Field(
        None, description="Project features to this size by a linear layer with ReLU (default: no projection)."
    )
    mean_projection: Literal["shared", "own"] = Field(
        "shared",
        description="Mean vbar of the projected vectors, or a projection of its own of the mean of the unprojected.",
    )
    embedding_relu: bool = Field(False, description="Apply ReLU to the word embeddings.")
    dropout: float = Field(0.5, ge=0, lt=1, description="Dropout on h2_t.")


@dataclass(frozen=True)
class UpDownImage:
    """The half of the state that belongs to an image."""

    vectors: Tensor  # (B, R, D) V
    projected: Tensor  # (B, R, A) W_va V
    mean_gates: Tensor  # (B, 1, 4 H) the part of vbar in the gates of the attention LSTM
    is_region: Tensor  # (B, R)


@dataclass(frozen=True)
class UpDownRows:
    """The two LSTMs of each row."""

    attention_hidden: Tensor  # (B, N, H) h1
    attention_cell: Tensor  # (B, N, H)
    language_hidden: Tensor  # (B, N, H) h2
    language_cell: Tensor  # (B, N, H)


UpDownState = State[UpDownImage, UpDownRows]


@dataclass(frozen=True)
class UpDownInputs:
    """The output of `embed`: one of the two."""

    gates: Tensor | None = None  # (..., 4 H) W_e Pi_t's part of the gates of the attention LSTM
    word: Tensor | None = None  # (..., E) W_e Pi_t, where dropout is to act on it


@dataclass(frozen=True, kw_only=True)
class UpDownOutput(HiddenOutput):
    """The input of the output layer, h2_t."""

    attention_hidden: Tensor | None = None  # (B, N, H) h1_t, for the labels


class UpDownDecoder(Decoder[UpDownInputs, UpDownImage, UpDownRows]):
    """The attention LSTM and the language LSTM."""

    config: UpDownConfig

    def __init__(self, config: UpDownConfig, *, feature_size: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden_size
        size = config.project_features or config.input_size(feature_size)
        self.region_input = RegionInput(config, feature_size=feature_size, projected_size=size)
        self.feature_projection = feature_projection(self.region_input.size, config.project_features)
        if config.mean_projection == "own":
            self.mean_projection = nn.Sequential(nn.Linear(self.region_input.size, hidden), nn.ReLU())
        self.embedding = nn.Embedding(vocabulary_size, config.embedding_size)  # W_e
        of_image = hidden if config.mean_projection == "own" else size  # vbar
        self.attention_lstm = LstmCell(hidden + of_image + config.embedding_size, hidden)
        self.attention = AdditiveAttention(
            feature_size=size, query_size=hidden, attention_size=config.attention_size,
            bias=config.attention_bias, activation=config.attention_activation,  # El Baz 2020, §IV: ReLU
        )  # fmt: skip
        self.language_lstm = LstmCell(size + hidden, hidden)
        self.dropout = Dropout(config.dropout)
        self.output = Linear(hidden, vocabulary_size)  # W_p
        if config.multi_label:
            self.labels = Linear(hidden, vocabulary_size)  # W_l
        initialise(self, [self.attention_lstm, self.language_lstm])
        self.region_input.initialise()
        if config.weight_norm:  # begins with the weights as they are: g is the length of each row
            attention = self.attention
            for layer in (attention.of_features, attention.of_query, attention.score, self.output):
                weight_norm(layer)  # El Baz 2020, §IV: weight norm
            if config.multi_label:
                weight_norm(self.labels)

    def start(self, features: Features) -> UpDownState:
        """W_va V and the gates of vbar, which no word changes; zeros for the LSTMs."""
        is_region = features.is_region
        vectors = self.region_input.project(features, self.feature_projection)
        mean = masked_mean(vectors, is_region).unsqueeze(1)  # (B, 1, D) vbar
        if self.config.mean_projection == "own":
            mean = masked_mean(self.region_input.vectors(features), is_region).unsqueeze(1)
            mean = self.region_input.dropout(self.mean_projection(mean))
        mean_gates = self.attention_lstm.project_input(mean, offset=self.config.hidden_size)
        image = UpDownImage(vectors, self.attention.project(vectors), mean_gates, is_region)
        zeros = vectors.new_zeros(len(vectors), 1, self.config.hidden_size)
        return State(image, UpDownRows(zeros, zeros, zeros, zeros))

    def embed(self, words: Tensor) -> UpDownInputs:
        """W_e Pi_t, and with it the attention LSTM's gates; its columns in x1_t are the last."""
        word = self.embedding(words)
        if self.config.embedding_relu:
            word = word.relu()
        if self.training and self.config.input_dropout:
            return UpDownInputs(word=word)  # a mask belongs to a row, and so to its step
        return UpDownInputs(self._word_gates(word))

    def _word_gates(self, word: Tensor) -> Tensor:
        return self.attention_lstm.project_input(word, offset=self.attention_lstm.input_size - word.shape[-1])

    def step(self, words: Tensor | UpDownInputs, state: UpDownState) -> tuple[UpDownOutput, UpDownState]:
        """One step of attention LSTM, attention and language LSTM."""
        image, rows = state.image, state.rows
        inputs = words if isinstance(words, UpDownInputs) else self.embed(words)
        word_gates = inputs.gates
        if word_gates is None:
            assert inputs.word is not None
            word_gates = self._word_gates(self.region_input.dropout(inputs.word))
        gates = self.attention_lstm.project_input(rows.language_hidden)
        gates = gates + image.mean_gates + word_gates  # Anderson et al. 2018, eq. 2: x1_t
        # Anderson et al. 2018, eq. 1: h1_t
        attention_hidden, attention_cell = self.attention_lstm(gates, rows.attention_hidden, rows.attention_cell)
        # Anderson et al. 2018, eq. 4: alpha_t
        alpha = self.attention(attention_hidden, image.projected, image.is_region)
        attended = alpha @ image.vectors  # Anderson et al. 2018, eq. 5: vhat_t
        both = torch.cat([attended, attention_hidden], -1)  # Anderson et al. 2018, eq. 6: x2_t
        gates = self.language_lstm.project_input(both)
        hidden, cell = self.language_lstm(gates, rows.language_hidden, rows.language_cell)
        new = UpDownRows(attention_hidden, attention_cell, hidden, cell)
        labelled = attention_hidden if self.config.multi_label else None
        return UpDownOutput(hidden=hidden, attention_hidden=labelled, attention=alpha), State(image, new)

    def readout(self, output: Output, stage: int = -1) -> Tensor:
        """W_p h2_t + b_p, with dropout."""
        assert isinstance(output, HiddenOutput)
        return self.output(self.dropout(output.hidden))  # Anderson et al. 2018, eq. 7: p

    def score_labels(self, output: Output) -> Tensor:
        """W_l h1_t + b_l, with dropout."""
        assert isinstance(output, UpDownOutput) and output.attention_hidden is not None
        return self.labels(self.dropout(output.attention_hidden))  # El Baz 2020, §IV: s
