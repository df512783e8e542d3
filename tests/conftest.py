"""Shared fixtures. Real data is found through SHOWTELL_SHARED (default ../shared); tests skip aloud without it."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.chromium import Chromium

if TYPE_CHECKING:
    from showtell.captioners import EncoderDecoderCaptioner

ROOT = Path(__file__).resolve().parents[1]

# The models of the tests are tiny: on a busy machine threads that wait for each other cost a hundred times what they
# bring. Set before torch is loaded, and inherited by the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tests hold runs to the last bit, which a GPU does not repeat (docs/scaling.md); set it to try one.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

# A busy machine takes its time, and a fixture may serve many examples.
hypothesis.settings.register_profile(
    "tests", max_examples=50, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)
hypothesis.settings.load_profile("tests")

# The collector is off until all tests are collected, and then leaves what is there alone: over the two million objects
# of the modules and the tests it took a third of the time of collecting, and a half second whenever a test called it.
gc.disable()


def pytest_collection_finish() -> None:
    from showtell import progress

    # Standard error is compared to the letter, and a busy machine may need longer for a test than a line takes to come.
    progress.SECONDS = 3600
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries count what they have left over when Python ends


# Tests signal the processes that they start, which inherit what is ignored here, as shells and nohup have it.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture
def all_cores() -> dict[str, str]:
    """The environment for a process that shall use every core."""
    return {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture
def browser(chromium: Chromium) -> Chromium:
    """The one browser of all tests, with nothing open and nothing noted."""
    chromium.open("about:blank")
    chromium.requests.clear()
    chromium.complaints.clear()
    return chromium


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real data: coco-mini/, flickr8k/, metrics/."""
    folder = Path(os.environ.get("SHOWTELL_SHARED", ROOT.parent / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set SHOWTELL_SHARED to the folder that holds data/")
    return folder


@pytest.fixture(scope="session")
def tiny_scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scenes dataset of 60 pictures of 48 pixels."""
    from showtell.scenes import write_scenes

    folder = tmp_path_factory.mktemp("scenes") / "data"
    write_scenes(folder, images=60, seed=1, size=48)
    return folder


@pytest.fixture(scope="session")
def photos(tiny_scenes: Path) -> list[Path]:
    """Its pictures, by name."""
    return sorted((tiny_scenes / "images").iterdir())


@pytest.fixture(scope="module")
def captioner(tiny_checkpoint: Path) -> EncoderDecoderCaptioner:
    """The captioner of the tiny checkpoint."""
    from showtell.captioners import EncoderDecoderCaptioner

    return EncoderDecoderCaptioner.from_pretrained(tiny_checkpoint, device="cpu")


@pytest.fixture(scope="session")
def tiny_blip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A captioner of transformers with made-up weights; who changes it takes a copy."""
    pytest.importorskip("transformers")
    from tests.captioners.tiny_transformers import build

    return build("blip", tmp_path_factory.mktemp("transformers") / "tiny-blip")


@pytest.fixture
def tiny_boxes(tiny_scenes: Path, tmp_path: Path) -> Path:
    """The same pictures as a dataset with boxes and without scenes."""
    folder = tmp_path / "boxes"
    shutil.copytree(tiny_scenes, folder)
    (folder / "annotations" / "scenes.json").unlink()
    return folder


@pytest.fixture
def tiny_recipe(tiny_scenes: Path) -> dict[str, Any]:
    return tiny_recipe_for(tiny_scenes)


def tiny_recipe_for(data: Path) -> dict[str, Any]:
    """A recipe for it that takes a second an epoch, with everything on that has a state or is random."""
    return {
        "data": {"path": str(data), "captions_per_image": 3},
        "vocabulary": {"min_count": 1},
        "encoder": {"name": "small_cnn", "image_size": 48, "widths": [8, 16, 16], "learning_rate": 0.002},
        "model": {"name": "sat", "embedding_size": 16, "hidden_size": 24, "attention_size": 16, "dropout": 0.3},
        "objective": {"name": "cross_entropy", "doubly_stochastic": 0.1, "word_presence": 0.05},
        "training": {
            "epochs": 3, "batch_size": 8, "learning_rate": 0.004, "schedule": "cosine", "warmup_steps": 3,
            "log_every": 1, "trackers": [],
        },
        "decoding": {"num_beams": 2, "max_length": 12},
    }  # fmt: skip


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory, tiny_scenes: Path) -> Path:
    """A checkpoint with fresh weights for pictures of 48 pixels."""
    import torch

    from showtell.captioners import EncoderDecoderCaptioner
    from showtell.datasets import open_dataset
    from showtell.decoding import DecodingConfig
    from showtell.features.small_cnn import SmallCnn, SmallCnnConfig
    from showtell.models.sat import SatConfig, SatDecoder
    from showtell.text.tokenizer import tokenize
    from showtell.text.vocabulary import Vocabulary

    captions = [caption for record in open_dataset(tiny_scenes)["train"] for caption in record.captions]
    vocabulary = Vocabulary.build(map(tokenize, captions))
    config = SatConfig(embedding_size=16, hidden_size=16, attention_size=8)
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    EncoderDecoderCaptioner(
        encoder=SmallCnn(SmallCnnConfig(image_size=48, widths=(8, 16))),
        decoder=SatDecoder(config, feature_size=16, vocabulary_size=len(vocabulary)),
        vocabulary=vocabulary,
        decoding=DecodingConfig(num_beams=2, max_length=8, no_unknown=True, no_repeat_ngram_size=2),
        origin={"data": "tiny scenes"},
    ).save_pretrained(folder)
    return folder
