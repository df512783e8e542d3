import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from showtell.datasets import read_dataset
from showtell.datasets.check import (
    PUBLISHED,
    CheckpointCoverage,
    DatasetReport,
    Distribution,
    check_dataset,
    compare_with_published,
)
from showtell.text.vocabulary import Vocabulary
from tests.datasets.makers import captioned, listed, write_coco, write_photo, write_table


def report_on(path: Path, **options: Any) -> DatasetReport:
    """The report on a dataset, with … for its path."""
    report = check_dataset(read_dataset(path), **options)
    return replace(
        report,
        problems=tuple(sentence.replace(str(path), "…") for sentence in report.problems),
        warnings=tuple(sentence.replace(str(path), "…") for sentence in report.warnings),
    )


def three_splits(folder: Path, photos: int = 2) -> None:
    """A clean dataset: so many photos in train, val and test, numbered through, two captions each."""
    for index, split in enumerate(("train", "val", "test")):
        numbers = range(index * photos + 1, (index + 1) * photos + 1)
        write_coco(folder / f"annotations/captions_{split}.json", listed(*numbers), captioned(*numbers, *numbers))


# --- counts ---


def test_a_clean_dataset(tmp_path: Path) -> None:
    three_splits(tmp_path)
    report = report_on(tmp_path)
    assert (report.format, report.images, report.captions) == ("coco", 6, 12)
    assert report.splits == {"train": (2, 4), "val": (2, 4), "test": (2, 4)}
    assert (report.problems, report.warnings) == ((), ())
    assert report.captions_per_image == Distribution(2, 2.0, 2, 2, 2)
    assert report.words_per_caption == Distribution(4, 4.0, 4, 4, 4)


def test_spreads_by_hand(tmp_path: Path) -> None:
    text = (
        "image,caption,split\na.png,One two  three,train\na.png,One,train\na.png,A b c d,train\nb.png,One two,train\n"
    )
    write_table(tmp_path, text, "a.png b.png")
    report = report_on(tmp_path)
    assert report.captions_per_image == Distribution(1, 2.0, 2.0, 3, 3)  # of 3 and 1
    assert report.words_per_caption == Distribution(1, 2.5, 2.5, 4, 4)  # of 3, 1, 4 and 2


def test_the_object_for_programs(tmp_path: Path) -> None:
    write_table(tmp_path, "image,caption,split\na.png,One two,test\nb.png,,val\n", "a.png b.png")
    assert report_on(tmp_path).as_json() == {
        "format": "table",
        "images": 2,
        "captions": 1,
        "splits": {"val": 1, "test": 1},
        "captions_per_image": {"min": 0, "mean": 0.5, "median": 0.5, "p95": 1, "max": 1},
        "words_per_caption": {"min": 2, "mean": 2.0, "median": 2, "p95": 2, "max": 2},
        "vocabulary": {"words": 2, "five_times": 0, "unseen": {}},
        "images_opened": True,
        "problems": [
            "1 image has no caption: b.png; write captions or take the images out, for nothing can be learned or "
            "scored from them."
        ],
        "warnings": ["There is no split train, only val, test: nothing can be learned from this, only scored."],
    }


def test_no_images_at_all(tmp_path: Path) -> None:
    write_table(tmp_path, "image,caption\n")
    report = report_on(tmp_path)
    assert report.problems == ("… holds no image with captions.",) and report.warnings == ()
    assert report.captions_per_image is report.words_per_caption is None
    assert report.as_json()["words_per_caption"] is None


# --- images ---


def test_unreadable_images_are_named_with_what_is_wrong(tmp_path: Path) -> None:
    three_splits(tmp_path)
    (tmp_path / "images/001.png").write_text("<html>not found</html>")
    (tmp_path / "images/004.png").write_bytes((tmp_path / "images/005.png").read_bytes()[:-30])
    (tmp_path / "images/006.png").unlink()
    text, damaged = report_on(tmp_path).problems[1:]
    assert report_on(tmp_path).problems[0].startswith("1 image file is missing: images/006.png;")
    assert text == "…/images/001.png is not an image: it holds a web page."
    assert damaged.startswith("…/images/004.png is damaged: it cannot be decoded (")


def test_of_many_unreadable_images_the_first_are_explained(tmp_path: Path) -> None:
    three_splits(tmp_path, photos=4)
    for path in (tmp_path / "images").iterdir():
        path.write_bytes(b"")
    problems = report_on(tmp_path).problems
    assert problems[9:] == (
        "…/images/010.png is empty; it should hold an image.",
        "2 more images cannot be read: images/011.png, images/012.png.",
    )


