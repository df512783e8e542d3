"""Each model's searches and steps, captured by `recorded_graphs.py` on other inputs, against those without graphs."""

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from showtell import cuda_graphs
from showtell.counter_rng import CounterRNG
from showtell.cuda_graphs import Answer, Ask, Graphs, Steps, run, static_shapes
from showtell.decoding import Captions, Rules, StageView, beam, greedy, sample
from showtell.features import build_encoder, encoder_config
from showtell.models import MODELS, Decoder
from showtell.objectives import OBJECTIVES, build_objective
from showtell.objectives.contract import counts_of
from showtell.testing import FEATURES, VOCABULARY, captions, features, objective_config, objectives_of
from showtell.training.step import TrainingModel, TrainingStep
from showtell.types import Batch, Features, Mentions, map_tensors
from tests.models.test_zoo import ZOO, build, config_of, make
from tests.recorded_graphs import RecordedGraphs
from tests.toys import table_decoder

LENGTH = 5  # the loop may end behind four of six steps


@pytest.fixture(autouse=True)
def one_warm_up(monkeypatch):
    """Nothing here needs more, and a recorded step takes as long as ten others."""
    monkeypatch.setattr(cuda_graphs, "WARM_UPS", 1)


def graphs_for(owner: nn.Module) -> RecordedGraphs:
    """Let a module capture; the recorder that it captures by."""
    recorder = RecordedGraphs()
    owner.__dict__["graphs"] = Graphs(lambda _: recorder)
    return recorder


def other_features(seed: int) -> Features:
    """Those of the zoo with other vectors, in double precision."""
    shown = features()
    vectors = torch.randn(shown.vectors.shape, generator=torch.Generator().manual_seed(seed))
    return replace(shown, vectors=vectors.double())


def likely_to_end(decoder: Decoder) -> Decoder:
    """In double precision, with captions of one to nine words."""
    decoder = decoder.eval().double()
    output = getattr(decoder, "outputs", None)
    for layer in output if output is not None else [decoder.output]:
        layer.bias.data[2] += 1.0  # type: ignore[union-attr]
    return decoder


RULES = Rules(
    min_length=1, no_repeat_ngram_size=2, repeatable=(4, 5), forbidden=((6,), (7, 8)), bad_endings=(9,), prefix=(4,)
)
SEARCHES: dict[str, Callable[[Decoder, Features], Captions]] = {
    "greedy": lambda decoder, shown: greedy(decoder, shown, LENGTH, keep_outputs=True),
    "greedy by rules": lambda decoder, shown: greedy(decoder, shown, LENGTH, rules=RULES),
    "sample": lambda decoder, shown: sample(decoder, shown, LENGTH, samples=3, seed=1, keep_outputs=True),
    "top k": lambda decoder, shown: sample(decoder, shown, LENGTH, samples=2, top_k=4, top_p=0.8, temperature=0.7),
    "nucleus": lambda decoder, shown: sample(decoder, shown, LENGTH, samples=2, top_p=0.9),
    "beam": lambda decoder, shown: beam(decoder, shown, LENGTH, 3, length_penalty=1.0, keep_outputs=True),
    "beam by rules": lambda decoder, shown: beam(decoder, shown, LENGTH, 3, num_return=1, rules=RULES),
}


def assert_same(one: Captions, other: Captions) -> None:
    assert torch.equal(one.words, other.words)
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(one.word_logprobs, other.word_logprobs, **close)
    torch.testing.assert_close(one.score, other.score, **close)
    assert (one.outputs is None) == (other.outputs is None)
    if one.outputs is not None:
        map_tensors(one.outputs, lambda a, b: torch.testing.assert_close(a, b, **close) or a, other.outputs)


