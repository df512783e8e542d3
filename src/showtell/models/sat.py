"""Show, Attend and Tell, soft and hard attention: Xu et al., ICML 2015.

    a = {a_1 .. a_L}                                   the annotation vectors, from the encoder           (§3.1.1)
    c_0, h_0 = f_init,c(mean_i a_i), f_init,h(mean_i a_i)                                                 (§3.1.2)
    c_0 = h_0 = 0                                      `init_state: zeros`, without f_init
    e_ti = f_att(a_i, h_{t-1}),  alpha_ti = exp(e_ti) / sum_k exp(e_tk)                                   (§3.1.2)
    beta_t = sigmoid(w_beta . h_{t-1} + b_beta)        the gate on the context                            (§4.2.1)
    beta_t = sigmoid(W_beta h_{t-1} + b_beta)          `gate_per: channel`, a gate for each channel of the context
    z_t = beta_t sum_i alpha_ti a_i                    soft: the expected context                         (§4.2)
    z_t = beta_t a_s,  s ~ alpha_t                     hard: one sampled region                           (§4.1)
    i, f, o = sigmoid(T(E y_{t-1}, h_{t-1}, z_t)),  g = tanh(T(E y_{t-1}, h_{t-1}, z_t)),  T affine
    c_t = f * c_{t-1} + i * g,  h_t = o * tanh(c_t)                                                       (§3.1.2)
    p(y_t | a, y_<t) ~ exp(L_o(E y_{t-1} + L_h h_t + L_z z_t))                                            (§3.1.2)

The doubly stochastic penalty lambda sum_i (1 - sum_t alpha_ti)^2 (§4.2.1) is `objectives/cross_entropy.py`, the
gradient of hard attention (§4.1) is `objectives/hard_attention.py`. Boustany and Sarfati, §2.2 is this model with
`gate: false, readout: hidden`.

Where this differs from the paper, or the paper is silent:
 1. The output layer has a tanh in front of L_o, as in the authors' release; `readout_tanh: false` is the formula of
    the paper.
 2. The gate is the paper's, but our copy prints no equation for it; the form is that of the authors' release.
 3. f_init has one linear layer and a tanh by default; `init_layers: 2` puts a hidden layer in front, as the release
    does. `init_state: zeros` leaves f_init out, which shows what the mean as first state brings.
 4. f_att has one hidden layer with tanh.
 5. Dropout acts on h_t and before L_o (the release), not inside the recurrence; its masks come from `counter_rng.py`.
 6. Features may first go through a linear layer with ReLU (`project_features`), as in later work; off by default.
 7. Hard attention replaces the sample by the expectation with probability 0.5 in training: one draw for each image,
    as in the paper, or for the minibatch (`expectation_per: batch`), as in the release. Our copy has
    no word of it; the number is that of the published §4.1 and of the release.
 8. In eval mode hard attention attends to the most likely region, where the paper's figures draw it;
    `eval_attention: expectation` is soft.
 9. Boustany and Sarfati read out with one linear layer on h_t alone (`readout: hidden`).
10. The word before the first is a learned embedding of `begin`; the release feeds zeros.
11. a-PyTorch-Tutorial-to-Image-Captioning, which most people know this model from and whose weights can be imported,
    has a ReLU in f_att (`attention_activation: relu`), a gate for each channel (`gate_per: channel`), an f_init without
    tanh (`init_activation: none`) and reads out with one layer on h_t (`readout: hidden`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from showtell import counter_rng
from showtell.config import Size
from showtell.models.attention import AdditiveAttention, masked_mean
from showtell.models.contract import Capability, Decoder, DecoderConfig, HiddenOutput, Output, State, gather_rows
from showtell.models.layers import Linear, feature_projection
from showtell.models.recurrent import LstmCell
from showtell.types import Features


class SatConfig(DecoderConfig):
    """Sizes and choices of Show, Attend and Tell."""

    provides: ClassVar = {Capability.ATTENTION: {}, Capability.SAMPLED_ATTENTION: {"attention": "hard"}}

    name: Literal["sat"] = "sat"
    embedding_size: Size = Field(512, description="m, size of the word embeddings.")
    hidden_size: Size = Field(512, description="n, size of the LSTM.")
    attention_size: Size = Field(512, description="Size of the hidden layer of f_att.")
    project_features: Size | None = Field(
        None, description="Project features to this size by a linear layer with ReLU (default: no projection)."
    )
    init_state: Literal["mean", "zeros"] = Field(
        "mean", description="First state of the LSTM: f_init of the mean feature (Xu et al. 2015, §3.1.2), or zeros."
    )
    attention_activation: Literal["tanh", "relu"] = Field(
        "tanh", description="Activation of the hidden layer of f_att."
    )
    init_activation: Literal["tanh", "none"] = Field("tanh", description="Activation behind the last layer of f_init.")
    init_layers: Literal[1, 2] = Field(1, description="Number of layers of f_init.")
    gate: bool = Field(True, description="Multiply the context by the gate beta_t.")
    gate_per: Literal["context", "channel"] = Field(
        "context", description="One gate for the context (Xu et al. 2015, §4.2.1), or one for each of its channels."
    )
    attention: Literal["soft", "hard"] = Field(
        "soft", description="Context z_t: the expectation over all cells (`soft`), or one sampled cell (`hard`)."
    )
    expectation_probability: float = Field(
        0.5, ge=0, le=1, description="Hard attention in training: probability of the expectation instead of a sample."
    )
    expectation_per: Literal["image", "batch"] = Field(
        "image", description="Hard attention in training: draw that choice per image or per batch."
    )
    eval_attention: Literal["argmax", "expectation"] = Field(
        "argmax", description="Hard attention in eval mode: attend to the most likely cell, or the expectation."
    )
    readout: Literal["deep", "hidden"] = Field(
        "deep",
        description="Output layer: L_o over word, h_t and z_t (`deep`), or one linear layer over h_t (`hidden`).",
    )
    readout_tanh: bool = Field(True, description="Apply tanh before L_o.")
    dropout: float = Field(0.5, ge=0, lt=1, description="Dropout on h_t and before L_o.")


@dataclass(frozen=True)
class SatImage:
    """The half of the state that belongs to an image."""

    vectors: Tensor  # (B, R, D) a, the annotation vectors
    projected: Tensor  # (B, R, A) the part of f_att that does not depend on h
    is_region: Tensor  # (B, R) bool, as in `Features`


@dataclass(frozen=True)
class SatRows:
    """The LSTM's state of each row."""

    hidden: Tensor  # (B, N, H) h_{t-1}
    cell: Tensor  # (B, N, H) c_{t-1}
    is_expected: Tensor | None = None  # (B, N) bool, of hard attention in training: expectations instead of samples


