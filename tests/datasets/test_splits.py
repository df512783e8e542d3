"""Splits: the names of files that say them, lists that choose them, and those that are drawn."""

import string
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from showtell.datasets import read_dataset
from showtell.datasets.records import CaptionDataset, CaptionRecord, Grounding
from showtell.datasets.splits import draw_splits, split_name, split_of_name
from tests.datasets.makers import captioned, listed, sentences, write_coco, write_files

TABLE = "image,caption\na.jpg,A.\nsea/b.jpg,B.\nland/b.jpg,B.\nc.jpg,C.\n"
PHOTOS = "a.jpg sea/b.jpg land/b.jpg c.jpg"


def splits_of(path: Path) -> dict[str, str]:
    return {record.image_id: record.split for record in read_dataset(path).records}


SPLIT_NAMES = [
    *[(" Train ", "train"), ("TRAINING", "train"), ("dev", "val"), ("valid", "val"), ("Validation", "val")],
    *[("testing", "test"), ("restval", "train"), ("Test_A", "Test_A"), ("", "")],
]
STEMS = [
    *[("train", "train"), ("captions_train2014", "train"), ("Val-Captions", "val"), ("test set", "test")],
    *[("coco_karpathy_train", "train"), ("flickr30k_val", "val"), ("train_stations", None), ("train_test", None)],
    *[("captions", None), ("", None)],
]


def test_names() -> None:
    assert [(written, split_name(written)) for written, _ in SPLIT_NAMES] == SPLIT_NAMES
    assert [(stem, split_of_name(stem)) for stem, _ in STEMS] == STEMS


def test_the_draw_is_the_same_everywhere_and_for_ever() -> None:
    """Another hash, key or border would move images that people have scored on into training."""
    drawn = draw_splits(f"{number}.jpg" for number in range(100))
    some = {split: [name for name in sorted(drawn) if drawn[name] == split][:4] for split in ("val", "test")}
    # int.from_bytes(blake2b(name, digest_size=6, key=b"showtell splits").digest(), "big") / 2**48: from 0.8, from 0.9
    assert some == {"val": ["17.jpg", "18.jpg", "23.jpg", "39.jpg"], "test": ["15.jpg", "33.jpg", "43.jpg", "52.jpg"]}


def test_shares_are_about_those_asked_for_and_images_stay_when_others_come() -> None:
    many = draw_splits(f"{number}.jpg" for number in range(10_000))
    counts = Counter(many.values())
    # four standard deviations of a share of 0.1 in 10,000 are 120
    assert abs(counts["val"] - 1000) < 120 and abs(counts["test"] - 1000) < 120
    few = draw_splits(f"{number}.jpg" for number in range(200))
    assert {name: many[name] for name in few} == few


@given(st.sets(st.text(string.ascii_lowercase, min_size=1), max_size=30))
def test_each_split_has_an_image_from_three_on(names: set[str]) -> None:
    drawn = draw_splits(names)
    assert drawn.keys() == names
    assert set(drawn.values()) == ({"train", "val", "test"} if len(names) >= 3 else {"train"} if names else set())


def test_each_split_with_a_share_has_an_image() -> None:
    for val, test, names in [(0.1, 0.1, 3), (0.5, 0, 2), (0, 0, 1), (0, 0.4, 2)]:
        drawn = draw_splits(map(str, range(names)), val, test)
        assert set(drawn.values()) == {"train", *(["val"] if val else []), *(["test"] if test else [])}
        assert set(draw_splits(map(str, range(names - 1)), val, test).values()) <= {"train"}


def test_lists_name_images_by_file_with_or_without_folder_and_suffix(tmp_path: Path) -> None:
    lists = {"train.txt": "\ufeffa\n\nsea/b.jpg\r\n", "dev.txt": "land/b.jpg\n", "Test.txt": "photos/c.jpg\n"}
    write_files(tmp_path, {"captions.csv": TABLE, **lists}, PHOTOS)
    assert splits_of(tmp_path) == {"a.jpg": "train", "sea/b.jpg": "train", "land/b.jpg": "val", "c.jpg": "test"}
    assert sentences(tmp_path) == ([], [])


def test_what_is_wrong_with_lists(tmp_path: Path) -> None:
    write_files(tmp_path, {"captions.csv": TABLE, "train.txt": "a.jpg\nb.jpg\nc.jpg\n"}, PHOTOS)  # b.jpg are two images
    assert sentences(tmp_path)[1] == [
        "1 image in train.txt without a caption in captions.csv: b.jpg.",
        "2 images of captions.csv left out, being in none of train.txt: sea/b.jpg, land/b.jpg.",
    ]
    write_files(tmp_path, {"train.txt": "a\nsea/b\nland/b.jpg\nsea/b.jpg\nc\n", "test.txt": "c.jpg\n"})
    assert sentences(tmp_path)[0] == [
        "1 image is in more than one of test.txt and train.txt: c; what is scored must not have been trained on, "
        "so keep each in one list."
    ]


def test_ids_in_lists(tmp_path: Path) -> None:
    write_coco(tmp_path / "annotations/mine.json", listed(*range(3)), captioned(*range(3)))
    for folder in (tmp_path, tmp_path / "annotations"):
        write_files(folder, {"train.txt": "0\n1\n", "test.txt": "2\n"})
        for path in (tmp_path, tmp_path / "annotations/mine.json"):
            assert splits_of(path) == {"0": "train", "1": "train", "2": "test"}
        (folder / "train.txt").unlink()
        (folder / "test.txt").unlink()


def test_a_dataset_that_says_its_splits_needs_no_list(tmp_path: Path) -> None:
    write_files(tmp_path, {"captions.csv": "image,caption,split\na.jpg,A.,val\n", "train.txt": "a.jpg\n"}, "a.jpg")
    assert splits_of(tmp_path) == {"a.jpg": "val"}


def test_a_part_of_a_dataset_is_the_same_each_time_and_grows() -> None:
    grounding = ((Grounding(0, 1, (1,)),), (), ())
    splits, captions = ["val" if number % 3 else "train" for number in range(30)], ("a", "b", "c")
    records = [
        CaptionRecord(str(n), Path(f"{n}.jpg"), split, captions, (), grounding) for n, split in enumerate(splits)
    ]
    dataset = CaptionDataset(Path("x"), "table", tuple(records))
    assert dataset.limited() == dataset == dataset.limited(images=100, captions=9)
    few, more = dataset.limited(images=2, captions=2), dataset.limited(images=5)
    assert few.splits == {"train": 2, "val": 2} and more.splits == {"train": 5, "val": 5}
    assert {record.image_id for record in few.records} < {record.image_id for record in more.records}
    assert [record.image_id for record in more.records] == [r.image_id for r in records if r in more.records]
    assert all(record.captions == ("a", "b") and record.groundings == grounding[:2] for record in few.records)