@pytest.mark.parametrize(
    "name", [name if name in MODELS else pytest.param(name, marks=pytest.mark.slow) for name in ZOO]
)
def test_captured_searches_say_what_searches_say(name):
    decoder, turn = likely_to_end(make(name)), list(ZOO).index(name)
    seen = [other_features(seed) for seed in range(3)]
    for number, (kind, search) in enumerate(SEARCHES.items()):
        if name in MODELS and (number + turn) % 3:
            continue  # a third of them for each
        expected = [search(decoder, shown) for shown in seen]
        recorder = graphs_for(decoder)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for shown, without in zip(seen, expected, strict=True):
                assert_same(search(decoder, shown), without)
        assert recorder.captured, kind
        del decoder.__dict__["graphs"]


def test_stages_are_captured_each_for_itself():
    decoder = likely_to_end(make("stack"))
    seen = [other_features(seed) for seed in range(3)]
    for stage in (0, 1, 0):
        expected = [greedy(StageView(decoder, stage), shown, LENGTH) for shown in seen]
        graphs_for(decoder)
        for shown, without in zip(seen, expected, strict=True):
            assert_same(greedy(StageView(decoder, stage), shown, LENGTH), without)
        del decoder.__dict__["graphs"]


def test_a_captured_search_ends_early_and_follows_the_weights():
    """A table whose captions have one word: one stretch of four steps, and what follows the loop."""
    decoder, shown = table_decoder(images=2, steps=13, size=6, seed=0)
    decoder.table[:, 1:, :, 2] = 50.0
    decoder.weight = nn.Parameter(torch.zeros(1))
    recorder = graphs_for(decoder)
    for _ in range(2):
        greedy(decoder, shown, 12)
    before = recorder.replayed
    assert (greedy(decoder, shown, 12).words.shape[-1], recorder.captured) == (2, 5)
    assert recorder.replayed - before == 2
    decoder.table[:, 1:4, :, 2] = -50.0  # in place: the same graphs, and now five words
    assert (greedy(decoder, shown, 12).words.shape[-1], recorder.captured) == (5, 5)
    assert recorder.replayed - before == 2 + 3
    decoder.table = decoder.table.clone()  # elsewhere: once without graphs, then captured anew
    for captured in (5, 10):
        greedy(decoder, shown, 12)
        assert recorder.captured == captured


