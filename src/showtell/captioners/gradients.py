"""Saliency by gradients: how far each region's vector raises the log-probability of each word of a caption.

The words are given (teacher forcing). For every word t and region r with the vector v_r of D numbers

    input_x_gradient      s[t, r] = v_r . d log p(y_t | y_<t, v) / d v_r
    integrated_gradients  s[t, r] = v_r . mean_a d log p(y_t | y_<t, a v) / d (a v_r),   a from 0 to 1

M. Sundararajan, A. Taly and Q. Yan, Axiomatic attribution for deep networks, ICML 2017: the integrated gradients of a
word sum over the regions to what it gains from the features, log p(y_t | y_<t, v) - log p(y_t | y_<t, 0). The mean is
over the middles of `STEPS` equal parts. The product with the gradient at the photo itself is the same to first order.
For gradients to pixels, and other methods, see `EncoderDecoderCaptioner.token_logprobs`.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from showtell.decoding.rollout import word_logprobs
from showtell.models import Decoder
from showtell.models.contract import eval_mode
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features, map_tensors

STEPS = 32  # of the integral
GRADIENT_METHODS = {"input_x_gradient": (1.0,), "integrated_gradients": [(n + 0.5) / STEPS for n in range(STEPS)]}
MEMORY = 128 * 2**20  # bytes of the features in a batch


def attribute(decoder: Decoder, features: Features, words: Tensor, method: str) -> Tensor:
    """The saliency of each region for each given word.

    Args:
        decoder: the model, or a view of one of its stages.
        features: of B images.
        words: (B, N, T + 1) int64, begin first, padded: N captions of each image.
        method: one of `GRADIENT_METHODS`.

    Returns:
        (B, N, T, R) natural logarithms, above 0 where the region supports the word; 0 for padding.
    """
    words, shares = words.to(features.vectors.device), GRADIENT_METHODS[method]
    indices = (words[..., 1:] != Vocabulary.pad).nonzero()  # (words of all captions, 3)
    saliency = features.vectors.new_zeros(*words[..., 1:].shape, features.vectors.shape[1])
    with eval_mode(decoder), torch.enable_grad():
        for some in torch.split(indices, max(1, MEMORY // (4 * features.vectors[0].numel()))):
            image, row, time = some.unbind(-1)
            own = map_tensors(features, lambda x, of=image: x[of])
            total = torch.zeros_like(own.vectors)
            for share in shares:
                vectors = (share * own.vectors).detach().requires_grad_()
                logprobs = word_logprobs(decoder, replace(own, vectors=vectors), words[image, row].unsqueeze(1))
                total += torch.autograd.grad(logprobs[:, 0].gather(1, time.unsqueeze(1)).sum(), vectors)[0]
            saliency[image, row, time] = (own.vectors * total / len(shares)).sum(-1)
    return saliency
