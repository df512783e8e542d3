"""Attributes: scores of words by hand, the LSTM that reads them, and what may learn from what."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from showtell.captioners import Captioner
from showtell.decoding import teacher_forced
from showtell.errors import RecipeError
from showtell.models import MODELS, Capability, Decoder
from showtell.models.attributes import Attributes
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig, word_presence
from showtell.training.loop import train
from showtell.training.recipe_checks import make_recipe
from showtell.types import Batch, Features
from tests.toys import random_decoder

VOCABULARY, SIZE, EMBEDDING, HIDDEN = 9, 6, 5, 4
WORDS = torch.tensor([[[1, 5, 6, 7], [1, 7, 4, 2]]])  # one image


@dataclass(frozen=True)
class Reader:
    """A model that reads attributes: the LSTM that does, and where q stands in its input."""

    settings: dict[str, Any]
    lstm: str
    offset: int


READERS = {
    "sat": Reader({"name": "sat"}, "lstm", EMBEDDING + SIZE),
    "sat hard": Reader({"name": "sat", "attention": "hard"}, "lstm", EMBEDDING + SIZE),
    "sat projected": Reader({"name": "sat", "project_features": 3}, "lstm", EMBEDDING + 3),
    "updown": Reader({"name": "updown"}, "attention_lstm", HIDDEN + SIZE),
    "updown projected": Reader({"name": "updown", "project_features": 3}, "attention_lstm", HIDDEN + 3),
    "stack": Reader({"name": "stack"}, "coarse_lstm", HIDDEN + SIZE),
    "stack of one": Reader({"name": "stack", "fine_stages": 0}, "coarse_lstm", HIDDEN + SIZE),
}
readers = pytest.mark.parametrize("kind", READERS)


def make(kind: str, *, attributes: bool = True) -> Decoder:
    sizes = {"embedding_size": EMBEDDING, "hidden_size": HIDDEN, "attention_size": 3, "dropout": 0.0}
    settings = {**sizes, **READERS[kind].settings, "attributes": attributes}
    config = MODELS[settings["name"]][0].model_validate(settings)
    return random_decoder(config, seed=0, std=0.5, feature_size=SIZE, vocabulary_size=VOCABULARY)


def features(images: int = 1) -> Features:
    vectors = torch.randn(images, 3, SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return Features(vectors, torch.tensor([[True, True, False]]).expand(images, -1))


def test_scores_by_hand():
    """Two regions and padding, feature size 1, six ids of which four are marks."""
    attributes = Attributes(feature_size=1, vocabulary_size=6, embedding_size=1)
    with torch.no_grad():
        attributes.scores.weight.copy_(torch.tensor([[9.0], [9.0], [9.0], [9.0], [1.0], [-2.0]]))
        attributes.scores.bias.copy_(torch.tensor([9.0, 9.0, 9.0, 9.0, -1.0, 0.5]))
        attributes.embedding.weight.copy_(torch.tensor([[10.0, 100.0]]))
    image = Features(torch.tensor([[[0.5], [2.0], [50.0]]]), torch.tensor([[True, True, False]]))
    first = math.log(math.exp(0.5 - 1) + math.exp(2 - 1))
    second = math.log(math.exp(-1 + 0.5) + math.exp(-4 + 0.5))
    expected = [1 / (1 + math.exp(-score)) for score in (first, second)]
    assert attributes.probabilities(image)[0, 4:].tolist() == pytest.approx(expected, rel=1e-6)
    assert float(attributes(image).detach()) == pytest.approx(10 * expected[0] + 100 * expected[1], rel=1e-6)


def test_few_words_are_there_at_the_start():
    attributes = Attributes(feature_size=4, vocabulary_size=6, embedding_size=1)
    attributes.initialise()
    empty = Features(torch.zeros(1, 36, 4), torch.ones(1, 36, dtype=torch.bool))
    assert attributes.probabilities(empty)[0].tolist() == pytest.approx(
        [36 * math.exp(-6) / (1 + 36 * math.exp(-6))] * 6
    )


@readers
def test_what_is_read_is_a_constant_of_the_image_in_the_gates(kind):
    """The same model without attributes, with W q in the bias of its LSTM, says the same of this image."""
    reader, decoder, plain = READERS[kind], make(kind), make(kind, attributes=False)
    q = decoder.attributes(features())[0, 0].detach()
    weights: dict[str, Tensor] = {n: x for n, x in decoder.state_dict().items() if not n.startswith("attributes.")}
    wide = weights[f"{reader.lstm}.weight_ih"]
    of_q = slice(reader.offset, reader.offset + EMBEDDING)
    weights[f"{reader.lstm}.weight_ih"] = torch.cat([wide[:, : of_q.start], wide[:, of_q.stop :]], 1)
    weights[f"{reader.lstm}.bias_ih"] = weights[f"{reader.lstm}.bias_ih"] + wide[:, of_q] @ q
    plain.load_state_dict(weights)
    ours, theirs = (teacher_forced(one, features(), WORDS).logits for one in (decoder, plain))
    torch.testing.assert_close(ours, theirs)
    assert float((wide[:, of_q] @ q).abs().min()) > 1e-3


@readers
def test_the_likelihood_leaves_the_scores_alone(kind):
    """Neither u and b nor the features learn from P: the gradient of the features is that with P held constant."""
    decoder, image = make(kind), features()
    held = decoder.attributes.probabilities(image)
    gradients = []
    for fixed in (False, True):
        vectors = image.vectors.clone().requires_grad_()
        if fixed:
            decoder.attributes.probabilities = lambda _: held  # type: ignore[method-assign, assignment]
        logits = teacher_forced(decoder, Features(vectors, image.is_region), WORDS).logits
        parameters = list(decoder.attributes.scores.parameters())
        of_features, *of_scores = torch.autograd.grad(logits.sin().sum(), [vectors, *parameters], allow_unused=True)
        assert of_scores == [None, None]
        gradients.append(of_features)
    torch.testing.assert_close(*gradients)


def test_word_presence_trains_the_layer_of_the_decoder():
    decoder, image = make("sat"), features()
    batch = Batch(("a",), torch.zeros(1, 3, 2, 2, dtype=torch.uint8), WORDS, torch.ones(1, 2, dtype=torch.bool))
    objective = CrossEntropy(CrossEntropyConfig(word_presence=0.3), feature_size=SIZE, vocabulary_size=VOCABULARY)
    assert objective.presence is not None
    objective.use_layers_of(make("sat", attributes=False))
    assert objective.presence is not None
    objective.use_layers_of(decoder)
    assert objective.presence is None
    terms = objective(batch, image, decoder)
    weights = objective.agreement.square()
    expected = word_presence(decoder.attributes.scores(image.vectors), image.is_region, batch.targets, weights)
    torch.testing.assert_close(terms.parts["word_presence"], expected.detach())
    torch.testing.assert_close(terms.total.detach(), terms.parts["words"] + 0.3 * expected.detach())
    (ours,), (theirs,) = (
        torch.autograd.grad(value, decoder.attributes.scores.weight) for value in (terms.total, 0.3 * expected)
    )
    torch.testing.assert_close(ours, theirs)
    assert float(ours.abs().sum()) > 0


def test_attributes_that_nothing_trains_are_refused(tiny_recipe: dict[str, Any]):
    recipe = {
        **tiny_recipe,
        "model": {**tiny_recipe["model"], "attributes": True},
        "objective": {"name": "cross_entropy"},
    }
    with pytest.raises(RecipeError) as refusal:
        make_recipe(recipe)
    assert str(refusal.value).splitlines()[1].strip() == (
        "model.attributes=true needs objective.word_presence above 0, which trains its layer; set "
        "objective.word_presence=1.0, or model.attributes=false"
    )


def test_trained_saved_and_loaded_it_captions_photos(tiny_recipe: dict[str, Any], tmp_path: Path):
    model = {"name": "sat", "embedding_size": 8, "hidden_size": 8, "attention_size": 8, "attributes": True}
    training = {**tiny_recipe["training"], "epochs": 1}
    train({**tiny_recipe, "model": model, "training": training}, tmp_path / "run", quiet=True)
    captioner = Captioner.from_pretrained(tmp_path / "run" / "last")
    assert Capability.ATTRIBUTES in captioner.decoder.capabilities
    photo = next(Path(tiny_recipe["data"]["path"]).rglob("*.png"))
    ((caption,),) = captioner.caption([photo])
    assert caption.text
    biases = captioner.decoder.attributes.scores.bias.detach()
    assert float((biases + 6).abs().max()) > 1e-3  # they have learned
    beside = load_file(tmp_path / "run" / "last" / "training" / "optimizer.safetensors")
    assert {name for name in beside if "objective" in name} == {"extra.objective.agreement"}  # no layer of its own
