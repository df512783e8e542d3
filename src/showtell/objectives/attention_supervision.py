"""Supervised attention: the words that name an object shall look at it.

HACap §7 wishes for "supervised alignment" and gives no formula. Liu et al. (Attention correctness in neural image
captioning, AAAI 2017) add a cross-entropy to the likelihood; with beta_t the cells of the object that word t names,

    l_t = - sum_i beta_ti / (sum_k beta_tk) log alpha_ti
    L_d = - sum_t log p(y_t | y_<t, a) + nu sum_{t names an object} l_t

It asks for attention that is spread over the object as its area is. beta_ti is the share of cell i that the boxes of
the object cover, for detected regions 1 where the region overlaps a box by half (`training/mentions.py`). l_t is in
nats, as - log p(y_t) is, and words that name nothing have none, so nu = 1 weighs looking at the object as much as
naming it. A decoder with several stages has that sum for the attention of each of them, as it has their likelihoods.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from showtell.config import Config
from showtell.types import Mentions, NamingWords


class AttentionSupervisionConfig(Config):
    """Settings of attention supervision: a loss on the attention of words that name an object with a box."""

    weight: float = Field(
        0.0, ge=0, description="nu, weight of the loss of a named word's attention; needs a dataset with boxes."
    )
    words: NamingWords = Field(
        "phrases", description="Supervise nouns alone, whole annotated phrases, or also the words between two phrases."
    )


def attention_loss(attention: Tensor, mentions: Mentions) -> Tensor:
    """sum of l_t over words that name an object, of alpha (B, N, T, R); objects that no region shows have no term."""
    assert mentions.targets is not None, "mentions are located before the objective sees them"
    alpha, beta = attention.float(), mentions.targets
    tiny = torch.finfo(torch.float32).tiny
    shares = beta / beta.sum(-1, keepdim=True).clamp(min=tiny)
    losses = -torch.einsum("bntr,bmr->bntm", alpha.clamp(min=tiny).log(), shares)
    indices = mentions.indices
    is_shown = (beta > 0).any(-1)[:, None, None].expand_as(losses)  # (B, N, T, M)
    chosen = indices.clamp(min=0).unsqueeze(-1)
    is_named = (indices >= 0) & is_shown.gather(-1, chosen).squeeze(-1)
    return losses.gather(-1, chosen).squeeze(-1).masked_fill(~is_named, 0.0).sum()
