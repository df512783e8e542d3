import math

import pytest
import torch
from torch.nn import functional as F

from showtell import counter_rng
from showtell.decoding import scheduled, teacher_forced
from showtell.models.sat import SatConfig, SatDecoder
from showtell.models.updown import UpDownConfig, UpDownDecoder
from showtell.objectives import cross_entropy
from showtell.objectives.compatibility import contradictions
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig, ScheduledSamplingConfig, agreement
from showtell.types import Batch, Features


def example() -> tuple[Batch, Features, SatDecoder]:
    torch.manual_seed(0)
    decoder = SatDecoder(
        SatConfig(embedding_size=4, hidden_size=5, attention_size=3, dropout=0.0), feature_size=6, vocabulary_size=8
    )
    words = torch.tensor([[[1, 4, 5, 2, 0], [1, 6, 2, 0, 0]], [[1, 7, 7, 4, 2], [0, 0, 0, 0, 0]]])
    is_caption = torch.tensor([[True, True], [True, False]])
    batch = Batch(("a", "b"), torch.zeros(2, 3, 2, 2, dtype=torch.uint8), words, is_caption)
    return batch, Features(torch.randn(2, 3, 6), torch.ones(2, 3, dtype=torch.bool)), decoder


@pytest.mark.parametrize("epsilon", [0, 0.2])
def test_words_is_the_mean_negative_log_likelihood_mixed_with_the_uniform_distribution(epsilon):
    batch, features, decoder = example()
    config = CrossEntropyConfig(label_smoothing=epsilon, doubly_stochastic=0.7, word_presence=0.3)
    terms = CrossEntropy(config, feature_size=6, vocabulary_size=8)(batch, features, decoder)
    logprobs = teacher_forced(decoder, features, batch.inputs).logits.detach().log_softmax(-1)
    captions = [(0, 0, [4, 5, 2]), (0, 1, [6, 2]), (1, 0, [7, 7, 4, 2])]  # nine words, ends included, padding not
    total = sum(
        (1 - epsilon) * float(logprobs[b, n, t, word]) + epsilon * float(logprobs[b, n, t].mean())
        for b, n, words in captions
        for t, word in enumerate(words)
    )
    parts = {name: float(value) for name, value in terms.parts.items()}
    assert parts["words"] == pytest.approx(-total / 9, rel=1e-5)
    weighted = parts["words"] + 0.7 * parts["doubly_stochastic"] + 0.3 * parts["word_presence"]
    assert float(terms.total.detach()) == pytest.approx(weighted, rel=1e-5) and len(parts) == 3


def test_the_label_loss_is_a_mean_over_captions_beside_that_over_words():
    batch, features, _ = example()
    torch.manual_seed(0)
    sizes = {"embedding_size": 4, "hidden_size": 5, "attention_size": 3, "dropout": 0.0}
    decoder = UpDownDecoder(UpDownConfig(**sizes, multi_label=True), feature_size=6, vocabulary_size=8)
    loss = CrossEntropy(CrossEntropyConfig(multi_label=10), feature_size=6, vocabulary_size=8)
    terms = loss(batch, features, decoder)
    scores = decoder.score_labels(teacher_forced(decoder, features, batch.inputs).outputs).detach()
    captions = [(0, 0, [4, 5]), (0, 1, [6]), (1, 0, [7, 7, 4])]
    total = 0.0
    for image, row, words in captions:
        highest = scores[image, row, : len(words) + 1].amax(0).tolist()  # the step that predicts the end included
        total += sum(max(0, 1 - highest[y] + highest[w]) for y in words for w in range(8) if w not in words) / 8
    assert float(terms.parts["multi_label"]) == pytest.approx(total / 3, rel=1e-5)
    assert float(terms.total.detach()) == pytest.approx(float(terms.parts["words"]) + 10 * total / 3, rel=1e-5)
    terms.total.backward()
    assert float(decoder.attention_lstm.weight_hh.grad.abs().sum()) > 0  # the loss reaches h1


def test_labels_and_their_loss_go_together():
    labels, loss = UpDownConfig(multi_label=True), CrossEntropyConfig(multi_label=10)
    assert contradictions(loss, labels) == []
    assert contradictions(loss, SatConfig()) == [
        "objective.multi_label=10 has no effect with model.name=sat: it needs a model that scores a caption's words as "
        "labels; leave it out, or set model.name=updown and model.multi_label=true"
    ]
    assert contradictions(CrossEntropyConfig(), labels) == [
        "model.multi_label=true needs objective.multi_label above 0, which trains its layer; set "
        "objective.multi_label=1.0, or model.multi_label=false"
    ]


