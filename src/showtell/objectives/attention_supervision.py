"""Supervised attention: the words that name an object shall look at it.

papers/000 §7 wishes for "supervised alignment" and gives no formula. Liu et al. (Attention correctness in neural image
captioning, AAAI 2017) add a cross-entropy to the likelihood; with beta_t the cells of the object that word t names,

    cross_entropy    l_t = - sum_i beta_ti / (sum_k beta_tk) log alpha_ti
    mass             l_t = - log ( sum_i beta_ti alpha_ti / max_k beta_tk )

The first asks for attention that is spread over the object as its area is, the second (ours) for attention that lies
in the object, wherever in it: it is 0 where all attention lies in cells that the object covers most. beta_ti is the
share of cell i that the boxes of the object cover, for detected regions 1 where the region overlaps a box by half
(`training/mentions.py`). l_t is in nats, as - log p(y_t) is, and words that name nothing have none:

    L_d = - sum_t log p(y_t | y_<t, a) + nu sum_{t names an object} l_t

so nu = 1 weighs looking at the object as much as naming it. A decoder with several stages has that sum for the
attention of each of them, as it has their likelihoods.

Subgoals can be taught to follow phrases in the same way (`goal_supervision` of `adversarial_pretraining`, ours): g_t,
which guides word t, is to keep its direction within a phrase and to take another one where a phrase begins or ends,

    m_t = 1 - cos(g_{t-1}, g_t)          if the words t-1 and t name the same object
          max(0, cos(g_{t-1}, g_t))      if one of them names an object that the other does not name
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from showtell.config import Config
from showtell.models import Output
from showtell.types import Mentions, NamingWords


class AttentionSupervisionConfig(Config):
    """What is asked of the attention of words that name an object with a box."""

    weight: float = Field(
        0.0,
        ge=0,
        description="Weight nu of a named word's attention loss beside -log p of a word (papers/000 §7); needs a "
        "dataset with boxes.",
    )
    words: NamingWords = Field(
        "phrases",
        description="Supervise the nouns alone; every word of an annotated phrase (`a small red circle`); or also the "
        "words between two phrases (`is left of`), which look at the second.",
    )
    loss: Literal["cross_entropy", "mass"] = Field(
        "cross_entropy",
        description="Use the cross-entropy of attention to the boxes' share of each cell (Liu et al., 2017), or -log "
        "of the attention that lies in the boxes.",
    )


def attention_loss(attention: Tensor, mentions: Mentions, loss: Literal["mass", "cross_entropy"]) -> Tensor:
    """sum of l_t over the words that name an object.

    Objects that no region shows, because the photo was cropped or nothing was detected there, have no term.

    Args:
        attention: alpha, (B, N, T, R).
        mentions: with `targets`.
        loss: which l_t.
    """
    assert mentions.targets is not None, "mentions are located before the objective sees them"
    alpha, beta = attention.float(), mentions.targets
    tiny = torch.finfo(torch.float32).tiny
    if loss == "mass":
        shares = beta / beta.amax(-1, keepdim=True).clamp(min=tiny)
        losses = -torch.einsum("bntr,bmr->bntm", alpha, shares).clamp(min=tiny).log()
    else:
        shares = beta / beta.sum(-1, keepdim=True).clamp(min=tiny)
        losses = -torch.einsum("bntr,bmr->bntm", alpha.clamp(min=tiny).log(), shares)
    indices = mentions.indices
    is_shown = (beta > 0).any(-1)[:, None, None].expand_as(losses)  # (B, N, T, M)
    chosen = indices.clamp(min=0).unsqueeze(-1)
    is_named = (indices >= 0) & is_shown.gather(-1, chosen).squeeze(-1)
    return losses.gather(-1, chosen).squeeze(-1)[is_named].sum()


def goal_loss(goals: Tensor, indices: Tensor) -> Tensor:
    """sum of m_t over the pairs of neighbouring words of which at least one names an object.

    Args:
        goals: g, (B, N, T, G).
        indices: of `Mentions`, (B, N, T).
    """
    cosine = functional.cosine_similarity(goals[:, :, 1:].float(), goals[:, :, :-1].float(), dim=-1)
    before, after = indices[..., :-1], indices[..., 1:]
    losses = torch.where(before == after, 1 - cosine, cosine.clamp(min=0))
    return (losses * ((before >= 0) | (after >= 0))).sum()


def stage_attention(outputs: Output) -> list[Tensor]:
    """The attention of every stage that has one, (B, N, T, R) each."""
    return [output.attention for output in outputs.stages or (outputs,) if output.attention is not None]
