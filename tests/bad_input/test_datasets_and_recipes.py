"""A person's mistakes at the command line: each its one sentence on standard error, and exit status 2."""

from pathlib import Path

import pytest
import yaml
from PIL import Image

from showtell.cli import main
from tests.datasets.makers import captioned, listed, write_coco, write_table


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[list[str], str]:
    """What a refused command printed: the lines of standard output, and the sentence on standard error."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("showtell: ") and captured.err.endswith("\n") and "Traceback" not in captured.err
    return captured.out.splitlines(), captured.err.removeprefix("showtell: ").strip()


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# --- showtell data check ---


def problems_of(capsys: pytest.CaptureFixture[str], dataset: str, number: str = "a problem") -> list[str]:
    """The problems that a check of a dataset prints."""
    lines, sentence = refused(capsys, "data", "check", dataset)
    assert sentence == f"{dataset} cannot be used: it has {number}, listed in the report."
    return [line.removeprefix("problem: ") for line in lines if line.startswith("problem: ")]


def test_check_of_a_malformed_captions_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine/annotations").mkdir(parents=True)
    Path("mine/annotations/captions_train.json").write_text("[1, 2]")
    assert problems_of(capsys, "mine") == [
        "mine/annotations/captions_train.json is not a COCO file: it should be an object with the lists images and "
        "annotations, and has no images and no annotations."
    ]


def test_check_of_images_without_captions_and_captions_without_images(capsys: pytest.CaptureFixture[str]) -> None:
    write_coco(Path("mine/annotations/captions_train.json"), listed(1, 2), captioned(1, 3))
    assert problems_of(capsys, "mine", "2 problems") == [
        "annotations/captions_train.json has captions of 1 image that it does not list: 3; list them or take "
        "the captions out.",
        "1 image has no caption: 2; write captions or take the images out, for nothing can be learned or scored "
        "from them.",
    ]


def test_check_of_a_text_file_named_jpg_and_a_missing_one(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(Path("mine"), "image,caption\na.jpg,A dog.\nb.jpg,A cat.\nc.jpg,A cow.\n", "a.jpg")
    Path("mine/b.jpg").write_text("Not found")
    assert problems_of(capsys, "mine", "2 problems") == [
        "1 image file is missing: c.jpg; put the files there or take their captions out.",
        "mine/b.jpg is not an image: it holds text.",
    ]


def test_check_of_a_test_set_that_was_trained_on(capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "test"):
        write_coco(Path(f"mine/annotations/captions_{split}.json"), listed(1), captioned(1))
    assert problems_of(capsys, "mine") == [
        "1 image is in both train and test: 1; what is scored must not have been trained on, so keep each in one split."
    ]


def test_check_of_an_ambiguous_id(capsys: pytest.CaptureFixture[str]) -> None:
    entries = [*listed(1), {"id": 1, "file_name": "002.png"}]
    write_coco(Path("mine/annotations/captions_train.json"), entries, captioned(1))
    assert problems_of(capsys, "mine") == [
        "1 id stands for different images in annotations/captions_train.json: 1; give every image an id of its own."
    ]


def test_check_of_a_table_with_an_open_quotation_mark(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(Path("mine"), 'image,caption\na.jpg,"A dog\n', "a.jpg")
    assert problems_of(capsys, "mine") == [
        "mine/captions.csv cannot be read from line 2 on (unexpected end of data); a caption with quotation marks "
        'stands in quotation marks itself, with those inside doubled: "A ""stop"" sign."'
    ]


# --- showtell train and showtell caption ---

RECIPE = {
    "data": {"path": "photos"},
    "encoder": {"name": "small_cnn", "image_size": 16, "widths": [4]},
    "model": {"name": "sat"},
    "objective": {"name": "cross_entropy"},
    "training": {"epochs": 1, "batch_size": 2, "learning_rate": 0.1},
}


def recipe(**changes: object) -> str:
    content = {section: dict(values) for section, values in RECIPE.items()}
    for path, value in changes.items():
        section, key = path.split("__")
        content[section][key] = value
    Path("recipe.yaml").write_text(yaml.safe_dump(content))
    return "recipe.yaml"


def test_train_with_a_missing_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    rows, sentence = refused(capsys, "train", "none.yaml")
    assert rows == []
    assert sentence.startswith("There is no recipe none.yaml: it is not the path of a file, and no recipe of showtell ")


@pytest.mark.parametrize(
    ("verb", "name", "command"),
    [
        ("train", "flickr8k/nic_lstm", "fetch it with `showtell data get flickr8k`"),
        ("features --recipe", "coco/sat_soft_xu2015", "fetch it with `showtell data get coco`"),
        ("train", "scenes/stack", "draw it with `showtell data scenes runs/scenes`"),
    ],
)
def test_data_of_a_named_recipe_that_is_not_there(
    capsys: pytest.CaptureFixture[str], verb: str, name: str, command: str
) -> None:
    _, sentence = refused(capsys, *verb.split(), name)
    assert sentence.endswith(
        f", the data.path of the recipe: {command}, or set data.path to a folder or file of yours."
    )
    assert not list(Path().iterdir())


def test_train_on_a_text_file_named_jpg(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(Path("photos"), "image,caption\na.png,a dog\nb.png,a cat\nc.jpg,a cow\n", photos="a.png b.png")
    Path("photos/c.jpg").write_text("no picture")
    _, sentence = refused(capsys, "train", recipe())
    assert "photos/c.jpg" in sentence
    assert not Path("runs").exists()


def test_caption_with_settings_that_contradict(capsys: pytest.CaptureFixture[str], tiny_checkpoint: Path) -> None:
    Image.new("RGB", (8, 8)).save("a.png")
    arguments = ["caption", str(tiny_checkpoint), "a.png"]
    assert refused(capsys, *arguments, "--search", "greedy", "--num-beams", "3") == (
        [],
        "search=greedy has one beam, not num_beams=3; use search=beam.",
    )
    assert (
        "asks for more captions than num_beams=2 finds" in refused(capsys, *arguments, "--num-return-sequences", "3")[1]
    )
    assert "num_beams: Input should be greater than or equal to 1" in refused(capsys, *arguments, "--num-beams", "0")[1]
