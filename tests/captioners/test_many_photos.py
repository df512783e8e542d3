"""The program of docs/caption_my_photos.md captions with Ray Data as the captioner does, and resumes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from showtell.captioners import Captioner

PAGE = Path(__file__).resolve().parents[2] / "docs" / "caption_my_photos.md"


@pytest.mark.slow
def test_the_program_on_ray_data_captions_each_photo_once(tiny_checkpoint, photos, tmp_path):
    pytest.importorskip("ray.data", reason='Ray is not installed: pip install "ray[data]"')
    (program,) = re.findall(r"^```python\n(import json\n.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (tmp_path / "many.py").write_text(program)
    folder, out, images = tmp_path / "photos", tmp_path / "captions", photos[:5]
    folder.mkdir()

    def run() -> dict[str, dict]:
        quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ADDRESS": "local"}
        command = [sys.executable, "many.py", str(tiny_checkpoint), "photos", "captions"]
        subprocess.run(command, cwd=tmp_path, env={**os.environ, **quiet}, check=True, capture_output=True, timeout=300)
        rows = [json.loads(line) for file in out.glob("*.json") for line in file.read_text().splitlines()]
        assert len({row["path"] for row in rows}) == len(rows)
        return {Path(row["path"]).name: row for row in rows}

    for image in images[:4]:
        (folder / image.name).write_bytes(image.read_bytes())
    (folder / "broken.jpg").write_text("text")
    rows = run()
    assert rows["broken.jpg"]["error"] == "The image in memory is not an image: it holds text."
    (folder / images[4].name).write_bytes(images[4].read_bytes())
    rows = run()
    assert rows.keys() == {"broken.jpg", *(image.name for image in images)}
    captioner = Captioner.from_pretrained(tiny_checkpoint, device="cpu")
    for image in images:
        wanted = captioner.caption(image)[0]
        assert rows[image.name]["caption"] == wanted.text
        assert rows[image.name]["logprob"] == pytest.approx(wanted.logprob, abs=1e-5)