class Adder(nn.Module):
    """Adds up what it sees, and asks Python for the logarithm."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2))
        self.waits = False

    def steps(self, x: Tensor) -> Steps[dict[str, Tensor]]:
        self.total += x.flatten()
        yield Ask(lambda host, seen: host + seen.log(), (x,))
        doubled = 2 * x
        if self.waits:
            float(x.sum())
        logarithm = yield Answer()
        return {"sum": doubled + logarithm, "total": self.total.clone()}


def test_python_answers_in_between_and_only_what_runs_counts():
    owner = Adder()
    recorder = graphs_for(owner)
    total = torch.zeros(2)
    for number in range(1, 5):
        x = torch.tensor([float(number), 2.0])
        total += x
        result = run(owner.steps, x, owner=owner, host=1000 * number)
        torch.testing.assert_close(result["sum"], 2 * x + 1000 * number + x.log())
        assert torch.equal(result["total"], total)
    assert (recorder.captured, recorder.replayed) == (3, 3 * 3)
    assert copy.deepcopy(owner).__dict__["graphs"]._captured == {}


def test_what_cannot_be_captured_runs_without_and_says_so_once():
    owner = Adder()
    owner.waits = True
    graphs_for(owner)
    with pytest.warns(UserWarning, match="Adder cannot be captured as a CUDA graph and runs without") as said:
        for number in range(1, 5):
            run(owner.steps, torch.full((2,), float(number)), owner=owner, host=0)
            run(owner.steps, torch.full((1, 2), float(number)), owner=owner, host=0)
    assert len(said) == 1
    assert owner.total.tolist() == [20.0, 20.0]


# ---- steps of training


MAX_LENGTH = 4  # of samples


def batch_of(seed: int) -> Batch:
    """Three images, the first of which has one caption, the others two; words name objects."""
    words = torch.randint(4, VOCABULARY, (3, 2, 7), generator=torch.Generator().manual_seed(seed))
    words[..., 0], words[..., -1] = 1, 2
    words[0, 1] = 0
    words[1, 0, 4], words[1, 0, 5:] = 2, 0
    indices = torch.where(words[..., 1:] > 7, 0, -1)
    boxes = torch.tensor([5.0, 5.0, 60.0, 60.0]).expand(3, 1, 1, 4)
    mentions = Mentions(indices, boxes, torch.tensor([0.0, 0.0, 120.0, 100.0]).expand(3, 4))
    return Batch(("a", "b", "c"), None, words, words[..., 0] > 0, other_features(seed), mentions=mentions)


CASES: list[Any] = [
    case
    if len(case[2]) == 1 and (case[0] == "cross_entropy" or case[2]["name"] in ("sat", "stack"))
    else pytest.param(case, marks=pytest.mark.slow)
    for case in ((name, {}, model) for model in ZOO.values() for name in objectives_of(config_of(model)))
] + [
    ("cross_entropy", {"doubly_stochastic": 0.7, "word_presence": 0.3, "label_smoothing": 0.1}, {"name": "sat"}),
    ("cross_entropy", {"attention_supervision": {"weight": 2.0}}, {"name": "stack"}),
    ("cross_entropy", {"scheduled_sampling": {"max_probability": 0.5, "increment": 0.2}}, {"name": "sat"}),
    ("hard_attention", {"per_word": False}, {"name": "sat", "attention": "hard", "expectation_per": "batch"}),
    ("self_critical", {"cross_entropy": 0.5, "baseline": "leave_one_out"}, {"name": "updown"}),
]


def step_of(objective: str, settings: dict[str, Any], model: dict[str, Any]) -> TrainingStep:
    """A step of training on features, in double precision."""
    torch.manual_seed(0)
    config = objective_config(objective, config_of(model))
    config = type(config).model_validate(config.model_dump() | settings)
    loss = build_objective(config, feature_size=FEATURES, vocabulary_size=VOCABULARY)
    loss.prepare(dict(zip("abc", captions(rows=3).tolist(), strict=True)), MAX_LENGTH)
    encoder = build_encoder(encoder_config({"name": "precomputed", "feature_size": FEATURES, "source": "a test"}))
    training = TrainingModel(encoder, build(config_of(model)), loss).double().train()
    return TrainingStep(training, Accelerator(cpu=True), rounds_products=False)


def outcome(step: TrainingStep, number: int) -> Iterator[Tensor]:
    """The parts of a step, its gradients and what it has changed."""
    step.model.objective.begin_step(number, 5 * number)
    step.model.zero_grad()
    batch = batch_of(number)
    parts = step(replace(batch, counts=counts_of(batch)), CounterRNG(3, number, batch.image_ids))
    yield from (value.clone() for _, value in sorted(parts.items()))
    yield from (torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in step.model.parameters())
    yield from (x.clone() for x in step.model.buffers())


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, (case[0], *case[1], *case[2].values()))))
def test_a_captured_step_has_the_terms_and_gradients_of_the_step(case):
    dynamic, captured, static = step_of(*case), step_of(*case), step_of(*case)
    recorder = graphs_for(captured.model)
    for number in range(3):
        expected = list(outcome(dynamic, number))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = list(outcome(captured, number))
        with static_shapes():
            also = list(outcome(static, number))
        for one, other in ((found, expected), (also, expected)):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-8)
    assert bool(recorder.captured) is dynamic.model.objective.has_fixed_shapes


def test_every_objective_says_whether_its_shapes_are_fixed():
    models = {name: next(one for one in ZOO.values() if name in objectives_of(config_of(one))) for name in OBJECTIVES}
    fixed = {name for name, model in models.items() if step_of(name, {}, model).model.objective.has_fixed_shapes}
    assert fixed == {"coarse_to_fine", "cross_entropy", "hard_attention", "self_critical"}
    assert all(make(name).has_fixed_shapes for name in MODELS)
