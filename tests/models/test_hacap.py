"""HACap against its equations written out, and which gradients flow and which must not."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from showtell.decoding import teacher_forced
from showtell.models.hacap import HacapDecoder
from showtell.types import Features
from tests.models.plain import attention, rows
from tests.toys import learning_parts as gradients
from tests.toys import random_decoder, random_features

VOCABULARY, FEATURES, REGIONS = 9, 6, 5
SIZES = {
    "embedding_size": 4, "hidden_size": 5, "attention_size": 7, "output_size": 3, "goal_size": 2,
    "goal_embedding_size": 4, "manager_size": 3, "discriminator_embedding_size": 4, "discriminator_size": 5,
    "discriminator_layers": 2, "horizon": 3, "dropout": 0.0,
}  # fmt: skip
KINDS = {
    "as it comes": {}, "goals as they are": {"normalise_goals": False}, "image": {"discriminator_image": "mean"},
    "attended image": {"discriminator_image": "attended"}, "no highway": {"highway": False, "layers": 2},
    "worker": {"goals": False}, "no manager": {"manager": False}, "attention gradient": {"attention_gradient": True},
    "leaked as it is": {"manager": False, "normalise_goals": False, "discriminator_image": "attended"},
    "projected features": {"project_features": 3, "discriminator_image": "mean"},
}  # fmt: skip


def make(kind: str = "as it comes") -> HacapDecoder:
    config = {"name": "hacap", **SIZES, **KINDS[kind]}
    return random_decoder(config, seed=0, std=0.7, feature_size=FEATURES, vocabulary_size=VOCABULARY).train()


def features(images: int = 2) -> Features:
    return random_features(images, REGIONS, FEATURES, present=[REGIONS] * (images - 1) + [REGIONS - 1])


WORDS = torch.tensor([[[1, 5, 6, 7, 8, 2], [1, 8, 4, 4, 2, 0]], [[1, 4, 2, 0, 0, 0], [1, 7, 7, 5, 4, 6]]])


def sru(weight: Tensor, bias: Tensor, x: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """One layer for one row, as HACap §3.4 writes it."""
    size = len(cell)
    matrices = weight.split(size)
    forget = torch.sigmoid(matrices[0] @ x + bias[:size])
    reset = torch.sigmoid(matrices[1] @ x + bias[size:])
    cell = forget * cell + (1 - forget) * (matrices[2] @ x)
    hidden = reset * torch.tanh(cell)
    return (hidden + (1 - reset) * (matrices[3] @ x) if len(matrices) == 4 else hidden), cell


def layers(module: torch.nn.Module, x: Tensor, cells: list[Tensor]) -> Tensor:
    for number, layer in enumerate(module.layers):
        x, cells[number] = sru(layer.weight, layer.bias, x, cells[number])
    return x


def plain(decoder: HacapDecoder, vectors: Tensor, words: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits, alpha, leaked and goals of one caption of one image, word by word and equation by equation."""
    config, p = decoder.config, dict(decoder.named_parameters())
    as_they_come = vectors
    if config.project_features:
        vectors = (vectors @ p["feature_projection.0.weight"].T + p["feature_projection.0.bias"]).clamp(min=0)
    mean = vectors.mean(0)
    worker = [torch.zeros(config.hidden_size, dtype=vectors.dtype) for _ in range(config.layers)]
    reader = [torch.zeros(config.discriminator_size, dtype=vectors.dtype) for _ in range(config.discriminator_layers)]
    manager = [torch.zeros(config.manager_size, dtype=vectors.dtype)]
    hidden, goals, leaked, alphas, logits = None, [], [], [], []
    for word in words:
        if hidden is None:
            alpha, context = torch.full((len(vectors),), 1 / len(vectors), dtype=vectors.dtype), mean
        else:
            alpha = attention(decoder.attention, vectors, hidden, torch.relu)
            beta = torch.sigmoid(p["beta.weight"][0] @ hidden + p["beta.bias"][0])
            context = beta * sum(weight * a for weight, a in zip(alpha, vectors, strict=True))
        alphas.append(alpha)
        hidden = layers(decoder.worker, torch.cat([p["embedding.weight"][word], context]), worker)
        actions = p["actions.weight"] @ hidden
        if config.goals:
            x = p["discriminator.embedding.weight"][word]
            if config.discriminator_image == "mean":
                shown = p["discriminator.value.weight"] @ as_they_come.mean(0) + p["discriminator.value.bias"]
                x = torch.cat([x, x * shown])
            if config.discriminator_image == "attended":
                query = p["discriminator.query.weight"] @ x + p["discriminator.query.bias"]
                energy = [query @ (p["discriminator.key.weight"] @ a) / len(x) ** 0.5 for a in as_they_come]
                values = [p["discriminator.value.weight"] @ a + p["discriminator.value.bias"] for a in as_they_come]
                shown = sum(w * v for w, v in zip(torch.stack(energy).softmax(0), values, strict=True))
                x = torch.cat([x, x * shown])
            leak = p["discriminator.leak.weight"] @ layers(decoder.discriminator.sru, x, reader)
            leak = leak + p["discriminator.leak.bias"]
            goal = leak
            if config.manager:
                goal = p["to_goal.weight"] @ layers(decoder.manager, leak, manager) + p["to_goal.bias"]
            goals.append(goal / goal.norm() if config.normalise_goals else goal)
            leaked.append(leak)
            wanted = p["goal_embedding.weight"] @ sum(goals[-config.horizon :])  # w_t
            matrix = actions.view(config.output_size, config.goal_embedding_size)  # H_t
            scores = (p["output.weight"] @ matrix) @ wanted  # O_t w_t, O_t of V x k
        else:
            scores = p["output.weight"] @ actions
        logits.append(scores + p["output.bias"])
    empty = torch.zeros(0)
    return (
        torch.stack(logits), torch.stack(alphas),
        torch.stack(leaked) if leaked else empty, torch.stack(goals) if goals else empty,
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_what_the_equations_say(kind):
    decoder, image_features = make(kind).eval(), features()
    forced = teacher_forced(decoder, image_features, WORDS)
    outputs = forced.outputs
    for image, row, vectors, words in rows(image_features, WORDS):
        logits, alpha, leaked, goals = plain(decoder, vectors, words)
        torch.testing.assert_close(forced.logits[image, row], logits)
        torch.testing.assert_close(outputs.attention[image, row, :, : len(vectors)], alpha)
        if decoder.config.goals:
            torch.testing.assert_close(outputs.leak[image, row], leaked)
            torch.testing.assert_close(outputs.goal[image, row], goals)


def test_the_discriminator_sees_all_prefixes_in_one_pass():
    for kind in ("as it comes", "image", "attended image"):
        decoder, image_features = make(kind), features()
        outputs = teacher_forced(decoder, image_features, WORDS).outputs
        leaked = decoder.discriminator.leaked_features(WORDS, decoder.start(image_features).image.discriminator)
        torch.testing.assert_close(leaked, outputs.leak)
        logits = decoder.discriminator.logits(leaked)
        weight, bias = decoder.discriminator.verdict.weight[0], decoder.discriminator.verdict.bias
        torch.testing.assert_close(logits, (leaked * weight).sum(-1) + bias)


def test_gradients_flow_where_they_should_and_nowhere_else():
    decoder, image_features = make(), features()

    def outputs() -> Any:
        return teacher_forced(decoder, image_features, WORDS).outputs

    worker = {"embedding", "attention", "beta", "worker", "actions", "output"}
    words = F.cross_entropy(
        teacher_forced(decoder, image_features, WORDS[..., :-1]).logits.flatten(0, 2), WORDS[..., 1:].flatten()
    )
    assert gradients(decoder, words) == worker | {"goal_embedding"}  # neither manager nor discriminator
    assert gradients(decoder, outputs().goal.square()[..., 0].sum()) == {"manager", "to_goal"}
    assert gradients(decoder, outputs().leak.sum()) == {"discriminator"}
    # of attention alone, no way back into the language model
    assert gradients(decoder, outputs().attention.square().sum()) == {"attention"}
    assert gradients(decoder, outputs().gate.sum()) == {"beta"}


def test_gradients_of_the_attention_may_flow_back_into_the_language_model():
    torch.testing.assert_close(
        *(teacher_forced(make(kind), features(), WORDS).logits for kind in ("as it comes", "attention gradient"))
    )
    decoder = make("attention gradient")
    outputs = teacher_forced(decoder, features(), WORDS).outputs
    assert gradients(decoder, outputs.attention.square().sum()) == {"attention", "beta", "embedding", "worker"}
    assert gradients(decoder, outputs.gate[:, :, 1].sum()) == {"beta", "embedding", "worker"}  # through h_1 alone
