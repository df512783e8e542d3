"""Real photos: the recipe for coco-mini learns its training photos by heart, even when it is killed in the middle."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from showtell.captioners import Captioner
from showtell.datasets import open_dataset
from showtell.evaluation import caption_records
from showtell.text.tokenizer import tokenize


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.timeout(1800)
def test_coco_mini_is_learned_by_heart(shared_data: Path, tmp_path: Path, all_cores: dict[str, str]) -> None:
    data = shared_data / "coco-mini"
    command = [sys.executable, "-m", "showtell", "train", "coco-mini/sat_soft", f"data.path={data}", "--resume"]
    command += ["--out", str(tmp_path / "run")]
    killed = subprocess.Popen(command, env=all_cores, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (tmp_path / "run" / "best").exists() and time.monotonic() < deadline:
        time.sleep(1)
    time.sleep(5)
    killed.kill()
    killed.wait()
    subprocess.run(command, env=all_cores, check=True, capture_output=True, timeout=1500)

    captioner = Captioner.from_pretrained(tmp_path / "run" / "best")
    records = open_dataset(data)["train"]
    captions = caption_records(captioner, records, captioner.settings(num_beams=1))
    known = sum(captions[one.image_id].text.split() in [tokenize(text) for text in one.captions] for one in records)
    assert known >= 0.9 * len(records), f"{known} of {len(records)}"
    command = [sys.executable, "-m", "showtell", "caption", str(tmp_path / "run" / "best"), str(data / "images")]
    folder = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert folder.returncode == 0, folder.stderr
    assert len(folder.stdout.splitlines()) == 145
