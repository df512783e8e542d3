"""The reference: every public name of the API with a sentence, every option of the command line, examples that run."""

import re
import shutil
from pathlib import Path

import pytest
import reference
import yaml
from commands_page import commands_page
from settings_tables import recipe_keys_page
from tree import tree

import showtell
from showtell import Captioner
from showtell.confidence.calibration import Calibration, save_calibration
from showtell.datasets import open_dataset
from showtell.decoding import DecodingConfig
from showtell.types import Features

ROOT = Path(__file__).resolve().parents[2]
PAGES = {module: reference.page(module) for module in reference.documented()}
EXAMPLES = {file.stem: file for file in sorted((ROOT / "docs" / "api").glob("*.md"))}
SMALL = ["training.epochs=1", "data.limit=4", "encoder.image_size=32", "training.trackers=[]", "decoding.num_beams=1"]


def test_every_public_name_is_in_the_table_of_its_package_with_a_sentence():
    for package, module in reference.packages().items():
        rows = dict(re.findall(r"^\| \{py:obj\}`(\w+) <\S+>` \| (.*) \|$", PAGES[package], re.MULTILINE))
        assert rows.keys() == set(module.__all__), package
        for name, sentence in rows.items():
            assert re.fullmatch(r"[\w`].+[.)]", sentence), f"{package}.{name}: {sentence!r} is no sentence"


def test_fields_have_their_comments_and_settings_their_descriptions():
    shown = reference.fields_of(Features)
    assert ":type: Tensor\n\n   (B, R, D) one vector per region or grid cell." in shown
    assert ":type: Regions | None\n   :value: None\n\n   None for a grid." in shown
    shown = reference.fields_of(DecodingConfig)
    assert ":type: int\n   :value: 1\n\n   Beam width; 1 is greedy search. Values: whole number ≥ 1, ≤ 1000." in shown
    assert ":type: str | None\n   :value: None\n\n   Text that a captioner of transformers continues" in shown


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, tiny_scenes: Path, tiny_checkpoint: Path) -> Path:
    """A folder with what the examples speak of: a checkpoint with its calibration, a dataset, a photo."""
    folder = tmp_path_factory.mktemp("world")
    shutil.copytree(tiny_checkpoint, folder / "runs" / "mine" / "best")
    shutil.copytree(tiny_scenes, folder / "my-photos")
    records = open_dataset(tiny_scenes)["train"][:30]
    (folder / "photo.jpg").symlink_to(records[0].path)
    captioner = Captioner.from_pretrained(folder / "runs" / "mine" / "best")
    captions = [captions[0] for captions in captioner.caption([record.path for record in records])]
    are_good = [index % 3 > 0 for index in range(len(captions))]
    calibration = Calibration.fit(captions, are_good, "made up", captioner.decoding)
    save_calibration(folder / "runs" / "mine" / "best", captioner.about.fingerprints["weights"], calibration)
    return folder


def example(name: str) -> str:
    blocks = re.findall(r"^```python\n(.*?)^```", EXAMPLES[name].read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return "\n".join(blocks)


def test_every_name_of_the_top_level_is_used_by_an_example_in_its_order():
    uses = re.sub(r"^from .*$", "", example("index"), flags=re.MULTILINE)
    imported = [name for names in re.findall(r"^from showtell import (.+)$", example("index"), re.MULTILINE)
                for name in names.split(", ")]  # fmt: skip
    groups = [names for module, names in showtell._NAMES.items() if module != "errors"]
    public = [name for names in groups for name in names]
    assert sorted(imported) == sorted([*public, "ShowtellError"])
    assert [name for name in imported if not re.search(rf"\b{name}\b", uses)] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_page_runs(name: str, world: Path, monkeypatch, capsys):
    code = example(name).replace('"training.epochs=1"', ", ".join(map(repr, SMALL)))
    small = ", ".join(f"{key!r}: {yaml.safe_load(value)!r}" for key, _, value in (one.partition("=") for one in SMALL))
    monkeypatch.chdir(world)
    exec(code.replace('"training.epochs": 1', small), {"__name__": "example"})
    assert capsys.readouterr().out or (world / "why.png").is_file()


def test_the_made_pages_have_values_defaults_and_files():
    batch_size = "| `--batch-size` | whole number ≥ 1, ≤ 100000 | `32` | Number of photos in a batch. |"
    assert batch_size in commands_page() and re.search(r"^ +sat\.py ", tree(), re.MULTILINE)
    assert "| `training.epochs` | whole number ≥ 1 | required |" in recipe_keys_page()
