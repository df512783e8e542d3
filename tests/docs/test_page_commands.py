"""The commands of the pages do what they say: they are run, page by page, or `NOT_RUN` says why not."""

import csv
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from showtell.cli import main
from showtell.datasets import open_dataset
from showtell.training import load_recipe

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = re.compile(
    r"(showtell|python|make|pip|git|curl|torchrun|accelerate|ray|source|find|\S*scripts/\w+|\.venv/\S+) "
)
# A synopsis shows what can be given, as in [--limit N], a|b or SETTING=...: it is no command.
SYNOPSIS = re.compile(r"\[(?=--|[a-z]+ [a-z]+\])|\w\|\w|\.\.\.|\[KEY")
NOT_RUN = {  # commands, and why
    r"^(git clone|source |pip install|make |scripts/check|\.venv/bin/python -m pytest)": "setting up, or the tests",
    r"^showtell quickstart$|showtell-quickstart/|runs/small/|runs/adapted/best |album$|--list$": (
        "make pictures runs it, and the picture below it is what it printed"
    ),
    r"Salesforce/|microsoft/|openai/|roberta-large|from pycocoevalcap|^showtell data get": "needs the internet",
    r"coco/|flickr8k|flickr30k|coco_gu2018|coco-sat|coco-nic|coco-stack|data/coco --encoder": (
        "needs COCO or Flickr, and pretrained weights: tests train every recipe in small"
    ),
    r"encoder\.name=resnet50|_pretrained": "needs pretrained weights, which other tests make up",
    r"runs/updown|stores/bottom-up|cocobu|trainval_36|coco-updown": "tests/cli/test_features_option.py runs it",
    r"^showtell (import|caption checkpoints/)|log_att2in": "tests/importing makes files of the same form",
    r"^showtell serve|^curl | openai:": "tests/serving does it with real requests",
    r"^(torchrun|accelerate|ray) |^python many.py": "tests/training and tests/captioners start some processes",
    r"^python benchmarks/": "takes long: tests/benchmarks runs parts of it in small",
    r"gru": "tests/test_extending.py makes the files of the example and runs it",
    r"(data\.path=|check |--corrections )corrected|corrections\.csv --split": "needs corrections of people",
    r"calibrate": "tests/cli/test_calibrate.py has a trained captioner",
}


def commands_of(page: str) -> list[str]:
    """The commands of all blocks of a page in Markdown, each on one line, without comments."""
    blocks = [
        token.content.replace("\\\n", " ")
        for token in MarkdownIt().parse(page)
        if token.type in ("fence", "code_block") and token.info.strip() in ("", "bash", "sh")
    ]
    lines = [re.sub(r"(?:^|\s+)# .*", "", line) for block in blocks for line in block.splitlines()]
    commands = [re.sub(r"\s+", " ", line).strip() for line in lines]
    return [command for command in commands if PROGRAM.match(f"{command} ") and not SYNOPSIS.search(command)]


