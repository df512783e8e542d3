import json
from collections import Counter
from pathlib import Path

import pytest

from showtell.cli import main
from showtell.datasets import open_dataset, read_dataset
from showtell.datasets.records import CaptionDataset, CaptionRecord, Grounding
from showtell.datasets.splits import draw_splits
from tests.datasets.makers import captioned, listed, sentences, write_coco, write_photo, write_table

TABLE = "image,caption\na.jpg,A.\nsea/b.jpg,B.\nland/b.jpg,B.\nc.jpg,C.\n"
PHOTOS = "a.jpg sea/b.jpg land/b.jpg c.jpg"


def splits_of(path: Path) -> dict[str, str]:
    return {record.image_id: record.split for record in read_dataset(path).records}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["data", "split", *arguments])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


# --- lists that are there ---


def test_lists_name_images_by_file_with_or_without_folder_and_suffix(tmp_path: Path) -> None:
    write_table(tmp_path, TABLE, PHOTOS)
    (tmp_path / "train.txt").write_text("\ufeffa\n\nsea/b.jpg\r\n", encoding="utf-8")
    (tmp_path / "dev.txt").write_text("land/b.jpg\n")
    (tmp_path / "Test.txt").write_text("photos/c.jpg\n")
    assert splits_of(tmp_path) == {"a.jpg": "train", "sea/b.jpg": "train", "land/b.jpg": "val", "c.jpg": "test"}
    assert sentences(tmp_path) == ([], [])
    assert read_dataset(tmp_path).split_lists_folder is None


def test_a_short_name_of_two_images_is_none(tmp_path: Path) -> None:
    write_table(tmp_path, TABLE, PHOTOS)
    (tmp_path / "train.txt").write_text("a.jpg\nb.jpg\nc.jpg\n")
    assert sentences(tmp_path)[1] == [
        "1 image in train.txt without a caption in captions.csv: b.jpg.",
        "2 images of captions.csv left out, being in none of train.txt: sea/b.jpg, land/b.jpg.",
    ]


def test_ids_in_lists(tmp_path: Path) -> None:
    write_coco(tmp_path / "annotations/mine.json", listed(*range(3)), captioned(*range(3)))
    for folder in (tmp_path, tmp_path / "annotations"):
        (folder / "train.txt").write_text("0\n1\n")
        (folder / "test.txt").write_text("2\n")
        for path in (tmp_path, tmp_path / "annotations/mine.json"):
            assert splits_of(path) == {"0": "train", "1": "train", "2": "test"}
        (folder / "train.txt").unlink()
        (folder / "test.txt").unlink()


def test_an_image_in_two_lists(tmp_path: Path) -> None:
    write_table(tmp_path, TABLE, PHOTOS)
    (tmp_path / "train.txt").write_text("a\nsea/b\nland/b.jpg\nsea/b.jpg\nc\n")
    (tmp_path / "test.txt").write_text("c.jpg\n")
    assert sentences(tmp_path)[0] == [
        "1 image is in more than one of test.txt and train.txt: c; what is scored must not have been trained on, "
        "so keep each in one list."
    ]


def test_a_list_in_another_encoding(tmp_path: Path) -> None:
    write_table(tmp_path, TABLE, PHOTOS)
    (tmp_path / "train.txt").write_bytes("a.jpg\nb.jpg".encode("utf-16"))
    assert "…/train.txt is in UTF-16; save it as a list in UTF-8." in sentences(tmp_path)[0]


def test_a_dataset_that_says_its_splits_needs_no_list(tmp_path: Path) -> None:
    write_table(tmp_path, "image,caption,split\na.jpg,A.,val\n", "a.jpg")
    (tmp_path / "train.txt").write_text("a.jpg\n")
    assert splits_of(tmp_path) == {"a.jpg": "val"}


# --- lists that are written ---


def test_splits_that_were_drawn_by_name_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"{number}.jpg" for number in range(20)]
    write_table(tmp_path, "image,caption\n" + "".join(f"{name},A.\n" for name in names), " ".join(names))
    before = splits_of(tmp_path)
    status, out, _ = run(capsys, str(tmp_path), "--json")
    counts = Counter(before.values())
    assert status == 0
    assert json.loads(out) == {
        "splits": {name: counts[name] for name in ("train", "val", "test")},
        "files": [str(tmp_path / f"{name}.txt") for name in ("train", "val", "test")],
    }
    assert splits_of(tmp_path) == before == draw_splits(names)
    assert sentences(tmp_path) == ([], [])
    write_photo(tmp_path / "new.jpg")
    with (tmp_path / "captions.csv").open("a") as stream:
        stream.write("new.jpg,A.\n")
    assert splits_of(tmp_path) == before
    assert sentences(tmp_path)[1] == [
        "1 image of captions.csv left out, being in none of test.txt and train.txt and val.txt: new.jpg."
    ]


