import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from showtell.counter_rng import CounterRNG, Dropout, key_of, use

CPU = torch.device("cpu")


def test_numbers_look_uniform():
    numbers = CounterRNG(0, 0, [str(image) for image in range(64)]).uniform((64, 5, 20, 32), CPU)
    counts = torch.histc(numbers, 100, 0, 1)
    expected = numbers.numel() / 100
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert 60 < chi_square < 148  # 99 degrees of freedom: outside this range less than once in 1,000
    assert numbers.min() >= 0 and numbers.max() < 1


@given(order=st.permutations(range(6)), rows=st.integers(1, 4), words=st.integers(1, 9))
def test_an_image_has_its_numbers_whatever_the_batch(order, rows, words):
    names = [f"image {number}" for number in range(6)]
    whole = CounterRNG(1, 2, names).uniform((6, 5, 10, 3), CPU)
    part = CounterRNG(1, 2, [names[number] for number in order[:3]]).uniform((3, rows, words, 3), CPU)
    assert torch.equal(part, whole[list(order[:3])][:, :rows, :words])


@given(rounds=st.integers(1, 9), others=st.integers(1, 9), stops=st.booleans(), inside=st.integers(0, 3))
def test_how_long_a_loop_over_time_is_changes_nothing_behind_it(rounds, others, stops, inside):
    """A round has its own numbers, and what is drawn behind the loop is the same after one round as after nine."""

    def draw(rounds: int) -> tuple[list[torch.Tensor], torch.Tensor]:
        rng = CounterRNG(0, 0, ["a"])
        rng.uniform((1, 8), CPU)
        numbers = []
        for number in rng.timesteps(range(rounds if not stops else 99)):
            numbers += [rng.uniform((1, 1000), CPU) for _ in range(inside)]
            if number == rounds - 1:
                break
        return numbers, rng.uniform((1, 1000), CPU)

    (numbers, behind), (numbers_too, behind_too) = draw(rounds), draw(others)
    assert torch.equal(behind, behind_too)
    assert all(torch.equal(*pair) for pair in zip(numbers, numbers_too, strict=False))
    every = [*numbers, behind]
    for number, one in enumerate(every):
        assert all((one == other).float().mean() < 0.01 for other in every[:number])


def test_a_number_of_all_images_does_not_depend_on_which_there_are():
    keys = itertools.product(("ab", "c"), (0, 1), range(500))
    drawn = [CounterRNG(seed, step, names).shared_uniform(CPU).item() for names, seed, step in keys]
    assert drawn[:1000] == drawn[1000:] and len(set(drawn)) == 1000
    assert sum(drawn[:1000]) / 1000 == pytest.approx(0.5, abs=0.03)  # 3.3 deviations
    assert min(drawn) >= 0 and max(drawn) < 1


def test_seed_step_and_call_change_every_number():
    def draw(seed: int, step: int) -> torch.Tensor:
        return CounterRNG(seed, step, ["a"]).uniform((1, 1000), CPU)

    twice = CounterRNG(0, 0, ["a"])
    first, second = twice.uniform((1, 1000), CPU), twice.uniform((1, 1000), CPU)
    assert torch.equal(first, draw(0, 0))
    for other in (second, draw(1, 0), draw(0, 1)):
        assert (other == first).float().mean() < 0.01


def test_dropout_keeps_the_mean_and_is_off_in_eval_mode():
    layer, x = Dropout(0.25), torch.ones(50, 4, 10, 20)
    with use(CounterRNG(0, 0, [str(image) for image in range(50)])):
        dropped = layer(x)
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert float((dropped == 0).float().mean()) == pytest.approx(0.25, abs=0.01)
    assert torch.equal(layer.eval()(x), x)


def test_dropout_without_a_step_is_that_of_torch():
    layer, x = Dropout(0.5), torch.ones(10, 100)
    torch.manual_seed(0)
    ours = layer(x)
    torch.manual_seed(0)
    assert torch.equal(ours, torch.nn.functional.dropout(x, 0.5))


def test_keys_are_the_same_everywhere():
    # 1, order and 2 joined by the byte 1f, hashed by `b2sum -l 64` of GNU coreutils 9.1, the first 63 bits of it
    assert key_of(1, "order", 2) == 248862673809679202
    assert key_of("ab", "c") != key_of("a", "bc")
