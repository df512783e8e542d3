"""Parts of the models' equations for one row of one image, written out plainly."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from showtell.types import Features


def rows(features: Features, words: Tensor) -> Iterator[tuple[int, int, Tensor, list[int]]]:
    """Each caption (B, N, T) of each image: both their numbers, the regions without padding (R, D), and the words."""
    for image, captions in enumerate(words.tolist()):
        regions = features.vectors[image][features.is_region[image]]
        for row, caption in enumerate(captions):
            yield image, row, regions, caption


def attention(
    layer: nn.Module, regions: Tensor, query: Tensor, activation: Callable[[Tensor], Tensor] = torch.tanh
) -> Tensor:
    """alpha = softmax_i(w . f(W_a a_i + b + W_h h)), region by region."""
    w = dict(layer.named_parameters())
    inner = w["of_query.weight"] @ query + w.get("of_features.bias", torch.zeros(1))
    scores = [w["score.weight"][0] @ activation(w["of_features.weight"] @ region + inner) for region in regions]
    return torch.stack(scores).exp() / torch.stack(scores).exp().sum()


def lstm(cell: nn.LSTMCell, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The new hidden and cell of an LSTM."""
    i, f, g, o = (cell.weight_ih @ x + cell.bias_ih + cell.weight_hh @ h + cell.bias_hh).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c
