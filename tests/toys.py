"""Small stand-ins that several tests share."""

import resource
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from torch import Tensor

from showtell.captioners import EncoderDecoderCaptioner
from showtell.decoding import DecodingConfig
from showtell.features import build_encoder, encoder_config
from showtell.models import MODELS, build_decoder
from showtell.models.contract import Decoder, DecoderConfig, Output, State
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features


@dataclass(frozen=True)
class TableRows:
    """Where each row of the table decoder stands."""

    time: Tensor  # (B, N) int64


@dataclass(frozen=True, kw_only=True)
class TableOutput(Output):
    """The row of the table."""

    logits: Tensor  # (B, N, V)


class TableDecoder(Decoder):
    """Logits looked up by image, time and last word: the smallest decoder with memory of time and images."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.config = DecoderConfig(name="table")
        self.register_buffer("table", table)  # (B, T, V, V)

    def start(self, features: Features) -> State:
        table_index = features.vectors[:, 0, 0].long()  # the image says which of the tables is its own
        return State(table_index, TableRows(torch.zeros(len(table_index), 1, dtype=torch.long)))

    def step(self, words: Tensor, state: State) -> tuple[TableOutput, State]:
        time = state.rows.time
        logits = self.table[state.image.unsqueeze(1), time, words]
        attention = torch.eye(8)[time % 8]
        return TableOutput(logits=logits, attention=attention), State(state.image, TableRows(time + 1))

    def readout(self, output: Output, stage: int = -1) -> Tensor:
        return output.logits


def table_decoder(images: int, steps: int, size: int, seed: int) -> tuple[TableDecoder, Features]:
    """A random decoder over `size` ids and one feature vector per image."""
    table = torch.randn(images, steps, size, size, generator=torch.Generator().manual_seed(seed)) * 2
    vectors = torch.arange(images).float().view(-1, 1, 1)
    return TableDecoder(table), Features(vectors, torch.ones(images, 1, dtype=torch.bool))


SMALL = {"embedding_size": 3, "hidden_size": 4, "attention_size": 3, "dropout": 0.0}


def random_features(
    images: int = 2, regions: int = 3, size: int = 6, *, seed: int = 1, dtype: torch.dtype = torch.float64,
    present: Sequence[int] | None = None,
) -> Features:  # fmt: skip
    """Random vectors; of each image the first so many regions are present, the others padding."""
    vectors = torch.randn(images, regions, size, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    count = torch.tensor(present or [regions] * images)
    return Features(vectors, torch.arange(regions) < count.unsqueeze(-1))


def random_decoder(
    config: Any, *, seed: int, std: float, feature_size: int, vocabulary_size: int, dtype: torch.dtype = torch.float64
) -> Any:
    """A model far from where gradients are small, of which every weight matters: no bias is 0, no forget gate is 1."""
    if isinstance(config, dict):
        config = MODELS[config["name"]][0].model_validate(config)
    torch.manual_seed(seed)
    decoder = build_decoder(config, feature_size=feature_size, vocabulary_size=vocabulary_size).to(dtype)
    for weight in decoder.parameters():
        torch.nn.init.normal_(weight, std=std)
    return decoder.eval()


def learning_parts(decoder: Decoder, value: Tensor) -> set[str]:
    """The parts that a value has a gradient to, by the first name of their parameters."""
    decoder.zero_grad()
    value.backward(retain_graph=True)
    return {n.split(".")[0] for n, p in decoder.named_parameters() if p.grad is not None and p.grad.any()}


def random_captioner(
    encoder: Any, model: dict[str, Any], words: Any, *, seed: int = 0, std: float = 0.5, **decoding: Any
) -> EncoderDecoderCaptioner:
    """Of random weights, which says something else of each photo: encoder and model by their settings, and words."""
    vocabulary = words if isinstance(words, Vocabulary) else Vocabulary(words)
    torch.manual_seed(seed)
    built = build_encoder(encoder_config(encoder)).eval() if isinstance(encoder, dict) else encoder
    sizes = {"feature_size": built.feature_size, "vocabulary_size": len(vocabulary)}
    decoder = random_decoder(model, seed=seed, std=std, dtype=torch.float32, **sizes)
    settings = DecodingConfig(**decoding)
    return EncoderDecoderCaptioner(encoder=built, decoder=decoder, vocabulary=vocabulary, decoding=settings)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may become larger, as on a disk that fills up."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def http_server(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server on this machine, which says nothing of what it is asked."""
    handler.log_message = lambda *_: None  # type: ignore[method-assign]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
