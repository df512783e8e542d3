from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from showtell.datasets import read_dataset
from showtell.datasets.check import PUBLISHED, DatasetReport, check_dataset, compare_with_published
from tests.datasets.makers import captioned, listed, write_coco, write_photo, write_table

APART = "; what is scored must not have been trained on, so keep each in one split."


def report_on(path: Path, **options: Any) -> DatasetReport:
    """The report on a dataset, with … for its path."""
    report = check_dataset(read_dataset(path), **options)
    problems, warnings = ([text.replace(str(path), "…") for text in own] for own in (report.problems, report.warnings))
    return replace(report, problems=tuple(problems), warnings=tuple(warnings))


def three_splits(folder: Path) -> None:
    """A clean dataset: two photos in train, val and test, numbered through, two captions each."""
    for split, numbers in {"train": (1, 2), "val": (3, 4), "test": (5, 6)}.items():
        write_coco(folder / f"annotations/captions_{split}.json", listed(*numbers), captioned(*numbers, *numbers))


def test_a_clean_dataset(tmp_path: Path) -> None:
    three_splits(tmp_path)
    assert asdict(report_on(tmp_path)) == {
        "format": "coco", "images": {"train": 2, "val": 2, "test": 2}, "captions": {"train": 4, "val": 4, "test": 4},
        "captions_per_image": {"min": 2, "mean": 2.0, "median": 2, "p95": 2, "max": 2},
        "words_per_caption": {"min": 4, "mean": 4.0, "median": 4, "p95": 4, "max": 4},
        "vocabulary": 6, "frequent_words": 0, "unseen": {"val": 0.0, "test": 4 / 16}, "images_opened": True,
        "problems": (), "warnings": (),
    }  # fmt: skip


def test_images_are_opened_or_only_looked_for(tmp_path: Path) -> None:
    three_splits(tmp_path)
    (tmp_path / "images/001.png").write_text("<html>not found</html>")
    (tmp_path / "images/004.png").write_bytes((tmp_path / "images/005.png").read_bytes()[:-30])
    (tmp_path / "images/006.png").unlink()
    missing, unreadable = report_on(tmp_path).problems
    assert missing.startswith("1 image file is missing: images/006.png;")
    assert unreadable.startswith("2 images cannot be read: …/images/001.png is not an image: it holds a web page, …")
    assert "…/images/004.png is damaged" in unreadable
    unopened = report_on(tmp_path, open_images=False)
    assert unopened.problems == (missing,) and not unopened.images_opened


def test_the_same_content_in_two_splits_is_a_problem_and_in_one_a_warning(tmp_path: Path) -> None:
    three_splits(tmp_path)
    for number in (1, 2, 3, 5):
        write_photo(tmp_path / f"images/{number:03}.png", 7)
    report = report_on(tmp_path)
    assert report.problems == (
        "1 image is the same, byte for byte, in train and val: images/001.png = images/003.png" + APART,
        "1 image is the same, byte for byte, in train and test: images/001.png = images/005.png" + APART,
        "1 image is the same, byte for byte, in val and test: images/003.png = images/005.png" + APART,
    )
    (warning,) = report.warnings
    assert warning == "1 image repeats another of the same split byte for byte: images/002.png = images/001.png."


def test_words_by_hand(tmp_path: Path) -> None:
    rows = "".join(f"a.png,{caption},train\n" for caption in ("A dog runs.", "A dog  sits", "A dog", "a dog", "a"))
    write_table(tmp_path, f"image,caption,split\n{rows}b.png,A cat runs and runs,test\n", "a.png b.png")
    report = report_on(tmp_path)
    assert (report.vocabulary, report.frequent_words) == (4, 1)  # a 5, dog 4, runs 1, sits 1
    assert report.unseen == {"test": 2 / 5}  # cat, and
    assert report.captions_per_image == {"min": 1, "mean": 3.0, "median": 3.0, "p95": 5, "max": 5}
    assert report.words_per_caption == {"min": 1, "mean": 16 / 6, "median": 2.5, "p95": 5, "max": 5}


def test_datasets_that_say_they_are_published_ones_and_are_not() -> None:
    for name, splits in PUBLISHED.items():
        assert compare_with_published(name, splits) == compare_with_published("mine", {"train": 5}) == []
    assert compare_with_published("flickr30k", {"train": 29_783, "val": 1_014}) == [
        "Scores are not comparable with those on Karpathy's splits: train has 29,783 images, not 29,000; test has 0 "
        "images, not 1,000."
    ]
    (alone,) = compare_with_published("", {"train": 82_783, "val": 40_504})
    assert "train is COCO's train2014 alone" in alone
