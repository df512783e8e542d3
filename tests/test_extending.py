"""A package of one's own, with the files that docs/extending.md shows: installed, found and used."""

import importlib
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from showtell.cli import main
from showtell.datasets import open_dataset
from showtell.testing import DECODER_CHECKS, shrink
from tests.test_registry import install
from tests.training.test_loop import log_of

ROOT = Path(__file__).resolve().parents[1]
EXTENDING = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCK = r"```{}\n(.*?)^ *```$"
PACKAGE = "my_captioners"


def shown(page: str, start: str, language: str) -> str:
    """The first block of a language behind some text of a page."""
    (block,) = re.findall(BLOCK.format(language), page.partition(start)[2], re.DOTALL | re.MULTILINE)[:1]
    return textwrap.dedent(block)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for sys.path with the package installed, without a clone of showtell and without an edit in it."""
    folder = tmp_path_factory.mktemp("site")
    package = folder / PACKAGE
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("gru", "adaptive", "length_ratio", "focal", "colours", "best_of_10", "tsv"):
        (source,) = re.findall(rf"```python\n(# {PACKAGE}/{name}\.py\n.*?)^```$", EXTENDING, re.DOTALL | re.MULTILINE)
        (package / f"{name}.py").write_text(source)
    project = tomllib.loads(shown(EXTENDING, "`module:object`", "toml"))["project"]
    install(folder, PACKAGE, project["entry-points"], {})
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, tiny_scenes: Path) -> Path:
    """A working directory with the recipe of the page and a table in the package's own format."""
    folder = tmp_path_factory.mktemp("world")
    recipe = yaml.safe_load(shown(EXTENDING, "`gru.yaml`", "yaml"))
    recipe["data"] |= {"path": "captions.tsv", "limit": 12}
    recipe["encoder"] = {"name": "colours", "cells": 3}
    recipe["objective"] = {"name": "focal", "gamma": 1.0}
    recipe["training"] |= {"epochs": 3, "batch_size": 4, "log_every": 1, "trackers": []}
    recipe["decoding"] = {"search": "best-of-10", "max_length": 8}
    (folder / "gru.yaml").write_text(yaml.safe_dump(recipe))
    records = open_dataset(tiny_scenes).records
    lines = [f"{record.path}\t{record.split}\t{text}" for record in records for text in record.captions]
    (folder / "captions.tsv").write_text("\n".join(lines))
    return folder


def test_the_decoders_of_the_page_keep_the_contract_by_the_test_that_it_shows(site: Path, monkeypatch):
    monkeypatch.syspath_prepend(str(site))
    namespace: dict[str, Any] = {}
    exec(shown(EXTENDING, "### Its tests", "python"), namespace)
    gru = importlib.import_module(f"{PACKAGE}.gru").ENTRY
    for check in DECODER_CHECKS:
        namespace["test_contract"](check)
        check(shrink(gru[0]), gru[1])


def run(site: Path, world: Path, *commands: list[str]) -> list[str]:
    """Commands of showtell, one after the other in one process: what each printed."""
    program = (
        "import json, sys\n"
        "from showtell.cli import main\n"
        "for command in json.loads(sys.argv[1]):\n"
        "    try:\n        main(command)\n"
        "    except SystemExit as ended:\n        print(chr(0), end='')\n        assert not ended.code, command\n"
    )
    command = [sys.executable, "-c", program, json.dumps(commands)]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, cwd=world, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\0")[:-1]


def test_everything_that_a_package_adds_is_found_and_used(site, world, monkeypatch, capsys):
    (world / "predictions.json").write_text('{"1": "a red dog", "2": "a cat"}')
    (world / "references.json").write_text('{"1": ["a dog", "the dog is red"], "2": ["a cat sleeps"]}')
    photo = (world / "captions.tsv").read_text().partition("\t")[0]
    checked, extracted, trained, captioned, scored = run(
        site,
        world,
        ["data", "check", "captions.tsv", "--json"],
        ["features", "captions.tsv", "--encoder", "colours", "cells=3", "--out", "store", "--json"],
        ["train", "gru.yaml", "--out", "run", "--json"],
        ["caption", "run/best", photo, "--format", "json"],
        ["score", "predictions.json", "--references", "references.json", "--metrics", "bleu,length_ratio", "--json"],
    )
    assert json.loads(checked)["format"] == "tsv" and json.loads(extracted)["images"] > 0
    assert json.loads(trained)["epochs"] == 3
    (row,) = json.loads(captioned)
    assert len(row["captions"]) == 1
    assert json.loads(scored)["scores"]["length_ratio"] == pytest.approx((3 + 2) / ((2 + 4) / 2 + 3))
    words = [line["words"] for line in log_of(world / "run") if "words" in line]
    assert words[-1] < words[0] - 0.5
    settings = json.loads((world / "run" / "best" / "config.json").read_text())
    assert (settings["model"]["name"], settings["encoder"]["name"]) == ("gru", "colours")
    # where the package is not installed, its checkpoint is refused
    monkeypatch.chdir(world)
    with pytest.raises(SystemExit) as ended:
        main(["caption", "run/best", photo])
    assert ended.value.code == 2
    assert re.match("showtell: .*(not known here|There is no encoder)", capsys.readouterr().err)  # model or encoder
