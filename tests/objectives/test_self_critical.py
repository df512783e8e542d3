"""The self-critical gradient: by hand, against enumeration of all captions, and over parts of a batch."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from showtell import counter_rng
from showtell.decoding import Captions, Rules
from showtell.decoding.policy import rollouts
from showtell.decoding.rollout import collect
from showtell.errors import RecipeError
from showtell.models.contract import Decoder
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig
from showtell.objectives.self_critical import SelfCritical, SelfCriticalConfig, prepare_reward
from showtell.training.recipe_checks import make_recipe
from showtell.types import Batch
from tests.decoding.plain import plain_beam
from tests.decoding.test_policy import sat, sight
from tests.toys import TableDecoder, table_decoder

BEGIN, END, UNKNOWN = 1, 2, 3
REFERENCES = [[BEGIN, 4, END], [BEGIN, 5, 4, END]]
LENGTH = 2  # words at most


def names(images: int) -> tuple[str, ...]:
    return tuple(str(image) for image in range(images))


def batch(images: int) -> Batch:
    words = torch.tensor([[[BEGIN, 4, END, 0], [BEGIN, 5, 4, END]]]).expand(images, -1, -1)
    return Batch(names(images), None, words, torch.ones(images, 2, dtype=torch.bool))


def objective(images: int = 1, max_length: int = LENGTH, **settings: object) -> SelfCritical:
    """Ready for images of which the first has captions of its own and the others those of another."""
    made = SelfCritical(SelfCriticalConfig.model_validate(settings), feature_size=2, vocabulary_size=6)
    made.prepare(dict.fromkeys(names(images), REFERENCES) | {"other": [[BEGIN, UNKNOWN, 3, END]]}, max_length)
    return made


def gradient(decoder: Decoder, value: Tensor) -> Tensor:
    """Of all weights, in one row; 0 for those without."""
    gradients = torch.autograd.grad(value, list(decoder.parameters()), allow_unused=True, materialize_grads=True)
    return torch.cat([gradient.flatten() for gradient in gradients])


def gradient_of_scores(table: Tensor, captions: Captions, advantage: Tensor) -> Tensor:
    """advantage (p - onehot(ws_t)) / (images x samples) at each score of a table that a word was drawn from."""
    expected = torch.zeros_like(table)
    for image, sample in itertools.product(*map(range, advantage.shape)):
        words = captions.words[image, sample][captions.is_word[image, sample]].tolist()
        for step, (last, word) in enumerate(zip([BEGIN, *words], [*words, None], strict=True)):
            if last == END:
                break
            p = torch.zeros(6)
            p[2:] = table.detach()[image, step, last, 2:].softmax(-1)
            onehot = torch.nn.functional.one_hot(torch.tensor(END if word is None else word), 6)
            # Where it is cut off, that of -log(1 - p(end)).
            share = 1.0 if word is not None else -float(p[END] / (1 - p[END]))
            expected[image, step, last] += share * advantage[image, sample] * (p - onehot) / advantage.numel()
    return expected


def captions_of_plain_beam(decoder: TableDecoder, images: int, width: int) -> Captions:
    """Of `tests/decoding/plain.py`: one hypothesis at a time."""
    beams = [plain_beam(decoder, image, LENGTH, width, rules=Rules(), penalty=0.0) for image in range(images)]
    padded = torch.tensor([[one.words + [0] * (LENGTH + 1 - len(one.words)) for one in beam] for beam in beams])
    return collect(padded, torch.zeros(padded.shape))


HELD_AGAINST = {  # of rewards 1.0, 0.4, 0.1 and 0.0, 0.2, 0.9 of samples, 0.3 and 0.6 of greedy captions
    "greedy": [[0.3, 0.3, 0.3], [0.6, 0.6, 0.6]],
    "leave_one_out": [[0.25, 0.55, 0.7], [0.55, 0.45, 0.1]],
    "mean": [[0.5, 0.5, 0.5], [1.1 / 3, 1.1 / 3, 1.1 / 3]],
}


@pytest.mark.parametrize("baseline", HELD_AGAINST)
@pytest.mark.parametrize("sampling", ["multinomial", "beam"])
def test_the_gradient_of_the_scores_by_hand(sampling, baseline):
    """(r(ws) - b) (p - onehot(ws_t)) / (images x samples) (eq. 11), for samples or a plain beam of two images."""
    decoder, features = table_decoder(images=2, steps=3, size=6, seed=8)
    samples = captions_of_plain_beam(decoder, 2, 3)
    if sampling == "multinomial":
        with counter_rng.use(counter_rng.CounterRNG(0, 0, names(2))):
            samples = rollouts(decoder, features, LENGTH, 3).samples
    assert 0 < int(samples.is_finished.sum()) < 6  # both kinds
    decoder.table.requires_grad_()
    loss, heard = objective(2, samples=3, sampling=sampling, baseline=baseline), []
    numbers = torch.tensor([[1.0, 0.4, 0.1, 0.3], [0.0, 0.2, 0.9, 0.6]])  # of three samples and the greedy caption
    loss.reward = lambda words, is_word, image_ids: heard.append(words) or numbers  # type: ignore[assignment, func-returns-value]
    with counter_rng.use(counter_rng.CounterRNG(0, 0, names(2))):
        terms = loss(batch(2), features, decoder)
    assert torch.equal(heard[0][:, :3], samples.words[..., : heard[0].shape[-1]])
    advantage = numbers[:, :3] - torch.tensor(HELD_AGAINST[baseline])
    expected = gradient_of_scores(decoder.table.detach(), samples, advantage)
    torch.testing.assert_close(torch.autograd.grad(terms.total, decoder.table)[0], expected)
    assert float(terms.total.detach()) == pytest.approx(-2.6 / 6)
    parts = {name: float(value) for name, value in terms.parts.items()}
    assert parts["reward"] == pytest.approx(2.6 / 6) and parts["greedy"] == pytest.approx((0.3 + 0.6) / 2)
    assert parts["length"] == pytest.approx(int(samples.is_word.sum()) / 6)
    assert parts["unfinished"] == pytest.approx(1 - int(samples.is_finished.sum()) / 6)
    assert parts["advantage"] == pytest.approx(float(advantage.abs().mean()))
    assert ("entropy" in parts) == (sampling == "multinomial")  # beam captions do not estimate it


def test_the_end_is_rewarded_and_unknown_words_are_not():
    reward = prepare_reward({"1": [[BEGIN, 4, 5, END]], "2": [[BEGIN, UNKNOWN, 4, END]]}, 6, {"cider": 1.0})
    words = torch.tensor([[[4, 5, END], [4, 5, 0]], [[UNKNOWN, 4, END], [4, END, 0]]])
    (whole, cut), (unknown, without) = reward(words, words > 0, ["1", "2"]).tolist()
    assert whole > cut > 0
    assert without > unknown
    bleu = prepare_reward({"2": [[BEGIN, UNKNOWN, 4, END]]}, 6, {"bleu_1": 1.0})
    assert bleu(words[1:, :1], words[1:, :1] > 0, ["2"]).item() == pytest.approx(2 / 3)  # "4" and the end, of three


def test_the_policy_has_no_dropout_and_validation_is_cross_entropy():
    loss, plain, dropped = objective(4), sat(), sat(dropout=0.9)
    gradients = []
    for decoder in (plain, dropped.train()):
        with counter_rng.use(counter_rng.CounterRNG(0, 0, names(4))):
            gradients.append(gradient(decoder, loss(batch(4), sight(4), decoder).total))
    assert torch.equal(*gradients)
    assert dropped.training and dropped.dropout.training
    ours = loss.eval()(batch(4), sight(4), plain)
    theirs = CrossEntropy(CrossEntropyConfig(), feature_size=2, vocabulary_size=6)(batch(4), sight(4), plain)
    assert ours.parts.keys() == theirs.parts.keys() == {"words"}
    assert torch.equal(ours.total, theirs.total)


def test_settings_that_make_no_sense_are_refused(tiny_recipe: dict[str, Any]):
    for settings, sentence in (
        ({"baseline": "mean", "samples": 1}, "baseline=mean compares samples with each other; set samples to 2"),
        ({"reward": {"cider": 0.0}}, "every weight is 0, so nothing would be rewarded; set cider to 1"),
        ({"reward": {"cidr": 1.0}}, 'objective.reward.cidr: no such key; did you mean "cider"?'),
    ):
        with pytest.raises(RecipeError) as caught:
            make_recipe({**tiny_recipe, "objective": {"name": "self_critical", **settings}})
        assert sentence in str(caught.value)
