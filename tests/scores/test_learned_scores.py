"""CLIPScore: its authors' numbers (jmhessel/clipscore at 1036465, by benchmarks/learned_scores_parity.py); mistakes."""

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import showtell
from learned_scores_parity import CAPTIONS, IDS, REFERENCES, openai_weights, photos, write_clip
from openai_clip import from_openai
from showtell.errors import CheckpointError
from showtell.files import write_json
from showtell.scores import ImageFacts, compare
from showtell.scores.encoders import ClipEncoder
from tests.cli.test_caption import as_json, run

PREDICTIONS = dict(zip(IDS, CAPTIONS, strict=True))
TOLERANCE = 1e-5
NAMES = ["clip_score", "ref_clip_score"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny CLIP of made-up weights, in the layout of transformers."""
    return write_clip(tmp_path_factory.mktemp("learned") / "clip", from_openai(openai_weights()))


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ImageFacts]:
    paths = photos(tmp_path_factory.mktemp("photos"))
    return {image: ImageFacts(texts, path=path) for image, texts, path in zip(IDS, REFERENCES, paths, strict=True)}


def test_the_numbers_are_those_of_their_authors(made: Path, facts: dict) -> None:
    report = showtell.score(PREDICTIONS, facts, NAMES, clip=ClipEncoder(str(made)))
    published = json.loads((Path(__file__).parent / "reference_clip.json").read_text())
    for number, score in report.scores.items():
        expected = published[number]
        assert [report.per_image[image][number] for image in IDS] == pytest.approx(expected, abs=TOLERANCE), number
        assert score == pytest.approx(np.mean(expected), abs=TOLERANCE)
    assert sum(value > 0.1 for value in published["clip_score"]) == 7


def test_intervals_comparisons_and_signatures(made: Path, facts: dict) -> None:
    scored = partial(showtell.score, references=facts, metrics=NAMES, clip=ClipEncoder(str(made)))
    first, second = scored(PREDICTIONS), scored(dict(zip(IDS, reversed(CAPTIONS), strict=True)))
    bounds = first.intervals()
    assert all(bounds[name].low <= value <= bounds[name].high for name, value in first.scores.items() if value)
    (row,) = compare({"first": first, "second": second})["clip_score"]
    assert row.value == pytest.approx(first.scores["clip_score"] - second.scores["clip_score"])
    parts = ("model:clip", "weights:[0-9a-f]{12}", "prefix:A photo depicts", "context:77", "image:224", "dtype:fp32")
    assert re.match(r"\|".join([*parts, "transformers:"]), first.signatures["clip_score"])
    assert "|w:2.5|" in first.signatures["ref_clip_score"]
    assert first.signatures["ref_clip_score"].startswith("nrefs:1-4|model:clip|")
    beyond = "texts have more than the 77 tokens that clip reads; what is behind them counted nothing."
    assert first.warnings == (f"CLIPScore: 1 of 7 {beyond}", f"RefCLIPScore: 2 of 23 {beyond}")


def test_what_is_missing_is_skipped_with_a_sentence(made: Path, facts: dict) -> None:
    asked = showtell.score(PREDICTIONS, facts, ["bleu", "clip_score"])
    assert asked.scores["bleu_1"] is not None and asked.skipped.keys() == {"clip_score"}
    unnamed = "needs a CLIP that you name: --clip-model with a folder, or a repository on the Hugging Face hub."
    assert asked.skipped["clip_score"] == f'"clip_score" {unnamed}'
    assert "clip_score" not in showtell.score(PREDICTIONS, facts).scores
    without = showtell.score(list(CAPTIONS), list(REFERENCES), clip=ClipEncoder(str(made)))
    needed = '"clip_score" needs the image files; score against a dataset (7 of 7 image(s) lack them'
    assert without.skipped["clip_score"].startswith(needed)
    gone = {**facts, "odd": ImageFacts(("a dog",), path=Path("gone.png"))}
    report = showtell.score(PREDICTIONS, gone, ["clip_score"], clip=ClipEncoder(str(made)))
    assert report.skipped["clip_score"].startswith("1 of 7 photos cannot be read: ")
    assert "gone.png" in report.skipped["clip_score"]


def change_config(folder: Path, **changes: str) -> None:
    """Replace values of a folder's config."""
    write_json(folder / "config.json", {**json.loads((folder / "config.json").read_text()), **changes})


def change_tensors(folder: Path, **changes: torch.Tensor | None) -> None:
    """Replace tensors of a folder, or leave them out."""
    tensors = {**load_file(folder / "model.safetensors"), **changes}
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


def without_text_tower(folder: Path) -> None:
    names = load_file(folder / "model.safetensors")
    change_tensors(folder, **{name: None for name in names if name.startswith("text_model.")})


BAD_CLIPS: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: change_config(folder, model_type="siglip"), '"siglip", and CLIPScore is'),
    (without_text_tower, "are not those of a whole CLIPModel: .* tensors are missing .text_model"),
    (lambda folder: (folder / "config.json").write_text("{}"), 'of no model of transformers: it names no'),
    (lambda folder: (folder / "model.safetensors").unlink(), "is incomplete: .* lacks model.safetensors"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"\x08"), "CLIPModel of .* cannot open clip from"),
    (lambda folder: change_tensors(folder, **{"visual_projection.weight": torch.zeros(16, 64)}), "cannot open clip"),
    (lambda folder: (folder / "vocab.json").unlink() or (folder / "merges.txt").unlink(), "lacks tokenizer.json"),
    (lambda folder: change_config(folder, attn_implementation="mine/kernel"), "a repository with code"),
]  # fmt: skip


def test_a_clip_that_cannot_be_used_is_refused(made: Path, tmp_path: Path) -> None:
    for number, (damage, sentence) in enumerate(BAD_CLIPS):
        folder = Path(shutil.copytree(made, tmp_path / str(number) / "clip"))
        damage(folder)
        with pytest.raises(CheckpointError, match=sentence) as caught:
            ClipEncoder(str(folder))
        assert "\n" not in str(caught.value)


def test_weights_that_give_no_numbers_skip_the_score(made: Path, facts: dict, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "clip"))
    change_tensors(folder, **{"text_projection.weight": torch.full((32, 64), float("nan"))})
    report = showtell.score(PREDICTIONS, facts, ["clip_score"], clip=ClipEncoder(str(folder)))
    assert "give vectors that are not finite" in report.skipped["clip_score"]


def test_a_clip_that_is_not_there_is_told() -> None:
    with pytest.raises(CheckpointError, match="There is no folder /none, and the Hugging Face hub gives"):
        ClipEncoder("/none")


# --- on the command line ---


def test_both_verbs_show_them(
    made: Path, tiny_scenes: Path, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = ("--clip-model", made)
    made_here = (tiny_checkpoint, tiny_scenes, "--limit", 3, "--num-beams", 1, "--out", tmp_path / "captions.json")
    evaluated = as_json(capsys, "evaluate", *made_here, *models, "--metrics", ",".join(NAMES))["scores"]
    given = (tmp_path / "captions.json", "--references", tiny_scenes, "--common", "--per-image", tmp_path / "per.json")
    code, out, err = run(capsys, "score", *given, *models)
    assert code == 0, err
    for name in ("CLIPScore", "RefCLIPScore"):
        assert re.search(rf"^{name} +-?\d\.\d{{4}} +\[-?\d\.\d{{4}}, -?\d\.\d{{4}}\]$", out, re.MULTILINE)
    scored = json.loads((tmp_path / "per.json").read_text())
    assert np.mean([one["ref_clip_score"] for one in scored.values()]) == pytest.approx(evaluated["ref_clip_score"])
