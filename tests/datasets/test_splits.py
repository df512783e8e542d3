import string
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from showtell.datasets.splits import draw_splits, split_name, split_of_file

NAMES = st.sets(st.text(string.ascii_lowercase, min_size=1), max_size=30)


SPLIT_NAMES = [
    *[(" Train ", "train"), ("TRAINING", "train"), ("dev", "val"), ("valid", "val"), ("Validation", "val")],
    *[("testing", "test"), ("restval", "restval"), ("Test_A", "Test_A"), ("", "")],
]


def test_split_names() -> None:
    for written, name in SPLIT_NAMES:
        assert split_name(written) == name


THE_SPLIT_THAT_A_FILE_NAME_SAYS = [
    *[("train", "train"), ("captions_train2014", "train"), ("Val-Captions", "val"), ("test set", "test")],
    *[("train_stations", None), ("train_test", None), ("captions", None), ("", None)],
]


def test_the_split_that_a_file_name_says() -> None:
    for stem, split in THE_SPLIT_THAT_A_FILE_NAME_SAYS:
        assert split_of_file(stem) == split


def test_shares_are_about_80_10_10() -> None:
    drawn = Counter(draw_splits(f"{number}.jpg" for number in range(10_000)).values())
    # four standard deviations of a share of 0.1 in 10,000 are 120
    assert abs(drawn["val"] - 1000) < 120 and abs(drawn["test"] - 1000) < 120


def test_the_draw_is_the_same_everywhere_and_for_ever() -> None:
    """Another hash, key or border would move images that people have scored on into training."""
    drawn = draw_splits(f"{number}.jpg" for number in range(100))
    some = {split: [name for name in sorted(drawn) if drawn[name] == split][:4] for split in ("val", "test")}
    # int.from_bytes(blake2b(name, digest_size=6, key=b"showtell splits").digest(), "big") / 2**48: from 0.8, from 0.9
    assert some == {
        "val": ["17.jpg", "18.jpg", "23.jpg", "39.jpg"],
        "test": ["15.jpg", "33.jpg", "43.jpg", "52.jpg"],
    }


@settings(deadline=None)
@given(NAMES)
def test_each_split_has_an_image_from_three_on(names: set[str]) -> None:
    drawn = draw_splits(names)
    assert drawn.keys() == names
    assert set(drawn.values()) == ({"train", "val", "test"} if len(names) >= 3 else {"train"} if names else set())


def test_added_images_leave_the_others_in_their_splits() -> None:
    few = draw_splits(f"{number}.jpg" for number in range(200))
    many = draw_splits(f"{number}.jpg" for number in range(5000))
    assert {name: many[name] for name in few} == few