SatState = State[SatImage, SatRows]


@dataclass(frozen=True)
class SatInputs:
    """The output of `embed`."""

    word: Tensor  # (..., E) E y_{t-1}
    gates: Tensor  # (..., 4 H) its part of T(E y_{t-1}, h_{t-1}, z_t)


@dataclass(frozen=True, kw_only=True)
class SatOutput(HiddenOutput):
    """The input of the output layer, h_t."""

    word: Tensor  # (B, N, E) E y_{t-1}
    context: Tensor  # (B, N, D) z_t, with the gate
    gate: Tensor | None  # (B, N) beta_t, a number; of `gate_per: channel` the mean

    def diagnostics(self) -> dict[str, Tensor]:
        """The gate beta_t at each word."""
        return {} if self.gate is None else {"gate": self.gate.unsqueeze(-1)}


class SatDecoder(Decoder[SatInputs, SatImage, SatRows]):
    """The decoder of Show, Attend and Tell."""

    config: SatConfig

    def __init__(self, config: SatConfig, *, feature_size: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        context_size = config.project_features or feature_size
        embedding, hidden = config.embedding_size, config.hidden_size
        self.feature_projection = feature_projection(feature_size, config.project_features)
        self.embedding = nn.Embedding(vocabulary_size, embedding)  # E
        self.attention = AdditiveAttention(
            feature_size=context_size, query_size=hidden, attention_size=config.attention_size,
            activation=config.attention_activation,
        )  # fmt: skip
        if config.init_state == "mean":
            self.init_hidden = self._init_mlp(context_size)  # f_init,h
            self.init_cell = self._init_mlp(context_size)  # f_init,c
        channels = context_size if config.gate_per == "channel" else 1
        self.beta = nn.Linear(hidden, channels) if config.gate else None
        self.lstm = LstmCell(embedding + context_size, hidden)
        self.dropout = counter_rng.Dropout(config.dropout)
        if config.readout == "deep":
            self.hidden_to_output = Linear(hidden, embedding)  # L_h
            self.context_to_output = Linear(context_size, embedding)  # L_z
        self.output = Linear(embedding if config.readout == "deep" else hidden, vocabulary_size)  # L_o
        self.initialise()

    def _init_mlp(self, context_size: int) -> nn.Sequential:
        hidden = self.config.hidden_size
        first = [nn.Linear(context_size, hidden), nn.Tanh()] if self.config.init_layers == 2 else []
        last = [nn.Tanh()] if self.config.init_activation == "tanh" else []
        return nn.Sequential(*first, nn.Linear(hidden if first else context_size, hidden), *last)

    def initialise(self) -> None:
        """Set the weights before training, as `recurrent.initialise` does."""
        for name, parameter in self.named_parameters():
            if name == "embedding.weight":
                nn.init.normal_(parameter, std=0.1)
            elif name == "lstm.weight_hh":
                for gate in parameter.data.chunk(4):
                    nn.init.orthogonal_(gate)
            elif parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            else:
                nn.init.zeros_(parameter)
        with torch.no_grad():
            self.lstm.bias_ih.chunk(4)[1].fill_(1.0)  # torch's order of gates: i, f, g, o

    def start(self, features: Features) -> SatState:
        """h_0 and c_0 from the mean annotation vector, and f_att's part that depends on the image alone."""
        vectors = self.feature_projection(features.vectors)
        hidden = cell = vectors.new_zeros(len(vectors), 1, self.config.hidden_size)
        if self.config.init_state == "mean":
            mean = masked_mean(vectors, features.is_region).unsqueeze(1)  # (B, 1, D)
            hidden, cell = self.init_hidden(mean), self.init_cell(mean)  # Xu et al. 2015, §3.1.2: c_0, h_0
        image = SatImage(vectors, self.attention.project(vectors), features.is_region)
        return State(image, SatRows(hidden, cell, self._draw_expected(vectors)))

    def _draw_expected(self, vectors: Tensor) -> Tensor | None:
        """(B, 1) bool, whether an image's captions use the expectation; None where that is not drawn."""
        if self.config.attention == "soft" or not self.training:
            return None
        if self.config.expectation_per == "batch":
            is_expected = counter_rng.shared_uniform(vectors.device) < self.config.expectation_probability
            return is_expected.expand(len(vectors), 1)
        return counter_rng.uniform((len(vectors), 1), vectors.device) < self.config.expectation_probability

    def embed(self, words: Tensor) -> SatInputs:
        """E y_{t-1} and its part of the LSTM's gates."""
        word = self.embedding(words)
        return SatInputs(word, self.lstm.project_input(word))

    def step(self, words: Tensor | SatInputs, state: SatState) -> tuple[SatOutput, SatState]:
        """Attend with h_{t-1}, then one step of the LSTM over (E y_{t-1}, z_t)."""
        image, rows = state.image, state.rows
        inputs = words if isinstance(words, SatInputs) else self.embed(words)
        alpha = self.attention(rows.hidden, image.projected, image.is_region)  # Xu et al. 2015, §3.1.2: alpha_t
        context, regions = self._attend(alpha, image.vectors, rows.is_expected)
        gate = None
        if self.beta is not None:
            gate = torch.sigmoid(self.beta(rows.hidden))  # Xu et al. 2015, §4.2.1: beta_t
            context = gate * context  # Xu et al. 2015, §4.2.1: beta_t z_t
        # Xu et al. 2015, §3.1.2: gates
        gates = inputs.gates + self.lstm.project_input(context, offset=self.config.embedding_size)
        hidden, cell = self.lstm(gates, rows.hidden, rows.cell)  # Xu et al. 2015, §3.1.2: c_t, h_t
        output = SatOutput(
            word=inputs.word, hidden=hidden, context=context, gate=None if gate is None else gate.mean(-1),
            attention=alpha, sampled_regions=regions,
        )  # fmt: skip
        return output, State(image, SatRows(hidden, cell, rows.is_expected))

    def _attend(self, alpha: Tensor, vectors: Tensor, is_expected: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """z_t before the gate, (B, N, D), and the regions of hard attention, (B, N), -1 for an expectation.

        In training a region is drawn from alpha, as the greatest of log alpha plus Gumbel noise.
        """
        config = self.config
        if config.attention == "soft" or (not self.training and config.eval_attention == "expectation"):
            return alpha @ vectors, None  # Xu et al. 2015, §4.2: E[z_t]; Boustany and Sarfati, §2.2: v
        scores = alpha.detach()
        if self.training:
            # Xu et al. 2015, §4.1: s_t
            scores = scores.log() - counter_rng.uniform(alpha.shape, alpha.device).clamp(min=1e-30).log().neg().log()
        regions = scores.argmax(-1)
        context = gather_rows(vectors, regions)  # Xu et al. 2015, §4.1: z_t
        if is_expected is not None:
            context = torch.where(is_expected.unsqueeze(-1), alpha @ vectors, context)
            regions = regions.masked_fill(is_expected, -1)
        return context, regions

    def readout(self, output: Output, stage: int = -1) -> Tensor:
        """L_o(E y_{t-1} + L_h h_t + L_z z_t), with dropout and the release's tanh; or one layer over h_t."""
        assert isinstance(output, SatOutput)
        if self.config.readout == "hidden":
            return self.output(self.dropout(output.hidden))  # Boustany and Sarfati, §2.2: y_t
        total = (  # Xu et al. 2015, §3.1.2: p(y_t)
            output.word + self.hidden_to_output(self.dropout(output.hidden)) + self.context_to_output(output.context)
        )
        if self.config.readout_tanh:
            total = torch.tanh(total)
        return self.output(self.dropout(total))
