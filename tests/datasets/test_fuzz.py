"""What is damaged is read, or refused in a sentence."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from showtell.datasets import READERS
from showtell.errors import ShowtellError
from tests.fuzzing import SEEDS, Target, mutated


@pytest.mark.parametrize("name", [*SEEDS, "image"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, 10**6))
def test_damaged_files_are_read_or_refused(tmp_path: Path, name: str, number: int) -> None:
    case = Target(name, tmp_path / "case").case(seed=0, number=number)
    try:
        result = case.run(case.path)
    except ShowtellError as error:
        assert str(error).strip()
    else:
        assert all(map(str.isprintable, getattr(result, "problems", ())))


@pytest.mark.parametrize("name", SEEDS)
def test_seeds_are_whole(tmp_path: Path, name: str) -> None:
    """What is damaged must have been valid, or nothing behind the first check would be reached."""
    for index, files in enumerate(SEEDS[name]):
        folder = tmp_path / str(index)
        for file, content in {**files, "a.jpg": b"", "b.jpg": b"", "images/c.jpg": b""}.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(content)
        for photo in ("train/a.jpg", "val/b.jpg"):
            if (folder / photo).parent.is_dir():
                (folder / photo).touch()
        dataset = READERS[name].read(folder)
        assert dataset.records and not dataset.problems, (dataset.problems, files)
        assert all(record.captions for record in dataset.records)


def test_a_case_is_a_function_of_seed_and_number() -> None:
    content = next(iter(SEEDS["coco"][0].values()))
    once, twice, other = (mutated(content, random.Random(seed)) for seed in (3, 3, 4))
    assert once == twice != other
