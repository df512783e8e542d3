"""SPICE through its official program, which needs Java and a download, and SPIDEr, its mean with CIDEr.

P. Anderson et al., SPICE: semantic propositional image caption evaluation, ECCV 2016; S. Liu et al., Improved image
captioning via policy gradient optimization of SPIDEr, ICCV 2017. The program parses captions into scene graphs with
Stanford CoreNLP 3.6.0, whose models no package carries: where anything is missing, one sentence says how to get it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from showtell import __version__
from showtell.errors import DataError, MissingDependencyError
from showtell.files import cache_folder
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber
from showtell.scores.cider import Cider
from showtell.scores.meteor_index import pycocoevalcap_folder

_MODELS = "lib/stanford-corenlp-3.6.0-models.jar"
_DOWNLOAD = 'python -c "from pycocoevalcap.spice.get_stanford_models import get_stanford_models as get; get()"'


class Spice(Score):
    """SPICE and SPIDEr. Statistics: SPICE and CIDEr of each image."""

    numbers = (ScoreNumber("spice", "SPICE"), ScoreNumber("spider", "SPIDEr", maximum=5.5))
    summary = "SPICE by its official program; SPIDEr, its mean with CIDEr"
    needs = ("references", "document_frequency")

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 2)."""
        java, folder = find_spice()
        images = zip(corpus.ids, corpus.predicted_words, corpus.reference_words, strict=True)
        entries: list[dict[str, object]] = [
            {"image_id": image, "test": " ".join(prediction), "refs": list(map(" ".join, references))}
            for image, prediction, references in images
        ]
        values = {item["image_id"]: item["scores"]["All"]["f"] for item in _run(java, folder, entries)}
        spice = np.array([float(values[image]) for image in corpus.ids])
        return np.stack([spice, Cider().statistics(corpus)[:, 0]], axis=1)

    def from_sums(self, sums: Floats, images: int) -> Floats:
        """Mean SPICE, and the mean of SPICE and CIDEr."""
        means = sums / images
        return np.stack([means[..., 0], means.mean(axis=-1)], axis=-1)

    def signature(self, corpus: Corpus) -> str:
        """Tokenizer, references, version of SPICE, CIDEr's own signature, version."""
        return f"{corpus.signature}|spice:1.0|cider:({Cider().signature(corpus)})|version:{__version__}"


def find_spice() -> tuple[str, Path]:
    """The Java program and SPICE's folder."""
    folder = pycocoevalcap_folder("SPICE") / "spice"
    java = shutil.which("java")
    if java is None:
        raise MissingDependencyError("SPICE needs Java 8 or later, and there is no java on the PATH; install it first.")
    if not (folder / _MODELS).is_file():
        raise MissingDependencyError(f"SPICE needs the CoreNLP 3.6.0 models; download them (400 MB) with {_DOWNLOAD}")
    return java, folder


def _run(java: str, folder: Path, entries: list[dict[str, object]]) -> list[dict[str, Any]]:
    """Run the program on some entries."""
    cache = cache_folder() / "spice"
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        input_file, output_file = Path(temporary) / "in.json", Path(temporary) / "out.json"
        input_file.write_text(json.dumps(entries), encoding="utf-8")
        options = ["-cache", str(cache), "-out", str(output_file), "-subset", "-silent"]
        command = [java, "-Xmx8G", "-jar", "spice-1.0.jar", str(input_file), *options]
        finished = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if finished.returncode != 0 or not output_file.is_file():
            messages = (finished.stderr or finished.stdout).strip().splitlines()
            raise DataError(
                f"SPICE stopped with status {finished.returncode}: {messages[-1] if messages else 'no message'}"
            )
        scored: list[dict[str, Any]] = json.loads(output_file.read_text(encoding="utf-8"))
        return scored
