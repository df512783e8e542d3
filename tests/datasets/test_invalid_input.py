"""Input that is damaged or hostile, by class of mistake: it is read, or refused in one sentence, and nothing hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from showtell.cli import main
from showtell.datasets import open_dataset, read_dataset
from showtell.datasets.check import check_dataset
from showtell.errors import DataError
from showtell.text.vocabulary import Vocabulary
from tests.datasets.makers import write_photo, write_table

HALF = "\ud83d"  # a lone surrogate: half of an emoji
DEEP = "[" * 100_000
LONG_NUMBER = "9" * 5_000


def coco(image_id: Any = 1, split: str = "train", caption: str = "A dog.", name: str = "a.png", **more: Any) -> dict:
    content = {
        "images": [{"id": image_id, "file_name": name}],
        "annotations": [{"id": 1, "image_id": image_id, "caption": caption}],
    }
    return {f"captions_{split}.json": content, **more}


def karpathy(image_id: Any = 1, split: str = "train", caption: str = "A dog.", name: str = "a.png") -> dict:
    entry = {"filename": name, "cocoid": image_id, "split": split, "sentences": [{"raw": caption}]}
    return {"dataset_mine.json": {"images": [entry]}}


def jsonl(image_id: Any = 1, split: str = "train", caption: str = "A dog.", name: str = "a.png") -> dict:
    return {"captions.jsonl": {"image": name, "id": image_id, "split": split, "caption": caption}}


FORMATS: dict[str, Callable[..., dict]] = {"coco": coco, "karpathy": karpathy, "jsonl": jsonl}


def written(folder: Path, files: dict[str, Any]) -> Path:
    """A dataset of these files, as JSON unless they are text, and one photo."""
    folder.mkdir(exist_ok=True)
    write_photo(folder / "a.png")
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The sentence and the report of a command that is refused."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and err.startswith("showtell: ") and err.count("\n") == 1, (out, err)
    assert len(err) < 2_100 and all(len(line) < 2_100 for line in out.splitlines())
    (out + err).encode()  # text that any file takes
    return out + err


# --- text that is none ---


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("field", ["caption", "split", "image_id", "name"])
def test_half_a_character_is_refused_with_its_line(name: str, field: str, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    if (name, field) == ("coco", "split"):
        pytest.skip("its splits are file names")
    written(folder, FORMATS[name](**{field: f"A {HALF}"}))
    (problem, *_) = read_dataset(folder).problems
    assert r"holds \ud83d at line 1, which is no character; save it as valid Unicode." in problem
    with pytest.raises(DataError, match=r"holds \\ud83d at line 1"):
        open_dataset(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes")
def test_a_split_whose_file_name_is_not_utf8(tmp_path: Path) -> None:
    folder = written(tmp_path / "set", coco(split=os.fsdecode(b"h\xe4lfte")))
    assert read_dataset(folder).problems == (
        "1 image has half a character (a lone surrogate) in the split: 1; write it anew as UTF-8.",
    )


def test_half_a_character_in_a_category(tmp_path: Path) -> None:
    instances = {
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]}],
        "categories": [{"id": 1, "name": HALF}],
    }
    folder = written(tmp_path / "set", {**coco(), "instances_train.json": instances})
    assert read_dataset(folder).problems == (
        "1 image has half a character (a lone surrogate) in the category: 1; write it anew as UTF-8.",
    )


@pytest.mark.parametrize("name", FORMATS)
def test_commands_refuse_half_a_character(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path / "set", FORMATS[name](caption=HALF))
    for arguments in (["check"], ["check", "--json"]):
        assert "which is no character" in refused(capsys, "data", *arguments, str(folder))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("captions_train.json", b'{"images": [], "annotations": [{"caption": "\xff"}]}'),
        (
            "dataset_mine.json",
            b'{"images": [{"filename": "a.png", "split": "train",\n"sentences": [{"raw": "\xff"}]}]}',
        ),
        ("captions.jsonl", b'{"image": "a.png", "caption": "A dog."}\n{"image": "a.png", "caption": "\xed\xa0\xbd"}\n'),
        ("captions.csv", b"image,caption\na.png,A d\xf6g\n"),
        ("captions.tsv", b"image\tcaption\na.png\tA d\xf6g\n"),
        ("Flickr8k.token.txt", b"a.png#0\tA dog.\na.png#1\tA d\xf6g.\n"),
        ("a.txt", b"A dog.\nA d\xf6g.\n"),
    ],
)
def test_bytes_that_are_not_utf8_are_refused_with_their_line(file: str, content: bytes, tmp_path: Path) -> None:
    write_photo(tmp_path / "a.png")
    (tmp_path / file).write_bytes(content)
    line = content[: content.index(b"\xff") if b"\xff" in content else len(content) - 4].count(b"\n") + 1
    (problem, *_) = read_dataset(tmp_path).problems
    assert "is not in UTF-8: line" in problem and f"line {line} cannot be read; save it as" in problem


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes")
@pytest.mark.parametrize("name", FORMATS)
def test_half_characters_of_file_names_name_files_and_nothing_else(name: str, tmp_path: Path) -> None:
    r"""As Python reads and writes the bytes of file names that are not UTF-8: \udcf6 is the byte f6."""
    photo = os.fsdecode(b"d\xf6g.png")
    folder = written(tmp_path / "set", FORMATS[name](name=photo, **({} if name == "coco" else {"image_id": None})))
    write_photo(folder / photo, shade=9)
    dataset = open_dataset(folder)
    assert [record.path for record in dataset.records] == [folder / photo]
    assert [record.image_id for record in dataset.records] == ["1" if name == "coco" else r"d\xf6g.png"]
    folder = written(tmp_path / "other", FORMATS[name](caption=photo))
    assert read_dataset(folder).problems == (
        "1 image has half a character (a lone surrogate) in the caption: 1; write it anew as UTF-8.",
    )


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes")
def test_photos_whose_names_are_not_utf8_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / os.fsdecode(b"s\xe4t")
    for number in range(4):
        write_photo(folder / os.fsdecode(b"d\xf6g%d.png" % number), shade=60 * number)
        (folder / os.fsdecode(b"d\xf6g%d.txt" % number)).write_text("A dog.")
    dataset = open_dataset(folder)
    assert [record.image_id for record in dataset.records] == [rf"d\xf6g{number}.png" for number in range(4)]
    assert all(record.path.is_file() for record in dataset.records)
    assert check_dataset(dataset).problems == ()
    with pytest.raises(SystemExit) as ended:
        main(["data", "split", str(folder), "--seed", "1"])
    assert not ended.value.code
    assert r"d\xf6g" in (folder / "train.txt").read_text()
    assert open_dataset(folder).split_lists_folder is None  # the lists name the images as the ids do
    capsys.readouterr()


# --- numbers and nesting ---


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("damage", [DEEP, LONG_NUMBER, f'{{"a": {LONG_NUMBER}}}', f'{{"a": {DEEP}}}'])
def test_deep_nesting_and_endless_numbers_are_refused(
    name: str, damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ((file, content),) = FORMATS[name]().items()
    text = json.dumps(content)
    start = text.rindex('"A dog."')
    written(tmp_path / "set", {file: text[:start] + damage + text[start + len('"A dog."') :] + "\n"})
    answer = refused(capsys, "data", "check", str(tmp_path / "set"))
    assert (
        "cannot be read as JSON: " in answer
        or "not a dataset: it is a folder with 1 image and captions.jsonl" in answer
    )


@pytest.mark.parametrize("name", FORMATS)
def test_ids_beyond_64_bits_are_text(name: str, tmp_path: Path) -> None:
    dataset = open_dataset(written(tmp_path / "set", FORMATS[name](image_id=2**70)))
    assert [record.image_id for record in dataset.records] == [str(2**70)]


@pytest.mark.parametrize("edge", ["NaN", "Infinity", "1e400", str(10**400), "1e300", "-1e300", '"ten"', "null", "[1]"])
def test_boxes_with_other_numbers_are_left_out(edge: str, tmp_path: Path) -> None:
    instances = json.dumps(
        {
            "annotations": [
                {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, "EDGE"]},
                {"id": 2, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]},
            ],
            "categories": [{"id": 1, "name": "dog"}],
        }
    ).replace('"EDGE"', edge)
    dataset = open_dataset(written(tmp_path / "set", {**coco(), "instances_train.json": instances}))
    assert [[box.id for box in record.boxes or ()] for record in dataset.records] == [[2]]
    assert "1 entry" in dataset.warnings[0] and "left out: number 1." in dataset.warnings[0]


@pytest.mark.parametrize(
    "grounding",
    [
        [{"first": 0.5, "end": 1, "boxes": []}],
        [{"first": 0, "end": 2**70, "boxes": []}],
        [{"first": "0", "end": 1, "boxes": []}],
        [{"first": 0, "end": 1, "boxes": 7}],
        [{"first": 0, "end": 1, "boxes": [[7]]}],
        [7],
        {"first": 0},
        7,
    ],
)
def test_groundings_of_other_kinds_are_left_out(grounding: Any, tmp_path: Path) -> None:
    files = coco()
    files["captions_train.json"]["annotations"][0]["grounding"] = grounding
    dataset = open_dataset(written(tmp_path / "set", files))
    assert [record.groundings for record in dataset.records] == [((),)]
    assert 'whose "grounding" names words or boxes that do not exist, left out: of image 1.' in dataset.warnings[0]


# --- long names ---


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: write_table(folder, "a,b," + "x" * 30_000 + "\n1,2,3\n"),
        lambda folder: write_table(folder, ",".join(f"column{number}" for number in range(6_000)) + "\n"),
        lambda folder: written(folder, {"mine.json": {"k" * 50_000: 1}}),
        lambda folder: written(folder, {"mine.json": {f"key{number}": 1 for number in range(5_000)}}),
        lambda folder: written(folder, jsonl(image_id="i" * 100_000, caption="")),
        lambda folder: written(folder, jsonl(name="n" * 100_000)),
        lambda folder: written(folder, jsonl(image_id="s" * 100_000, split="")),
        lambda folder: written(folder, coco(image_id="i" * 100_000, caption="")),
        lambda folder: written(folder, karpathy(name="n" * 100_000)),
        lambda folder: written(
            folder, {"captions.jsonl": '{"image": "a.png", "caption": "", "' + "k" * 10**5 + '": 1'}
        ),
        lambda folder: written(folder, {"captions.jsonl": '{"image": "a.png", "caption": "", "a": 1, "a": 2}' * 1_000}),
    ],
)
def test_what_messages_quote_is_shortened(
    make: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "set")
    refused(capsys, "data", "check", str(tmp_path / "set"))
    with pytest.raises(DataError) as caught:
        open_dataset(tmp_path / "set")
    assert len(str(caught.value)) < 7_000  # three problems; the command line shortens the whole


def test_a_split_that_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path / "set", jsonl(split="s" * 100_000))
    main_arguments = ["data", "split", str(folder)]
    assert len(refused(capsys, *main_arguments)) < 2_100


# --- captions that are all empty ---


@pytest.mark.parametrize(
    "files",
    [
        *(form(caption=" ") for form in FORMATS.values()),
        {"captions.csv": "image,caption\na.png,\n"},
        {"Flickr8k.token.txt": "a.png#0\t \n"},
        {"a.txt": "\n \n"},
    ],
)
def test_captions_that_are_all_empty(files: dict, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = written(tmp_path / "set", files)
    dataset = read_dataset(folder)
    assert any("1 image has no caption: " in problem for problem in dataset.problems), dataset.problems
    report = check_dataset(dataset, vocabulary=Vocabulary.build([["a", "dog"]], min_count=1))
    assert report.coverage is not None and report.coverage.unknown == {dataset.records[0].split: 0.0}
    assert (report.words_per_caption, report.vocabulary, report.captions) == (None, 0, 0)
    assert "words per caption:  none" in refused(capsys, "data", "check", str(folder))


# --- pipes, devices and /proc ---


CHECK = """
import sys
from showtell.datasets import read_dataset
from showtell.datasets.check import check_dataset
from showtell.errors import ShowtellError
for path in sys.argv[1:]:
    try:
        print(check_dataset(read_dataset(path)).problems)
    except ShowtellError as error:
        print(error)
"""


def checked(*paths: str) -> str:
    """The errors of checks in a process of their own, which fails the test if it does not end."""
    command = [sys.executable, "-c", CHECK, *paths]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


PIPES = [
    *(
        "captions_train.json",
        "dataset_mine.json",
        "instances_train.json",
        "captions.jsonl",
        "captions.csv",
        "list.json",
    ),
    *("Flickr8k.token.txt", "train.txt", "a.txt", "a.png"),
]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are of POSIX")
def test_named_pipes_do_not_hang(tmp_path: Path) -> None:
    """A pipe in the place of each file of a dataset, and of the dataset itself."""
    for name in PIPES:
        written(tmp_path / name, coco() if name.startswith("instances") else {})
        (tmp_path / name / name).unlink(missing_ok=True)
        os.mkfifo(tmp_path / name / name)
    paths = [str(tmp_path / name) for name in PIPES] + [str(tmp_path / name / name) for name in PIPES]
    errors = checked(*paths)
    assert f"{paths[-1]} is not a dataset: it is a device, a pipe or a socket; name a file or a folder." in errors
