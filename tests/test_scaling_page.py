"""The commands of docs/scaling.md can be given as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from showtell.cli.app import command_of
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


def test_every_command_names_what_there_is(monkeypatch, tiny_checkpoint, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("runs/one").mkdir(parents=True)
    Path("runs/one/best").symlink_to(tiny_checkpoint)
    for command in (line for line in COMMANDS if not line.startswith("ray ") and "many.py" not in line):
        words = [word for word in shlex.split(command) if not re.match(r"[A-Z_]+=", word)]
        verb, *rest = parsed(words)
        given = command_of(verb).make_context(verb, list(rest)).params  # an unknown option would end here
        assert given["out"] is not None, command
        if verb == "train":
            load_recipe(rest[0])


def test_the_cluster_is_started_with_options_that_ray_has():
    cli = pytest.importorskip("ray.scripts.scripts", reason='Ray is not installed: pip install "ray[data]"').cli
    given = [
        cli.commands[words[1]].make_context(words[1], words[2:]).params
        for words in map(shlex.split, COMMANDS)
        if words[0] == "ray"
    ]
    assert [(one["head"], one["address"]) for one in given] == [(True, None), (False, "FIRST_MACHINE:6379")]
