"""Folders from elsewhere: whatever their JSON says, they open, or one sentence says what is wrong."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from showtell.captioners import Captioner
from showtell.captioners.hugging_face import TransformersCaptioner
from showtell.captioners.hugging_face_adapters import TransformersConfig, adapt, save_adapted
from showtell.captioners.opening import recipe_sections
from showtell.captions import Caption, Word
from showtell.confidence.calibration import Calibration, save_calibration
from showtell.errors import ShowtellError
from tests.fuzzing import mutated


@pytest.fixture(scope="module")
def folders(tiny_checkpoint: Path, tiny_blip: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated checkpoint, a captioner of transformers and adapters that stand on it, each in a folder."""
    root = tmp_path_factory.mktemp("folders")
    shutil.copytree(tiny_checkpoint, root / "calibrated")
    captioner = Captioner.from_pretrained(root / "calibrated", "cpu")
    words = [(Word("a", -0.1 * number), Word("dog", -0.2)) for number in range(40)]
    captions = [Caption("a dog", sum(word.logprob for word in own) - 0.1, True, own) for own in words]
    vectors = captioner.mean_features(captioner.encode_prepared([captioner.prepare(PHOTO)])).repeat(40, 0)
    fitted = Calibration.fit(captions, [number % 3 == 0 for number in range(40)], "drawn", captioner.decoding, vectors)
    save_calibration(root / "calibrated", captioner.about.fingerprints["weights"], fitted)
    base = Captioner.from_pretrained(shutil.copytree(tiny_blip, root / "base"), "cpu")
    assert isinstance(base, TransformersCaptioner)
    adapt(base, TransformersConfig())
    save_adapted(root / "adapted", base, base.decoding, {"data": "scenes", "before": {"data": "photos"}})
    return root


@pytest.fixture(scope="module", autouse=True)
def no_hub() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        yield


PHOTO = Path(__file__).parents[2] / "src/showtell/small/photos/cat.jpg"


def opened_or_refused(folder: Path) -> None:
    """Open, describe and use what a folder holds."""
    try:
        captioner = Captioner.from_pretrained(folder, "cpu")
        assert captioner.about.knows
        captioner.caption(PHOTO, max_length=3)
        recipe_sections(folder)
    except ShowtellError as error:
        assert str(error).endswith(".")


FILES = [
    *[("calibrated", "config.json", 20), ("calibrated", "calibration.json", 15), ("adapted", "config.json", 15)],
    *[("base", name, 4) for name in ("config.json", "generation_config.json", "processor_config.json")],
]


@pytest.mark.parametrize(("name", "file", "cases"), FILES)
def test_damaged_json_is_a_sentence(name: str, file: str, cases: int, folders: Path, tmp_path: Path) -> None:
    """Values of other kinds, null, NaN, huge and nested ones, missing and repeated keys, cut-off files."""
    folder = Path(shutil.copytree(folders / name, tmp_path / name))
    whole = (folder / file).read_bytes()

    @settings(max_examples=cases, database=None)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        (folder / file).write_bytes(mutated(whole, random.Random(seed)))
        opened_or_refused(folder)

    check()


ODD_SETTINGS = [
    ({"base": {"name": None}}, r"config\.json: base\.name: "),
    *(({"base": {"name": name}}, "base cannot be opened: .* is of no model of tr") for name in ("small", "adapted")),
    ({"model": {"rank": 6}}, "do not fit what config.json says"),
]


@pytest.mark.parametrize(("change", "sentence"), ODD_SETTINGS)
def test_adapters_with_odd_settings(change: Any, sentence: str, folders: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders / "adapted", tmp_path / "adapted"))
    config = json.loads((folder / "config.json").read_text())
    for key, value in change.items():
        config[key] = {**config[key], **value} if isinstance(value, dict) else value
    if config["base"]["name"] == "adapted":
        config["base"]["name"] = str(folder)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ShowtellError, match=sentence):
        Captioner.from_pretrained(folder, "cpu")