def test_a_seed_and_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_coco(tmp_path / "annotations/mine.json", listed(*range(200)), captioned(*range(200)))
    status, out, _ = run(capsys, str(tmp_path), "--seed", "3", "--val", "0.25", "--test", "0")
    expected = draw_splits(map(str, range(200)), 3, 0.25, 0)
    assert status == 0 and splits_of(tmp_path) == expected
    counts = Counter(expected.values())
    assert counts["test"] == 0 and abs(counts["val"] - 50) < 4 * (200 * 0.25 * 0.75) ** 0.5
    lines = [f"{tmp_path / name}.txt: {counts[name]} images" for name in ("train", "val")]
    assert out.splitlines() == lines


def test_another_seed_draws_other_splits() -> None:
    names = [f"{number}.jpg" for number in range(1000)]
    drawn = [draw_splits(names, seed) for seed in (None, 0, 1)]
    assert all(one != other for one in drawn for other in drawn if one is not other)
    # 0.66 of the images keep their split by chance (0.8² + 0.1² + 0.1²); four standard deviations are 0.06
    same = sum(drawn[0][name] == drawn[1][name] for name in names) / 1000
    assert abs(same - 0.66) < 0.06


def test_each_split_with_a_share_has_an_image() -> None:
    for val, test, names in [(0.1, 0.1, 3), (0.5, 0, 2), (0, 0, 1), (0, 0.4, 2)]:
        drawn = draw_splits(map(str, range(names)), 5, val, test)
        assert set(drawn.values()) == {"train", *(["val"] if val else []), *(["test"] if test else [])}
        assert set(draw_splits(map(str, range(names - 1)), 5, val, test).values()) <= {"train"}


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_table(tmp_path, TABLE, PHOTOS)
    out = tmp_path / "lists"
    assert run(capsys, str(tmp_path), "--out", str(out))[0] == 0
    before = {file: file.read_bytes() for file in out.iterdir()}
    status, _, err = run(capsys, str(tmp_path), "--out", str(out), "--seed", "1")
    assert (status, err) == (
        2,
        f"showtell: {out / 'test.txt'} chooses the splits already and is not overwritten; move the lists away to draw "
        "anew.\n",
    )
    assert {file: file.read_bytes() for file in out.iterdir()} == before
    assert run(capsys, str(tmp_path))[0] == 0
    status, _, err = run(capsys, str(tmp_path))
    assert status == 2 and err.startswith(f"showtell: {tmp_path} has splits already, its own or those of lists beside")
    status, _, err = run(capsys, str(tmp_path), "--val", "0.5", "--test", "0.5")
    assert (status, err) == (
        2,
        "showtell: --val 0.5 and --test 0.5 leave nothing to train on; together they must be below 1.\n",
    )


def test_ids_that_no_list_can_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "a\\nb", "image": "a.jpg", "caption": "A."}\n')
    status, _, err = run(capsys, str(tmp_path))
    assert status == 2 and "has ids with a line break or white space around them" in err
    assert not list(tmp_path.glob("*.txt"))


# --- a part of a dataset ---


def test_a_part_of_a_dataset_is_the_same_each_time_and_grows() -> None:
    grounding = ((Grounding(0, 1, (1,)),), (), ())
    records = [
        CaptionRecord(
            str(number), Path(f"{number}.jpg"), "val" if number % 3 else "train", ("a", "b", "c"), (), grounding
        )
        for number in range(30)
    ]
    dataset = CaptionDataset(Path("x"), "table", tuple(records))
    assert dataset.limited() == dataset
    few, more = dataset.limited(images=2, captions=2), dataset.limited(images=5)
    assert few.splits == {"train": 2, "val": 2} and more.splits == {"train": 5, "val": 5}
    assert {record.image_id for record in few.records} < {record.image_id for record in more.records}
    assert [record.image_id for record in more.records] == [r.image_id for r in records if r in more.records]
    assert all(record.captions == ("a", "b") and record.groundings == grounding[:2] for record in few.records)
    assert dataset.limited(images=100, captions=9) == dataset
    assert few == dataset.limited(images=2, captions=2)


def test_training_and_scoring_take_a_part(tiny_scenes: Path) -> None:
    from showtell.training.recipe import DataConfig

    config = DataConfig(path=str(tiny_scenes), limit=3, max_captions=2)
    dataset = open_dataset(config.path).limited(config.limit, config.max_captions)
    assert set(dataset.splits.values()) <= {1, 2, 3} and {len(record.captions) for record in dataset.records} == {2}