PAGES = {
    path.relative_to(ROOT).as_posix(): commands
    for path in [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
    if path.name not in ("CHANGELOG.md", "commands.md", "recipe_keys.md")
    and path.parent.name != "notes"
    and (commands := commands_of(path.read_text(encoding="utf-8")))
}
RUN = {
    page: [command for command in commands if not any(re.search(pattern, command) for pattern in NOT_RUN)]
    for page, commands in PAGES.items()
}
SMALL = [
    *("data.limit=16", "training.epochs=1", "training.batch_size=8", "training.warmup_steps=0", "training.trackers=[]"),
    *("training.validate_every=1", "encoder.image_size=48", "encoder.widths=[8,16,16,16]", "vocabulary.min_count=1"),
]
NARROW = ["model.embedding_size=16", "model.hidden_size=32", "model.attention_size=16"]  # for recipes of folder/


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, tiny_scenes: Path) -> Path:
    """A folder with what the pages speak of: photos, datasets, checkpoints, captions."""
    folder = tmp_path_factory.mktemp("world")
    test = open_dataset(tiny_scenes)["test"]
    train = open_dataset(tiny_scenes)["train"]
    for name, count in (("my-photos", 20), ("album", 3), ("photos", 3)):
        (folder / name).mkdir()
        for record in train[:count]:
            shutil.copy(record.path, folder / name)
    with (folder / "my-photos" / "captions.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "caption"])
        rows.writerows((record.path.name, "a red car and a truck") for record in train[:20])
    shutil.copytree(folder / "my-photos", folder / "mydata")
    shutil.copy(train[0].path, folder / "photo.png")
    (folder / "photo.jpg").symlink_to("photo.png")
    for name in ("runs/scenes", "data/coco", "DATASET", "REFERENCES"):
        shutil.copytree(tiny_scenes, folder / name)
    photos, run = folder / "my-photos", folder / "runs" / "mine"
    training = ["train", "folder/sat_soft", f"data.path={photos}", "--out", str(run)]
    assert status_of([*training, *SMALL, *NARROW, "training.epochs=4", "training.learning_rate=0.03"]) == 0
    for name in ("soft", "hard", "hacap", "yours", "large", "one"):
        shutil.copytree(folder / "runs" / "mine", folder / "runs" / name)
    shutil.copytree(folder / "runs" / "mine" / "best", folder / "CHECKPOINT")
    captions = [{"image_id": int(record.image_id), "caption": record.captions[0]} for record in test]
    for name in ("A", "B", "C", "PREDICTIONS", "a.json", "b.json", "c.json", "captions.json"):
        (folder / name).write_text(json.dumps(captions))
    return folder


def test_every_reason_is_needed():
    every = [command for commands in PAGES.values() for command in commands]
    for pattern in NOT_RUN:
        assert any(re.search(pattern, command) for command in every), f"no command of the pages matches {pattern}"


def test_what_is_run_is_a_command_of_showtell():
    for page, commands in RUN.items():
        for command in commands:
            assert command.startswith("showtell "), f"{page}: {command}: run it in a test, or say why not in NOT_RUN"


def status_of(arguments: list[str]) -> int | str | None:
    """The exit status of a command."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def train_of(arguments: list[str]) -> None:
    """A recipe with its overrides is accepted; its run is the one that was trained here."""
    overrides = [one for one in arguments[2:] if "=" in one]
    if "--resume" in arguments:
        load_recipe(Path(arguments[1], "recipe.yaml"), overrides)
        return
    load_recipe(arguments[1], overrides)
    out = arguments[arguments.index("--out") + 1] if "--out" in arguments else f"runs/{arguments[1].replace('/', '-')}"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree("trained", out)


def test_the_commands_of_the_pages_run(world, monkeypatch, capsys):
    """A trained captioner of the tests stands for `small`, which tests/test_small.py runs."""
    monkeypatch.chdir(world)
    shutil.copytree("runs/mine", "trained")
    wrong = []
    for command in dict.fromkeys(one for commands in RUN.values() for one in commands):
        arguments = shlex.split(command.partition(" | ")[0].removeprefix("showtell "))
        if arguments[0] == "train":
            train_of(arguments)
            continue
        if arguments[:2] == ["data", "scenes"]:
            shutil.rmtree(arguments[2], ignore_errors=True)  # as on the reader's machine, where it is not there yet
            arguments = [*arguments[:3], "--images", "60"]
        if arguments[0] == "caption" and "--out" in arguments:  # which another page has written
            Path(arguments[arguments.index("--out") + 1]).unlink(missing_ok=True)
        if status_of(["runs/mine/best" if one == "small" else one for one in arguments]) != 0:
            wrong.append(f"{command}: {capsys.readouterr().err}")
        if "corrections" in arguments:  # which a person accepts in a spreadsheet
            table = Path(arguments[arguments.index("--out") + 1])
            table.write_text(table.read_text(encoding="utf-8").replace(",unchecked", ",train"), encoding="utf-8")
    assert wrong == []