def test_word_presence_by_hand():
    # One image, two cells, six words, the four special ones left out. Word 4 occurs, word 5 does not and counts half.
    scores = torch.zeros(1, 2, 6)
    scores[0, :, 4] = torch.tensor([1.0, 2.0])
    scores[0, :, 5] = torch.tensor([-1.0, 0.5])
    targets = torch.tensor([[[4, 4, 2, 0]]])
    present, absent = math.log(math.exp(1) + math.exp(2)), math.log(math.exp(-1) + math.exp(0.5))
    expected = math.log(1 + math.exp(-present)) + 0.5 * math.log(1 + math.exp(absent))
    weights = torch.tensor([1.0, 1, 1, 1, 1, 0.5])
    loss = cross_entropy.word_presence(scores, torch.ones(1, 2, dtype=torch.bool), targets, weights)
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_agreement_by_hand():
    # Three images with two captions each. Word 4: both, neither, neither. Word 5: one of two, one of two, neither.
    # Word 6: always. Word 7: never.
    captions = [[[1, 4, 6, 2], [1, 4, 5, 6, 2]], [[1, 5, 6, 2], [1, 6, 2]], [[1, 6, 2], [1, 6, 6, 2]]]
    # Word 4: observed 1. Word 5: observed 1/3, share 1/3, by chance 5/9: (3/9 - 5/9) / (4/9) = -1/2, so 0.
    assert agreement(captions, 8)[4:].tolist() == pytest.approx([1.0, 0.0, 0.0, 0.0])
    # With two more images where both say word 5: observed 3/5, share (1/2 + 1/2 + 0 + 1 + 1) / 5 = 3/5.
    more = agreement([*captions, [[1, 5, 2], [1, 5, 2]], [[1, 5, 2], [1, 5, 2]]], 8)
    by_chance = 0.6**2 + 0.4**2
    assert float(more[5]) == pytest.approx((3 / 5 - by_chance) / (1 - by_chance), rel=1e-5)

    # Images count by their own number of captions, and those with one are left out.
    three = [[[4], [4], [5]], [[5], [5], [5]], [[4]]]
    # Word 4: (k, n) = (2, 3) and (0, 3): observed ((2 + 0) / 6 + 1) / 2 = 2/3, share 1/3, by chance 5/9.
    assert float(agreement(three, 6)[4]) == pytest.approx((2 / 3 - 5 / 9) / (1 - 5 / 9), rel=1e-5)
    assert agreement([[[4]], [[5]]], 6).tolist() == [1.0] * 6


def test_the_schedule_of_the_papers():
    paper = ScheduledSamplingConfig(max_probability=0.25)  # 0.05 more every 5 epochs
    assert [paper.probability(epoch) for epoch in (0, 4, 5, 9, 10, 24, 25, 99)] == pytest.approx(
        [0, 0, 0.05, 0.05, 0.1, 0.2, 0.25, 0.25]
    )
    assert [ScheduledSamplingConfig().probability(epoch) for epoch in (0, 50)] == [0, 0]


def test_scheduled_sampling_begins_with_its_epoch_and_is_off_where_nothing_learns():
    batch, features, decoder = example()
    schedule = ScheduledSamplingConfig(max_probability=0.9, increment=0.9, increment_epochs=1)
    objective = CrossEntropy(CrossEntropyConfig(scheduled_sampling=schedule), feature_size=6, vocabulary_size=8)
    forced = teacher_forced(decoder, features, batch.inputs).logits
    with counter_rng.use(counter_rng.CounterRNG(0, 0, batch.image_ids)):
        own = scheduled(decoder, features, batch.inputs, 0.9).logits
    for epoch, training, logits in ((0, True, forced), (1, True, own), (1, False, forced)):
        objective.train(training).begin_step(0, epoch)
        with counter_rng.use(counter_rng.CounterRNG(0, 0, batch.image_ids)):
            loss = objective(batch, features, decoder).parts["words"]
        expected = F.cross_entropy(logits.detach().flatten(0, 2), batch.targets.flatten(), ignore_index=0)
        torch.testing.assert_close(loss, expected)
    assert not torch.allclose(own, forced)
