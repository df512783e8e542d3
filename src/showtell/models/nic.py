"""Captioner without attention: RNN or GRU of Boustany and Sarfati, or the LSTM of Vinyals et al., CVPR 2015.

Sources: Boustany and Sarfati, §1.3 and §2.1, and the rows "LSTM" and "LSTM 3 layers" of Gu et al. 2018, Table 1.

    v = mean_i v_i                                       the pooled feature vector of the image
    Boustany and Sarfati:  a_0 = W_0 v + b_0             the image as first hidden state                   (§2.1)
        a_t = f_a(W_ax x_t + W_aa a_{t-1} + b_a)         `cell: rnn`                                       (§1.3)
        r, u = sigmoid(W [a_{t-1}, x_t] + b)             `cell: gru`, reset and update gate                (§2.1)
        n = tanh(W_c [r * a_{t-1}, x_t] + b_c),  a_t = u * n + (1 - u) * a_{t-1}
    Vinyals:     h_{-1} = LSTM(W_I v + b_I, 0)           the image as first input, before the first word
        h_t = LSTM(x_t, h_{t-1})                         `cell: lstm`
        i, f, o, g of (x_t, h_{t-1}), g = max(g_1, g_2)  `cell: lstm_maxout`, Rennie et al., CVPR 2017 ("FC")
    p(y_t | y_<t) = softmax(W_o a_t + b_o)               with x_t the embedding of y_{t-1}

Layers above the first read the hidden vector of the layer below.

Where this differs from the papers, or the papers are silent:
 1. `cell: gru` is the formula of Boustany and Sarfati, where the reset gate acts in front of the product. `cell:
    gru_torch` is torch's, where it acts behind it: faster, and not the same function.
 2. Boustany and Sarfati do not say how a 14 x 14 x 2048 map is projected to one vector; we take the mean of
    its cells first.
 3. With the image as first state, each layer has a projection of its own, and so has an LSTM's cell vector.
 4. Dropout acts on the output of each layer and on the top layer in front of W_o (Boustany and Sarfati have the latter;
    no paper mentions the former), with masks from `counter_rng.py`.
 5. `cell: lstm_maxout` with `image: input` is the FC model of Rennie et al. (self-critical training) as
    ImageCaptioning.pytorch has it under the name `newfc`, whose published weights can be imported.
 6. Boustany and Sarfati leave f_a and the first state of their RNN open: f_a is tanh here, and a_0 is the
    image, as for the GRU.
    The argument of §2.1 for the GRU, d c_t / d c_{t-1} = diag(1 - u), leaves out that u, r and n depend on c_{t-1} too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from showtell.config import Size
from showtell.counter_rng import Dropout
from showtell.models.attention import masked_mean
from showtell.models.contract import Decoder, DecoderConfig, HiddenOutput, Output, State
from showtell.models.layers import Linear
from showtell.models.recurrent import Cell, GruCell, LstmCell, MaxoutLstmCell, RnnCell, initialise
from showtell.types import Features

CELLS: dict[str, Callable[[int, int], Cell]] = {
    "gru": GruCell,
    "gru_torch": partial(GruCell, reset_after=True),
    "lstm": LstmCell,
    "lstm_maxout": MaxoutLstmCell,
    "rnn": RnnCell,
}


class NicConfig(DecoderConfig):
    """Sizes and choices of the captioner without attention."""

    name: Literal["nic"] = "nic"
    cell: Literal["gru", "gru_torch", "lstm", "lstm_maxout", "rnn"] = Field(
        "gru", description="Recurrent cell (`gru`, `rnn`: Boustany and Sarfati, §2.1 and §1.3; `gru_torch`: torch's)."
    )
    layers: Annotated[Size, Field(le=64)] = Field(1, description="Number of recurrent layers.")
    image: Literal["state", "input"] = Field(
        "state", description="Feed the image as initial hidden state, or as first input."
    )
    embedding_size: Size = Field(512, description="Size of the word embeddings, and of the image as first input.")
    hidden_size: Size = Field(512, description="Size of each recurrent layer.")
    dropout: float = Field(0.5, ge=0, lt=1, description="Dropout on the outputs of each layer.")


@dataclass(frozen=True)
class NicRows:
    """The layers of each row, the lowest first."""

    hidden: tuple[Tensor, ...]  # each (B, N, H) a_{t-1} of a layer
    cell: tuple[Tensor, ...]  # each (B, N, H); none but for an LSTM


NicState = State[None, NicRows]


@dataclass(frozen=True)
class NicInputs:
    """The output of `embed`."""

    gates: Tensor  # (..., 4 H) for an LSTM, 3 H for a GRU, H for an RNN: x_t's part of the gates of the lowest layer


class NicDecoder(Decoder[NicInputs, None, NicRows]):
    """An RNN, a GRU or an LSTM, also with maxout, of any number of layers that reads the image once."""

    config: NicConfig
    cells: Sequence[Cell]  # a ModuleList, the lowest layer first

    def __init__(self, config: NicConfig, *, feature_size: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        hidden, embedding = config.hidden_size, config.embedding_size
        self.embedding = nn.Embedding(vocabulary_size, embedding)
        sizes = [embedding] + [hidden] * (config.layers - 1)
        self.cells = nn.ModuleList(CELLS[config.cell](size, hidden) for size in sizes)  # type: ignore[assignment]
        if config.image == "input":
            self.image_to_input = nn.Linear(feature_size, embedding)  # W_I
        else:
            self.image_to_state = nn.Linear(feature_size, self._states * hidden)  # W_0
        self.dropout = Dropout(config.dropout)
        self.output = Linear(hidden, vocabulary_size)  # W_o
        initialise(self, self.cells)

    @property
    def _states(self) -> int:
        """Number of state vectors of a row."""
        return self.config.layers * (2 if self.config.cell in ("lstm", "lstm_maxout") else 1)

    def start(self, features: Features) -> NicState:
        """The state after the image, which is the initial state or the first input and is not used again."""
        image = masked_mean(features.vectors, features.is_region).unsqueeze(1)  # (B, 1, D)
        if self.config.image == "state":
            states = self.image_to_state(image).chunk(self._states, -1)  # Boustany and Sarfati, §2.1: a_0
            return State(None, NicRows(states[: self.config.layers], states[self.config.layers :]))
        zeros = image.new_zeros(len(image), 1, self.config.hidden_size)
        empty = NicRows((zeros,) * self.config.layers, (zeros,) * (self._states - self.config.layers))
        return State(None, self._run(self.cells[0].project_input(self.image_to_input(image)), empty))

    def embed(self, words: Tensor) -> NicInputs:
        """x_t and its part of the gates of the lowest layer."""
        return NicInputs(self.cells[0].project_input(self.embedding(words)))

    def step(self, words: Tensor | NicInputs, state: NicState) -> tuple[HiddenOutput, NicState]:
        """Read the last word."""
        inputs = words if isinstance(words, NicInputs) else self.embed(words)
        rows = self._run(inputs.gates, state.rows)
        return HiddenOutput(hidden=rows.hidden[-1]), State(None, rows)

    def _run(self, gates: Tensor, rows: NicRows) -> NicRows:
        """All layers, one step, from the input's part of the gates of the lowest."""
        hiddens: list[Tensor] = []
        cells: list[Tensor] = []
        for layer, module in enumerate(self.cells):
            if layer:
                gates = module.project_input(self.dropout(hiddens[-1]))
            if isinstance(module, LstmCell | MaxoutLstmCell):
                hidden, cell = module(gates, rows.hidden[layer], rows.cell[layer])
                cells.append(cell)
            else:
                hidden = module(gates, rows.hidden[layer])
            hiddens.append(hidden)
        return NicRows(tuple(hiddens), tuple(cells))

    def readout(self, output: Output, stage: int = -1) -> Tensor:
        """W_o a_t + b_o, with dropout."""
        assert isinstance(output, HiddenOutput)
        return self.output(self.dropout(output.hidden))  # Boustany and Sarfati, §1.3: y_t
