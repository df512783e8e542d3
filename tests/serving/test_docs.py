"""The examples of docs/serving.md work as they stand."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.serving.fakes import FakeEngine, photo_bytes
from tests.serving.servers import PATIENCE, running_server

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "serving.md").read_text(encoding="utf-8")
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "photo.jpg").write_bytes(photo_bytes(kind="JPEG"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_client_in_five_lines_prints_a_caption(here, capsys):
    (block,) = [block for block in PYTHON.findall(PAGE) if "httpx.post(" in block]
    with running_server(FakeEngine()) as running:
        exec(block.replace("http://127.0.0.1:7860", running.url), {})
    assert capsys.readouterr().out == "a red circle\n"


def test_every_curl_is_answered(here):
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    commands = re.findall(r"^curl .*$", PAGE, flags=re.MULTILINE)
    assert len(commands) > 2
    engine = FakeEngine()
    with running_server(engine) as running:
        for command in commands:
            arguments = shlex.split(command.replace("http://127.0.0.1:7860", running.url))
            done = subprocess.run([*arguments, "--silent", "--fail"], capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, command
            assert done.stdout.startswith('{"image":"photo')
    assert len(engine.questions) == len(commands)
    assert {question.photo for question in engine.questions} == {Path("photo.jpg").read_bytes()}
