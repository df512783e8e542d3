"""Stack-Captioning, from coarse to fine: Gu et al., AAAI 2018.

A coarse LSTM (stage 0) sees the mean of the image, then N fine ones (stages 1 to N) attend to its regions; every stage
has words of its own, and the last stage's are the caption. With y_{t-1} the embedding of the last word:

    f(V) = mean_n V_n                                                                the image for stage 0
    h^0_t = LSTM_0([f(V); h^N_{t-1}; y_{t-1}], h^0_{t-1})                                             (eq. 1, 2)
    h^i_t = LSTM_i([g_i; h^{i-1}_t; y_{t-1}], h^i_{t-1})                             i = 1 .. N       (eq. 3, 4)
    g_i = sum_n a^i_n (W^i_va V_n + b^i_va)                                                           (eq. 5)
    a^i = softmax_n(W^i_alpha A^i_n + b^i_alpha)                                                      (eq. 6)
    A^i_n = tanh(W^i_v V_n + W^i_h q_i)                                                               (eq. 7)
    q_i = h^{i-1}_t + g_{i-1},  g_0 = 0              stacked attention                                (eq. 8)
    q_i = h^{i-1}_t                                  independent attention
    p_i(y_t | y_<t) = softmax(W^i_o h^i_t + b^i_o)                                   i = 0 .. N

The likelihood of eq. 9 and 10, summed over the stages, is `objectives/cross_entropy.py`; the rewards of eq. 11 to 15
are `objectives/coarse_to_fine.py`. Our copy lacks the sums, signs and tildes of these equations; they are restored.
W_va (eq. 5) is the paper's W with the indices v and alpha; its W_va and W_ha are W_v and W_h here (eq. 7).

Where this differs from the paper, or the paper is silent:
 1. The paper's o^i_t is the output of the LSTM cell, which is h^i_t.
 2. b_alpha adds the same to the score of every region, so it cancels in the softmax; it is left out.
 3. Eq. 8 writes the sum over regions for stage i - 1 anew; it is g_{i-1}, so W_va maps to the width of the LSTMs.
 4. The paper prints both variants as "Stack-Cap". In its weaker rows the stages' attention weights are independent of
    each other; we read that as q_i = h^{i-1}_t (`attention: independent`).
 5. All LSTMs begin with zeros, h^N_0 in stage 0 included.
 6. Dropout acts on h^i_t in front of W^i_o, as in `updown.py` (the paper is silent), with masks from `counter_rng.py`.
 7. Features may first go through a linear layer, ReLU and dropout (`project_features`), as in the authors' code; off
    by default. V is then the projected features, in f(V) too.
 8. Padded regions are masked, in the mean and in the attention.
 9. `fine_stages: 0` is the coarse LSTM alone, the first row of a study of the number of stages, which the paper does
    not have: no attention, one distribution of words, and h^N_{t-1} is its own h^0_{t-1}, which it then reads twice.
10. Terms of the image alone (f(V)'s gates, W_v V, W_va V + b_va) are computed once; the sums are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from showtell.config import Size
from showtell.counter_rng import Dropout
from showtell.models.attention import AdditiveAttention, masked_mean
from showtell.models.contract import Capability, Decoder, DecoderConfig, HiddenOutput, Output, State
from showtell.models.layers import Linear, feature_projection
from showtell.models.recurrent import LstmCell, initialise
from showtell.types import Features


class StackConfig(DecoderConfig):
    """Sizes and choices of Stack-Captioning; the defaults are the paper's."""

    provides: ClassVar = {Capability.ATTENTION: {}, Capability.STAGES: {}}

    name: Literal["stack"] = "stack"
    fine_stages: int = Field(
        2, ge=0, le=16, description="N, number of fine stages after the coarse one; 0 leaves the coarse one alone."
    )
    attention: Literal["stacked", "independent"] = Field(
        "stacked",
        description="Add the context of the stage before to a stage's query (`stacked`), or not (`independent`).",
    )
    embedding_size: Size = Field(512, description="Size of the word embeddings.")
    hidden_size: Size = Field(512, description="Size of each LSTM.")
    attention_size: Size = Field(512, description="Size of the hidden layer of the attention.")
    project_features: Size | None = Field(
        None, description="Project features to this size by a linear layer, ReLU and dropout (default: no projection)."
    )
    dropout: float = Field(0.5, ge=0, lt=1, description="Dropout on h_t and on projected features.")

    @property
    def stages(self) -> int:
        """The coarse one and N fine ones."""
        return 1 + self.fine_stages

    def missing_settings(self, capability: Capability) -> dict[str, Any]:
        """The coarse stage alone has neither attention nor a stage after it."""
        if capability in (Capability.ATTENTION, Capability.STAGES) and not self.fine_stages:
            return {"fine_stages": 0}
        return super().missing_settings(capability)


@dataclass(frozen=True)
class StackImage:
    """The half of the state that belongs to an image."""

    mean_gates: Tensor  # (B, 1, 4 H) the part of f(V) in the gates of LSTM_0
    projected: tuple[Tensor, ...]  # N of (B, R, A) W_v V
    values: tuple[Tensor, ...]  # N of (B, R, H) W_va V + b_va
    is_region: Tensor  # (B, R)


