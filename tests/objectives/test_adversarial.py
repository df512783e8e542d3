"""What HACap's networks learn from, against arithmetic and enumeration."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from showtell import counter_rng
from showtell.decoding import teacher_forced
from showtell.models.hacap import HacapDecoder
from showtell.objectives import OBJECTIVES, build_objective
from showtell.objectives import adversarial as ours
from showtell.objectives.adversarial import horizon_cosines, intrinsic_rewards, mean_of_other_rows, rank_rewards
from showtell.text.vocabulary import Vocabulary
from showtell.types import Batch, Features
from tests.toys import learning_parts, random_decoder, random_features

END, BEGIN, PAD = Vocabulary.end, Vocabulary.begin, Vocabulary.pad
VOCABULARY = 7
WORDS = torch.tensor([[[1, 4, 5, 2], [1, 6, 2, 0]], [[1, 5, 5, 2], [0, 0, 0, 0]]])
IS_CAPTION = torch.tensor([[True, True], [True, False]])
BATCH = Batch(("a", "b"), None, WORDS, IS_CAPTION)
FEATURES = random_features(size=2, seed=2, dtype=torch.float32)


def model(**settings: Any) -> HacapDecoder:
    sizes = {
        "embedding_size": 3, "hidden_size": 4, "attention_size": 3, "output_size": 3, "goal_size": 2,
        "goal_embedding_size": 3, "manager_size": 3, "discriminator_embedding_size": 3, "discriminator_size": 4,
        "discriminator_layers": 2, "horizon": 2, "dropout": 0.5,
    }  # fmt: skip
    config = {"name": "hacap", **sizes, **settings}
    made = random_decoder(config, seed=0, std=0.8, feature_size=2, vocabulary_size=VOCABULARY, dtype=torch.float32)
    return made.train()


def objective(name: str, longest: int = 3, **settings: Any) -> Any:
    config = OBJECTIVES[name][0].model_validate(settings)
    made = build_objective(config, feature_size=2, vocabulary_size=VOCABULARY)
    made.prepare({}, longest)
    return made


adversarial, pretraining = partial(objective, "adversarial"), partial(objective, "adversarial_pretraining")


# F_0 .. F_3 of one caption of three words, in two dimensions, and its subgoals
LEAKS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [4.0, 5.0]]).view(1, 1, 4, 2)
GOALS = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.6, 0.8]]).view(1, 1, 3, 2)


def test_goals_are_held_against_the_transition_to_their_horizon_or_the_end():
    """c = 2. F_2 - F_0 = (1, 1) with (1, 0): 1/sqrt 2. F_3 - F_1 = (3, 5) with (0, 1): 5/sqrt 34. F_3 - F_2: 1."""
    cosines = horizon_cosines(LEAKS, GOALS, torch.tensor([[3]]), horizon=2)
    assert cosines.flatten().tolist() == pytest.approx([1 / math.sqrt(2), 5 / math.sqrt(34), 1.0], abs=1e-6)
    # of two words: F_2 - F_0, F_2 - F_1 = (0, 1), and nothing behind the end
    cosines = horizon_cosines(LEAKS, GOALS, torch.tensor([[2]]), horizon=2)
    assert cosines.flatten().tolist() == pytest.approx([1 / math.sqrt(2), 1.0, 0.0], abs=1e-6)


def test_a_word_is_rewarded_for_following_the_last_goals():
    """c = 2. Word 1: (1, 0) with g_0: 1. Word 2: (0, 1) with g_1: 1, (1, 1) with g_0: 1/sqrt 2.
    Word 3: (3, 4) with g_2: 1, (3, 5) with g_1: 5/sqrt 34."""
    rewards = intrinsic_rewards(LEAKS, GOALS, horizon=2).flatten().tolist()
    assert rewards == pytest.approx([1.0, (1 + 1 / math.sqrt(2)) / 2, (1 + 5 / math.sqrt(34)) / 2], abs=1e-6)
    assert intrinsic_rewards(LEAKS, GOALS, horizon=9)[..., -1].item() == pytest.approx(
        (1 + 5 / math.sqrt(34) + 4 / math.sqrt(41)) / 3, abs=1e-6  # F_3 - F_0 = (4, 5) with (1, 0) too
    )  # fmt: skip


def test_ranks_become_rewards_step_by_step():
    rewards = torch.tensor([[[0.9, 0.2], [0.1, 0.7]], [[0.5, 0.7], [0.5, 0.0]]])  # four captions, two words
    is_word = torch.tensor([[[True, True], [True, True]], [[True, True], [True, False]]])
    quality = rank_rewards(rewards, is_word, delta=12.0)

    def expected(rank: float, of: int) -> float:
        return 1 / (1 + math.exp(-12 * (0.5 - rank / of)))

    assert quality[..., 0].flatten().tolist() == pytest.approx([expected(r, 4) for r in (1, 4, 2.5, 2.5)], abs=1e-6)
    assert quality[..., 1].flatten().tolist() == pytest.approx([*(expected(r, 3) for r in (3, 1.5, 1.5)), 0], abs=1e-6)


def test_a_word_is_held_against_the_other_captions_words_at_its_step():
    values = torch.tensor([[[1.0, 4.0, 9.0], [3.0, 6.0, 9.0]], [[5.0, 9.0, 9.0], [9.0, 9.0, 9.0]]])
    is_word = torch.tensor([[[1, 1, 1], [1, 1, 0]], [[1, 0, 0], [0, 0, 0]]], dtype=torch.bool)
    means = mean_of_other_rows(values, is_word)
    assert means[is_word].tolist() == [4.0, 6.0, 0.0, 3.0, 4.0, 2.0]  # of the last word there is no other


@pytest.mark.parametrize("image", ["none", "mean", "attended"])
def test_the_discriminator_learns_what_is_real(image):
    """- log D(real) - log(1 - D(sampled)), and of captions of the other image where it sees images."""
    decoder, loss = model(discriminator_image=image), pretraining()
    sampled = torch.tensor([[[1, 5, 2]], [[1, 4, 4]]])
    total, parts = loss._discriminate(BATCH, FEATURES, decoder, sampled)
    images = decoder.discriminator.encode_image(FEATURES.vectors, FEATURES.is_region)
    assert (images is None) == (image == "none")
    real = torch.sigmoid(ours.verdicts(decoder.discriminator, WORDS, images))[IS_CAPTION]
    fake = torch.sigmoid(ours.verdicts(decoder.discriminator, sampled, images)).flatten()
    expected = -real.log().sum() / 3 - (1 - fake).log().sum() / 2
    assert parts["real_known"] == pytest.approx(float((real > 0.5).float().mean()))
    assert parts["sampled_known"] == pytest.approx(float((fake < 0.5).float().mean()))
    if image != "none":
        moved = torch.sigmoid(ours.verdicts(decoder.discriminator, WORDS.flip(0), images))[IS_CAPTION.flip(0)]
        expected = expected + (1 - fake).log().sum() / 4 - (1 - moved).log().sum() / 6  # half the weight each
    assert float(total.detach()) == pytest.approx(float(expected.detach()), abs=1e-5)
    assert ("mismatched_known" in parts) == (image != "none")


WORKER = {"embedding", "attention", "beta", "worker", "actions", "output", "goal_embedding"}


@pytest.mark.parametrize("make", [pretraining, adversarial])
def test_each_network_learns_from_its_own_term(make):
    everything = {"discriminator_weight": 0.0, "manager_weight": 0.0}
    keep_worker = {"worker_weight": 0.0} if make is adversarial else {}
    decoder = model(dropout=0.0)

    def learning(**weights: float) -> set[str]:
        with counter_rng.use(counter_rng.CounterRNG(0, 0, ["a", "b"])):
            return learning_parts(decoder, make(**weights)(BATCH, FEATURES, decoder).total)

    assert learning(**everything) == WORKER
    if make is adversarial:
        assert learning(**everything | keep_worker | {"manager_weight": 1.0}) == {"manager", "to_goal"}
        assert learning(**everything | keep_worker | {"discriminator_weight": 1.0}) == {"discriminator"}
    assert learning() == WORKER | {"manager", "to_goal", "discriminator"}


@torch.no_grad()
def test_rewards_of_prefixes_are_the_expectation_over_what_the_policy_makes_of_them():
    decoder = model(discriminator_image="attended").eval()
    loss = adversarial(longest=2, rollouts=4000)
    words = torch.tensor([[[4, 6]], [[5, END]]])  # the first is as long as captions may be, without end
    with counter_rng.use(counter_rng.CounterRNG(3, 0, ["a", "b"])):
        estimated = loss._rewards(FEATURES, decoder, words)
    images = [
        decoder.discriminator.encode_image(vectors[None], torch.ones(1, 3, dtype=torch.bool))
        for vectors in FEATURES.vectors
    ]

    def judge(image: int, caption: list[int]) -> float:
        whole = torch.tensor([[[BEGIN, *caption]]])
        return float(torch.sigmoid(ours.verdicts(decoder.discriminator, whole, images[image])))

    def expectation(image: int, prefix: list[int]) -> float:
        if prefix[-1] == END:
            return judge(image, prefix)
        one = Features(FEATURES.vectors[[image]], FEATURES.is_region[[image]])
        logits = teacher_forced(decoder, one, torch.tensor([[[BEGIN, *prefix]]])).logits[0, 0, -1]
        logits[[PAD, BEGIN]] = -torch.inf
        chances = logits.softmax(-1).tolist()
        if len(prefix) == 2:
            return chances[END] * judge(image, [*prefix, END]) + (1 - chances[END]) * judge(image, prefix)
        return sum(chance * expectation(image, [*prefix, word]) for word, chance in enumerate(chances) if chance > 0)

    exact = [[expectation(0, [4]), expectation(0, [4, 6])], [expectation(1, [5]), judge(1, [5, END])]]
    assert estimated[:, 0].flatten().tolist() == pytest.approx([x for row in exact for x in row], abs=0.02)
    assert float(estimated[1, 0, 1]) == pytest.approx(exact[1][1], abs=1e-5)


@pytest.mark.parametrize("baseline", ["leave_one_out", "none"])
def test_the_terms_are_what_the_head_of_the_file_says(baseline):
    """With the samples that were drawn: -i sum (r - b) log p(word | no end) - e sum (Q - b') log p, -sum Q cos."""
    decoder = model(dropout=0.0)
    weights = {"intrinsic_weight": 0.7, "external_weight": 0.5}
    loss = adversarial(rollouts=0, samples=2, interleave=0, baseline=baseline, **weights)
    with counter_rng.use(counter_rng.CounterRNG(5, 1, ["a", "b"])):
        terms = loss(BATCH, FEATURES, decoder)
    with counter_rng.use(counter_rng.CounterRNG(5, 1, ["a", "b"])):
        sampled = loss._sample(FEATURES, decoder)
    words, is_word = sampled[..., 1:], sampled[..., 1:] != PAD
    forced = teacher_forced(decoder, FEATURES, sampled[..., :-1])
    logits = forced.logits.clone()
    logits[..., [PAD, BEGIN]] = -torch.inf
    logprobs = logits.log_softmax(-1).gather(-1, words.unsqueeze(-1)).squeeze(-1)
    leaked = decoder.discriminator.leaked_features(sampled)
    rewards = torch.sigmoid(decoder.discriminator.logits(leaked))[:, :, 1:]
    quality = rank_rewards(rewards, is_word, 12.0)
    intrinsic = intrinsic_rewards(leaked, forced.outputs.goal, 2)
    goes_on = is_word & (words != END)
    logits[..., END] = -torch.inf
    followed = logits.log_softmax(-1).gather(-1, words.unsqueeze(-1)).squeeze(-1)
    held = quality
    if baseline == "leave_one_out":
        intrinsic = intrinsic - mean_of_other_rows(intrinsic, goes_on)
        held = quality - mean_of_other_rows(quality, is_word)
    worker = -(0.7 * (intrinsic * followed)[goes_on].sum() + 0.5 * (held * logprobs)[is_word].sum()) / 4
    manager = -(quality * horizon_cosines(leaked, forced.outputs.goal, is_word.sum(-1), 2)).sum() / 4
    assert float(terms.parts["worker"]) == pytest.approx(float(worker.detach()), abs=1e-5)
    assert float(terms.parts["manager"]) == pytest.approx(float(manager.detach()), abs=1e-5)
    total = terms.parts["worker"] + terms.parts["manager"] + terms.parts["discriminator"]
    assert float(terms.total.detach()) == pytest.approx(float(total.detach()), abs=1e-5)
    assert float(terms.parts["length"]) == pytest.approx(float(is_word.sum()) / 4)
    whole = [rewards[i, n, is_word[i, n].sum() - 1] for i in range(2) for n in range(2)]
    assert float(terms.parts["verdict"]) == pytest.approx(float(sum(whole).detach()) / 4, abs=1e-5)


def test_pretraining_has_the_likelihood_and_the_transitions_of_real_captions():
    decoder, loss = model(dropout=0.0), pretraining()
    with counter_rng.use(counter_rng.CounterRNG(0, 0, ["a", "b"])):
        parts = loss(BATCH, FEATURES, decoder).parts
    forced = teacher_forced(decoder, FEATURES, BATCH.inputs)
    words = F.cross_entropy(forced.logits.flatten(0, 2), BATCH.targets.flatten(), ignore_index=PAD)
    assert float(parts["words"]) == pytest.approx(float(words.detach()), abs=1e-5)
    lengths = (BATCH.targets != PAD).sum(-1)
    cosines = horizon_cosines(decoder.discriminator.leaked_features(WORDS), forced.outputs.goal, lengths, 2)
    assert float(parts["manager"]) == pytest.approx(-float(cosines.sum().detach()) / 8, abs=1e-5)


def test_steps_of_imitation_come_in_between():
    loss = adversarial(interleave=2)
    is_pretraining = []
    for step in range(7):
        loss.begin_step(step, 0)
        with counter_rng.use(counter_rng.CounterRNG(0, step, ["a", "b"])):
            is_pretraining.append("worker" not in loss(BATCH, FEATURES, model()).parts)
    assert is_pretraining == [True, False, False, True, False, False, True]


def test_in_eval_mode_the_terms_are_those_of_cross_entropy():
    assert set(adversarial().eval()(BATCH, FEATURES, model().eval()).parts) == {"words"}


def test_goals_that_are_all_alike_have_no_spread():
    is_word = torch.ones(1, 1, 3, dtype=torch.bool)
    health = ours.goal_health(torch.tensor([3.0, 4.0]).expand(1, 1, 3, 2), is_word)
    assert (float(health["goal_norm"]), float(health["goal_spread"])) == pytest.approx((5.0, 0.0), abs=1e-6)
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]).view(1, 1, 3, 2)
    health = ours.goal_health(opposite, torch.tensor([[[True, True, False]]]))
    assert float(health["goal_spread"]) == pytest.approx(1.0, abs=1e-6)