def test_the_same_content_in_two_splits_is_a_problem_and_in_one_a_warning(tmp_path: Path) -> None:
    three_splits(tmp_path)
    for number in (2, 3, 5):
        write_photo(tmp_path / f"images/{number:03}.png", 7)
    write_photo(tmp_path / "images/001.png", 7)
    report = report_on(tmp_path)
    ending = "; what is scored must not have been trained on, so keep each in one split."
    assert report.problems == (
        "1 image is the same, byte for byte, in train and val: images/001.png = images/003.png" + ending,
        "1 image is the same, byte for byte, in train and test: images/001.png = images/005.png" + ending,
        "1 image is the same, byte for byte, in val and test: images/003.png = images/005.png" + ending,
    )
    assert report.warnings == (
        "1 image repeats another of the same split byte for byte: images/002.png = images/001.png.",
    )


def test_problems_and_warnings_of_the_reader_come_first(tmp_path: Path) -> None:
    three_splits(tmp_path)
    dataset = replace(read_dataset(tmp_path), problems=("First.",), warnings=("Second.",))
    (tmp_path / "images/001.png").write_bytes(b"")
    report = check_dataset(dataset)
    assert report.problems[0] == "First." and len(report.problems) == 2 and report.warnings == ("Second.",)


def test_images_that_are_not_opened_are_still_looked_for(tmp_path: Path) -> None:
    three_splits(tmp_path)
    (tmp_path / "images/001.png").write_bytes(b"")
    (tmp_path / "images/002.png").unlink()
    report = report_on(tmp_path, open_images=False)
    assert [problem.split(":")[0] for problem in report.problems] == ["1 image file is missing"]
    assert not report.images_opened and report.as_json()["images_opened"] is False


# --- words ---


def test_words_unseen_and_unknown_by_hand(tmp_path: Path) -> None:
    text = (
        "image,caption,split\n"
        "a.png,A dog runs.,train\na.png,A dog sits,train\na.png,A dog,train\na.png,a dog,train\na.png,a,train\n"
        "b.png,A cat runs and runs,test\n"
    )
    write_table(tmp_path, text, "a.png b.png")
    report = report_on(tmp_path)
    assert (report.vocabulary, report.frequent_words) == (4, 1)  # a 5, dog 4, runs 1, sits 1
    assert report.unseen == {"test": 2 / 5}  # cat, and
    assert report.coverage is None

    report = report_on(tmp_path, vocabulary=Vocabulary(["a", "runs", "bird"]), max_length=2)
    # train: dog 4 and sits 1 of 11 words; test: cat and and. Longer than 2: two of five, and the one.
    assert report.coverage == CheckpointCoverage({"train": 5 / 11, "test": 2 / 5}, 2, {"train": 2 / 5, "test": 1.0})
    assert report.warnings[-2:] == (
        "The checkpoint does not know 45.5% (train), 40.0% (test) of the words, so it can never write them; train "
        "on captions like these, or use the dataset it was made for.",
        "The checkpoint writes at most 2 words, and 40.0% (train), 100.0% (test) of the captions are longer: raise "
        "decoding.max_length.",
    )


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_distributions_equal_those_of_the_numbers_in_order(numbers: list[int]) -> None:
    distribution = Distribution.of(numbers)
    assert distribution is not None
    assert (distribution.min, distribution.max) == (min(numbers), max(numbers))
    assert distribution.mean == pytest.approx(statistics.fmean(numbers))
    assert distribution.median == statistics.median(numbers)
    within = [sum(other <= number for other in numbers) / len(numbers) for number in sorted(numbers)]
    assert distribution.p95 == next(n for n, share in zip(sorted(numbers), within, strict=True) if share >= 0.95)


@pytest.mark.shared
def test_coco_mini_is_clean(shared_data: Path) -> None:
    report = check_dataset(read_dataset(shared_data / "coco-mini"))
    assert report.splits == {"train": (101, 505), "val": (22, 110), "test": (22, 110)}
    assert (report.problems, report.warnings) == ((), ())


def test_datasets_that_say_they_are_published_ones_and_are_not() -> None:
    for name, splits in PUBLISHED.items():
        assert compare_with_published(name, splits) == compare_with_published("mine", {"train": 5}) == []
    assert compare_with_published("flickr30k", {"train": 29_783, "val": 1_014}) == [
        "Scores are not comparable with those on Karpathy's splits: train has 29,783 images, not 29,000; test has 0 "
        "images, not 1,000."
    ]
    (alone,) = compare_with_published("", {"train": 82_783, "val": 40_504})
    assert "train is COCO's train2014 alone" in alone