@dataclass(frozen=True)
class StackRows:
    """The LSTMs of each row, coarse to fine."""

    hidden: tuple[Tensor, ...]  # N + 1 of (B, N, H) h^i
    cell: tuple[Tensor, ...]  # N + 1 of (B, N, H)


StackState = State[StackImage, StackRows]


@dataclass(frozen=True)
class StackInputs:
    """The output of `embed`."""

    gates: tuple[Tensor, ...]  # N + 1 of (..., 4 H), y's part of the gates of each LSTM


class FineStage(nn.Module):
    """Attention and LSTM of a fine stage."""

    def __init__(self, config: StackConfig, feature_size: int) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.attention = AdditiveAttention(  # W_v, W_h, W_alpha
            feature_size=feature_size, query_size=hidden, attention_size=config.attention_size, bias=False
        )
        self.value = Linear(feature_size, hidden)  # W_va, b_va
        self.lstm = LstmCell(2 * hidden + config.embedding_size, hidden)


class StackDecoder(Decoder[StackInputs, StackImage, StackRows]):
    """The coarse LSTM and the fine ones."""

    config: StackConfig
    fine: Sequence[FineStage]  # a ModuleList, as `outputs` is
    outputs: Sequence[Linear]

    def __init__(self, config: StackConfig, *, feature_size: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        size, hidden = config.project_features or feature_size, config.hidden_size
        self.feature_projection = feature_projection(feature_size, config.project_features, Dropout(config.dropout))
        self.embedding = nn.Embedding(vocabulary_size, config.embedding_size)  # W_e
        self.coarse_lstm = LstmCell(hidden + size + config.embedding_size, hidden)
        stages = (FineStage(config, size) for _ in range(config.fine_stages))
        self.fine = nn.ModuleList(stages)  # type: ignore[assignment]
        self.dropout = Dropout(config.dropout)
        outputs = (Linear(hidden, vocabulary_size) for _ in range(self.stages))  # W_o
        self.outputs = nn.ModuleList(outputs)  # type: ignore[assignment]
        initialise(self, self._lstms)

    @property
    def _lstms(self) -> tuple[LstmCell, ...]:
        return self.coarse_lstm, *(stage.lstm for stage in self.fine)

    def start(self, features: Features) -> StackState:
        """What no word changes: the gates of f(V), and W_v V and W_va V + b_va of each stage; zeros for the LSTMs."""
        vectors = self.feature_projection(features.vectors)
        mean = masked_mean(vectors, features.is_region).unsqueeze(1)  # Gu et al. 2018, eq. 2: f(V)
        image = StackImage(
            mean_gates=self.coarse_lstm.project_input(mean, offset=self.config.hidden_size),
            projected=tuple(stage.attention.project(vectors) for stage in self.fine),
            values=tuple(stage.value(vectors) for stage in self.fine),
            is_region=features.is_region,
        )
        zeros = (vectors.new_zeros(len(vectors), 1, self.config.hidden_size),) * self.stages
        return State(image, StackRows(zeros, zeros))

    def embed(self, words: Tensor) -> StackInputs:
        """y's part of the gates of each LSTM; in the input of each, y stands last."""
        word = self.embedding(words)
        return StackInputs(
            tuple(lstm.project_input(word, offset=lstm.input_size - word.shape[-1]) for lstm in self._lstms)
        )

    def step(self, words: Tensor | StackInputs, state: StackState) -> tuple[Output, StackState]:
        """One step of all stages, from coarse to fine."""
        image, rows = state.image, state.rows
        inputs = words if isinstance(words, StackInputs) else self.embed(words)
        gates = self.coarse_lstm.project_input(rows.hidden[-1])
        gates = gates + image.mean_gates + inputs.gates[0]  # Gu et al. 2018, eq. 2: i^0_t
        hidden, cell = self.coarse_lstm(gates, rows.hidden[0], rows.cell[0])  # Gu et al. 2018, eq. 1: h^0_t
        hiddens, cells, outputs = [hidden], [cell], [HiddenOutput(hidden=hidden)]
        query = hidden  # q_1
        for i, stage in enumerate(self.fine):
            alpha = stage.attention(query, image.projected[i], image.is_region)  # Gu et al. 2018, eq. 6: a^i
            attended = alpha @ image.values[i]  # Gu et al. 2018, eq. 5: g_i
            below = torch.cat([attended, hidden], -1)  # Gu et al. 2018, eq. 4: i^i_t
            gates = stage.lstm.project_input(below) + inputs.gates[i + 1]
            hidden, cell = stage.lstm(gates, rows.hidden[i + 1], rows.cell[i + 1])  # Gu et al. 2018, eq. 3: h^i_t
            query = hidden + attended if self.config.attention == "stacked" else hidden  # Gu et al. 2018, eq. 8: q_i
            hiddens.append(hidden)
            cells.append(cell)
            outputs.append(HiddenOutput(hidden=hidden, attention=alpha))  # h^i_t, a^i
        after = StackRows(tuple(hiddens), tuple(cells))
        return Output(attention=outputs[-1].attention, stages=tuple(outputs)), State(image, after)

    def readout(self, output: Output, stage: int = -1) -> Tensor:
        """W^i_o h^i_t + b^i_o, with dropout."""
        own = output.stages[stage]
        assert isinstance(own, HiddenOutput)
        return self.outputs[stage](self.dropout(own.hidden))  # Gu et al. 2018, eq. 9: p_i
