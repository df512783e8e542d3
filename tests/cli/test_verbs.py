"""What all verbs share: help for every option, names to write to, odd text, and where they print."""

import os
import re
import subprocess
import sys
from functools import cache
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from showtell.cli import main
from showtell.cli.app import VERBS, make_app
from showtell.errors import one_line, printable
from tests.cli.test_caption import run

FILES = {"caption", "evaluate", "explain", "report"}  # whose --out is a file
FOLDERS = {"quickstart", "features", "train", "import"}


@cache
def command_of(verb: str) -> Any:
    """A verb with its options."""
    command: Any = get_command(make_app(verb.split()))
    for word in verb.split():
        command = command.commands[word]
    return command


def test_help_of_every_verb_and_option_is_a_clause_with_the_default():
    for path in VERBS:
        help = command_of(path).help
        assert help and help[0].isupper() and help.split("\n")[0].endswith("."), path
        for parameter in command_of(path).params:
            if parameter.name == "help":
                continue
            name = f"{path} {parameter.opts[0]}"
            help = parameter.help
            assert help and help.endswith("."), f"{name}: {help}"
            assert help[0].isupper() or help.startswith(("plain", "{")), f"{name}: {help}"
            shared = getattr(parameter, "rich_help_panel", None) == "Decoding (default: the settings of the checkpoint)"
            is_default_shown = parameter.show_default and parameter.default is not None
            shows = isinstance(parameter.show_default, str) or is_default_shown
            is_flag = getattr(parameter, "is_flag", False)
            is_list = parameter.param_type_name == "argument" and not parameter.required  # such as overrides
            assert parameter.required or shared or shows or is_flag or is_list, f"{name} does not say its default"


def test_help_lists_the_verbs_in_their_order_with_a_line_each(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = run(capsys, "--help")
    names = re.findall(r"^│ ([a-z]+) {2,}\S", out.partition("Commands")[2], re.MULTILINE)
    assert status == 0 and names == list(dict.fromkeys(verb.split()[0] for verb in VERBS))
    assert len(out.splitlines()) < 32


def test_a_name_that_cannot_be_written_is_refused_before_any_work(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("file").write_text("")
    Path("folder").mkdir()
    for path in sorted(FILES | FOLDERS):
        needed = "folder" if path in FOLDERS else "file"
        required = [one for one in command_of(path).params if one.param_type_name == "argument" and one.required]
        names = {"pipe": "pipe is a named pipe"}
        if path in ("caption", "train"):  # one of each kind: all verbs share the option
            names |= {"": "'--out': the name is empty; is a variable of the shell not set?", "/": "is the root of all"}
        if path != "explain":  # which takes both
            names["file" if path in FOLDERS else "folder"] = f"; --out needs the name of a {needed}."
        for out, sentence in names.items():
            status, printed, err = run(capsys, *path.split(), *["x"] * len(required), "--out", out)
            assert (status, printed) == (2, ""), path
            what = f"{path} --out {out}: {err}"
            assert err.startswith("showtell: ") and err.count("\n") == 1 and sentence in err, what


def test_a_missing_argument_says_what_it_is_and_how_to_get_it(capsys):
    assert run(capsys, "caption")[2] == (
        "showtell: Missing argument 'CHECKPOINT': Captioner: small, which comes with showtell; a checkpoint that "
        "showtell train wrote; a model of transformers, as a folder or owner/name[@revision] on the Hub; or "
        "openai:URL#MODEL, a model on a server. See showtell caption --help.\n"
    )


def test_what_a_terminal_would_act_on_is_escaped():
    for odd in ("\x1b[31m", "\n", "\r", "\x00", "\x9b", "\u2028", "\u202e", "\ud800", "\udcff", "\t"):
        assert odd not in printable(f"a{odd}b") and "\\" in printable(odd)
        assert odd not in one_line(f'There is no "a{odd}b".')


def showtell(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "showtell", *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=240, check=False, **settings)


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full here")
def test_standard_output_on_a_full_disk():
    with Path("/dev/full").open("w") as full:
        done = showtell("data", "get", "--list", stdout=full)
    assert done.returncode == 2
    assert done.stderr == "showtell: Cannot use standard output, or a file: No space left on device.\n"


def test_closed_streams():
    shell = f'"{sys.executable}" -m showtell --version 1>&- 2>&-'
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_reader_that_has_gone_away():
    reading, writing = os.pipe()
    os.close(reading)
    done = showtell("data", "get", "--list", stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_standard_output_that_is_not_utf_8(tiny_checkpoint, tiny_scenes, tmp_path, monkeypatch):
    photo = tmp_path / "hund-\N{DOG}.png"
    photo.write_bytes(min((tiny_scenes / "images").iterdir()).read_bytes())
    raw = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(raw, encoding="ascii"))
    with pytest.raises(SystemExit) as ended:
        main(["caption", str(tiny_checkpoint), str(photo)])
    assert ended.value.code == 0
    assert "hund-" in raw.getvalue().decode("ascii")
