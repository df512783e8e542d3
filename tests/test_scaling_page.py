"""The commands of docs/scaling.md can be given as they stand, and the table of docs/training_cost.md is true."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

import cost_model
from showtell.cli.app import app
from showtell.models import build_decoder
from showtell.training import load_recipe

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGE = (DOCS / "scaling.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
COMMANDS = [
    line
    for block in BLOCKS
    for line in block.replace("\\\n", " ").splitlines()
    if line.strip() and not line.startswith("#")
]


def parsed(words: list[str]) -> list[str]:
    """The words behind `showtell` in a command that a launcher starts, once the launcher has understood its own."""
    from accelerate.commands.launch import launch_command_parser
    from torch.distributed.run import get_args_parser

    launcher, *rest = words
    if launcher == "showtell":
        return rest
    if launcher == "torchrun":
        given = get_args_parser().parse_args(rest)
    else:
        assert words[:2] == ["accelerate", "launch"]
        given = launch_command_parser().parse_args(rest[1:])
    assert given.module and given.training_script == "showtell"
    return list(given.training_script_args)


@pytest.mark.parametrize("command", [line for line in COMMANDS if not line.startswith("ray ")])
def test_a_command_names_what_there_is(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    words = shlex.split(command)
    while "=" in words[0]:  # variables of the environment
        words.pop(0)
    verb, *rest = parsed(words)
    verbs = get_command(app).commands  # type: ignore[attr-defined]
    given = verbs[verb].with_options().make_context(verb, list(rest)).params  # an unknown option would end here
    assert given["out"] is not None
    if verb == "train":
        load_recipe(rest[0])


def test_every_reader_has_a_command():
    assert [sum(line.startswith(name) for line in COMMANDS) for name in ("showtell", "torchrun", "accelerate")] == [
        *(2, 3, 1)
    ]


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason='Ray is not installed; pip install "showtell[ray]"')
def test_the_cluster_is_started_with_options_that_ray_has():
    from ray.scripts.scripts import cli

    given = [
        cli.commands[words[1]].make_context(words[1], words[2:]).params
        for words in map(shlex.split, COMMANDS)
        if words[0] == "ray"
    ]
    assert [(one["head"], one["address"]) for one in given] == [(True, None), (False, "FIRST_MACHINE:6379")]


def test_the_table_is_what_the_recipes_weigh():
    table = cost_model.table_of(cost_model.costs())
    page = (DOCS / "training_cost.md").read_text(encoding="utf-8")
    assert table in page, "run benchmarks/cost_model.py --docs docs/training_cost.md"


def test_weights_are_those_of_a_decoder_that_is_built():
    (cost,) = (cost for cost in cost_model.costs() if cost.recipe == "nic_lstm_gu2018")
    recipe = load_recipe(cost_model.COCO / "nic_lstm_gu2018.yaml")
    decoder = build_decoder(recipe.model, feature_size=2048, vocabulary_size=cost_model.WORDS)
    assert cost.gradients == sum(weight.numel() * weight.element_size() for weight in decoder.parameters())
    assert cost.state == 4 * cost.gradients  # weights, gradients, and Adam's two means
    assert (cost.captions, cost.steps) == (50, 11_329)  # 113,287 images, 10 in a step


@pytest.mark.parametrize("processes", [2, 3, 8])
def test_what_a_process_sends_is_what_a_ring_carries(processes):
    """Each piece goes round once to be added up and once more to be known to all, which takes P - 1 hops each."""
    pieces = [[100.0 / processes] * processes for _ in range(processes)]  # bytes, of each process
    carried = [0.0] * processes
    for way in range(2):
        for hop in range(processes - 1):
            for process in range(processes):
                carried[process] += pieces[process][(process - hop + way) % processes]
    assert carried == pytest.approx([cost_model.sent(100, processes)] * processes)


def test_a_step_is_its_share_of_captions_and_its_gradients():
    # 80 captions at 20 a second in each of 4 processes: 1 s. 100 bytes in a ring of 4: 150 at 300 a second, 0.5 s.
    assert cost_model.step_seconds(80, 20, 100, 4, 300) == pytest.approx(1.5)
