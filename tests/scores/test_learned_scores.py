"""CLIPScore, PAC-S and BERTScore: the authors' numbers, from photos and texts to scores; resuming; and bad input.

The reference numbers are of benchmarks/learned_scores_parity.py, which ran jmhessel/clipscore at 1036465,
aimagelab/pacscore at bfbc488 and Tiiiger/bert_score at 19e7f55 on the same made-up weights.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import showtell
from learned_scores_parity import (
    BASELINE,
    BERT_SETTINGS,
    CAPTIONS,
    IDS,
    PAC_SEED,
    REFERENCES,
    openai_weights,
    write_bert,
)
from showtell.errors import CheckpointError, DataError, UsageError
from showtell.files import cache_folder
from showtell.scores import ImageFacts, ScoreModels, compare, intervals
from tests.scores.learned import PREDICTIONS, change_json, clip_folder, facts_of, reference

TOLERANCE = 1e-5  # the issue asks for 1e-4


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    for one in cache_folder().glob("meteor*"):  # which takes half a minute to make
        (folder / one.name).symlink_to(one)
    monkeypatch.setenv("SHOWTELL_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny CLIP, BERT and RoBERTa, weights of PAC-S and PAC-S++, baselines."""
    folder = tmp_path_factory.mktemp("learned")
    clip_folder(folder / "clip")
    for kind in ("bert", "roberta"):
        write_bert(folder / kind, kind)
    for name, low_rank in (("pac_s", False), ("pac_s++", True)):
        torch.save({"epoch": 3, "state_dict": openai_weights(PAC_SEED, low_rank=low_rank)}, folder / f"{name}.pth")
    (folder / "baseline.tsv").write_text(BASELINE)
    return folder


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ImageFacts]:
    return facts_of(tmp_path_factory.mktemp("photos"))


def per_image(report: showtell.scores.ScoreReport, number: str) -> list[float | None]:
    return [report.per_image[image][number] for image in IDS]


# --- the authors' numbers ---


@pytest.mark.parametrize("weights", ["pac_s", "pac_s++"])
def test_clip_score_and_pac_s_are_those_of_their_authors(made: Path, facts: dict, weights: str) -> None:
    models = ScoreModels(clip_model=str(made / "clip"), pac_model=str(made / f"{weights}.pth"))
    report = showtell.score(PREDICTIONS, facts, ["clip_score", "ref_clip_score", "pac_s", "ref_pac_s"], models=models)
    published = reference("clip")
    for number in report.scores:
        name = number.replace("pac_s", weights)
        assert per_image(report, number) == pytest.approx(published[name], abs=TOLERANCE), name
        assert report.scores[number] == pytest.approx(np.mean(published[name]), abs=TOLERANCE)
    assert sum(value > 0.1 for value in published["clip_score"]) == 7


@pytest.mark.parametrize("settings", BERT_SETTINGS)
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_bert_score_is_that_of_its_authors(made: Path, kind: str, settings: str) -> None:
    chosen = BERT_SETTINGS[settings]
    models = ScoreModels(
        bert_model=str(made / kind),
        bert_layer=chosen["layer"],
        bert_idf=chosen.get("idf", False),
        bert_baseline=str(made / "baseline.tsv") if chosen.get("rescaled") else None,
        score_batch_size=4,
    )
    report = showtell.score(list(CAPTIONS), list(REFERENCES), ["bert_score"], models=models)
    ours = [[of_image[f"bert_score_{one}"] for one in ("p", "r", "f1")] for of_image in report.per_image.values()]
    np.testing.assert_allclose(ours, reference("bert")[f"{kind}, {settings}"], atol=TOLERANCE)


def test_intervals_comparisons_and_signatures(made: Path, facts: dict) -> None:
    models = ScoreModels(
        clip_model=str(made / "clip"), bert_model=str(made / "bert"), bert_layer=2, bert_idf=True, bert_baseline=None
    )
    names = ["clip_score", "ref_clip_score", "bert_score"]
    first = showtell.score(PREDICTIONS, facts, names, models=models)
    second = showtell.score(dict(zip(IDS, reversed(CAPTIONS), strict=True)), facts, names, models=models)
    bounds = intervals(first)
    assert all(bounds[name].low <= value <= bounds[name].high for name, value in first.scores.items() if value)
    assert compare(first, second)["clip_score"].value == pytest.approx(
        first.scores["clip_score"] - second.scores["clip_score"]
    )
    weights = models.clip.fingerprint
    assert first.signatures["clip_score"].startswith(
        f"model:clip|weights:{weights}|prefix:A photo depicts|context:77|image:224|dtype:fp32|transformers:"
    )
    assert "|w:2.5|" in first.signatures["ref_clip_score"]
    assert first.signatures["ref_clip_score"].startswith("nrefs:1-4|model:clip|")
    assert "|layer:2|" in first.signatures["bert_score_f1"]
    assert "|idf:references:16|rescaled:no|" in first.signatures["bert_score_f1"]


def test_captions_beyond_the_context_are_counted(made: Path, facts: dict) -> None:
    models = ScoreModels(clip_model=str(made / "clip"), bert_model=str(made / "bert"), bert_layer=1)
    report = showtell.score(PREDICTIONS, facts, ["clip_score", "ref_clip_score", "bert_score"], models=models)
    assert report.warnings == (
        "CLIPScore: 1 of 7 texts have more than the 77 tokens that clip reads (its prompt included); what is behind "
        "them counted nothing.",
        "RefCLIPScore: 2 of 23 texts have more than the 77 tokens that clip reads (its prompt included); what is "
        "behind them counted nothing.",
        "BERTScore: 2 of 23 texts have more than the 48 tokens that bert reads; what is behind them counted nothing.",
    )


# --- which of them run ---


def test_they_run_where_their_weights_are_named(made: Path, facts: dict) -> None:
    assert "clip_score" not in showtell.score(PREDICTIONS, facts).scores
    models = ScoreModels(clip_model=str(made / "clip"))
    scores = showtell.score(PREDICTIONS, facts, models=models).scores
    assert {"clip_score", "ref_clip_score"} <= scores.keys()
    assert not {"pac_s", "bert_score_p"} & scores.keys()


def test_what_is_missing_is_skipped_with_a_sentence(made: Path, facts: dict) -> None:
    asked = showtell.score(PREDICTIONS, facts, ["bleu", "pac_s"])
    assert asked.scores["bleu_1"] is not None
    assert asked.skipped == {
        "pac_s": '"pac_s" needs weights that you name: --pac-model with a folder, or a repository on the Hugging Face '
        "hub."
    }
    without = showtell.score(list(CAPTIONS), list(REFERENCES), models=ScoreModels(clip_model=str(made / "clip")))
    assert without.skipped["clip_score"].startswith(
        '"clip_score" needs the image files; score against a dataset (7 of 7 image(s) lack them'
    )
    gone = {**facts, "odd": ImageFacts(("a dog",), path=Path("gone.png"))}
    report = showtell.score(PREDICTIONS, gone, ["clip_score"], models=ScoreModels(clip_model=str(made / "clip")))
    assert report.skipped["clip_score"].startswith("1 of 7 photos cannot be read: ")
    assert "gone.png" in report.skipped["clip_score"]


# --- what was computed is kept ---


def test_interrupted_scoring_resumes(made: Path, facts: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    def score(models: ScoreModels) -> float:
        return showtell.score(PREDICTIONS, facts, ["clip_score"], models=models).scores["clip_score"]

    stopped = ScoreModels(clip_model=str(made / "clip"), score_batch_size=2)
    photos: list[int] = []
    watch_photos(stopped, monkeypatch, photos, stop_after=3)
    with pytest.raises(KeyboardInterrupt):
        score(stopped)
    assert photos == [2, 2]
    resumed = ScoreModels(clip_model=str(made / "clip"), score_batch_size=2)
    watch_photos(resumed, monkeypatch, photos := [])
    assert score(resumed) == pytest.approx(np.mean(reference("clip")["clip_score"]), abs=TOLERANCE)
    assert photos == [2, 1]
    again = ScoreModels(clip_model=str(made / "clip"))
    watch_photos(again, monkeypatch, photos := [])
    assert score(again) == score(resumed)
    assert photos == []


def watch_photos(
    models: ScoreModels, monkeypatch: pytest.MonkeyPatch, batches: list[int], stop_after: int | None = None
) -> None:
    """Note the size of each batch of photos, and interrupt the one with a number."""
    of_model: Callable = models.clip.model.get_image_features

    def embed(pixel_values: torch.Tensor) -> object:
        if stop_after is not None and len(batches) + 1 == stop_after:
            raise KeyboardInterrupt
        batches.append(len(pixel_values))
        return of_model(pixel_values=pixel_values)

    monkeypatch.setattr(models.clip.model, "get_image_features", embed)


def test_a_damaged_journal_costs_what_is_damaged(made: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def score() -> list:
        models = ScoreModels(bert_model=str(made / "bert"), bert_layer=2)
        report = showtell.score(list(CAPTIONS), list(REFERENCES), ["bert_score"], models=models)
        return [list(of_image.values()) for of_image in report.per_image.values()]

    first = score()
    (journal,) = (cache / "scores").glob("bert-*.rows")
    content = bytearray(journal.read_bytes())
    assert len(content) == 16 * (16 + 3 * 4 + 4)  # pairs: key, three numbers, checksum
    content[20] ^= 0x10  # within a row
    journal.write_bytes(content[:-7])  # and the last record was cut off by a kill
    np.testing.assert_allclose(score(), first, atol=1e-6)
    assert journal.stat().st_size % 32 == 0
    np.testing.assert_allclose(score(), first, atol=1e-6)


def test_pickled_weights_are_read_without_running_them(made: Path, facts: dict, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made / "clip", tmp_path / "pickled"))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    report = showtell.score(PREDICTIONS, facts, ["clip_score"], models=ScoreModels(clip_model=str(folder)))
    assert per_image(report, "clip_score") == pytest.approx(reference("clip")["clip_score"], abs=TOLERANCE)


# --- bad input ---


def without_text_tower(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("text_model.")}
    save_file(kept, folder / "model.safetensors")


def with_another_shape(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "visual_projection.weight": torch.zeros(16, 64)}, folder / "model.safetensors")


def with_nan(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["text_projection.weight"][0] = float("nan")
    save_file(tensors, folder / "model.safetensors")


BAD_CLIPS: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: change_json(folder / "config.json", model_type="clip_vision_model"), "no text tower .it is a clip"),
    (without_text_tower, "has no text tower, so it cannot compare photos with captions; give a whole CLIP"),
    (lambda folder: change_json(folder / "config.json", model_type="siglip"), '"siglip", and CLIPScore and PAC-S are'),
    (lambda folder: (folder / "config.json").write_text("{}"), 'names no "model_type"'),
    (lambda folder: (folder / "model.safetensors").unlink(), "is incomplete: .* lacks model.safetensors"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b"\x08"), "is damaged, or no safetensors file"),
    (with_another_shape, r"have other shapes than .*visual_projection.weight is \(16, 64\) and should be \(32, 64\)"),
    (with_nan, "text_projection.weight has values that are no finite numbers"),
    (lambda folder: (folder / "vocab.json").unlink() or (folder / "merges.txt").unlink(), "lacks tokenizer.json"),
    (
        lambda folder: change_json(folder / "preprocessor_config.json", crop_size={"height": 96, "width": 96}),
        "looks at photos of 224 pixels, and its image processor cuts out 96",
    ),
    (
        lambda folder: change_json(folder / "config.json", attn_implementation="mine/kernel"),
        "names a repository with code for attention",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "sentence"), BAD_CLIPS)
def test_a_clip_that_cannot_be_used_is_refused(
    made: Path, tmp_path: Path, damage: Callable[[Path], object], sentence: str
) -> None:
    folder = Path(shutil.copytree(made / "clip", tmp_path / "clip"))
    damage(folder)
    with pytest.raises(CheckpointError, match=sentence) as caught:
        ScoreModels(clip_model=str(folder)).open()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"clip_model": "/none"}, CheckpointError, 'The model "/none" does not exist; give a folder'),
        ({"pac_model": "MADE/pac_s.pth"}, CheckpointError, "of weights alone; name the CLIP .* --clip-model"),
        ({"pac_model": "x.pth", "clip_model": "MADE/clip"}, CheckpointError, "The weights x.pth: this does not"),
        ({"bert_model": "MADE/bert"}, UsageError, "not known which layer of bert BERTScore compares; name one"),
        ({"bert_model": "MADE/bert", "bert_layer": 4}, UsageError, "bert has 3 layers, and BERTScore was .* layer 4"),
        ({"bert_model": "MADE/clip", "bert_layer": 1}, CheckpointError, 'of type "clip" without one stack of layers'),
        ({"bert_layer": 1}, UsageError, "bert_layer is for BERTScore, and bert_model names no encoder for it"),
        ({"bert_modle": "x"}, UsageError, "bert_modle: Extra inputs are not permitted"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used_are_refused(
    made: Path, settings: dict, error: type[Exception], sentence: str
) -> None:
    given = {
        name: value.replace("MADE", str(made)) if isinstance(value, str) else value for name, value in settings.items()
    }
    with pytest.raises(error, match=sentence):
        ScoreModels(**given).open()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "There is no file .*baseline.tsv; baselines are a line LAYER,P,R,F"),
        ("", "holds no baselines: it should have a line LAYER,P,R,F"),
        ("LAYER,P,R\n1,2,3\n", "holds no baselines"),
        ("LAYER,P,R,F\n0,0.1,0.2,nan\n", "Line 2 of .* is no baseline: it should have a layer and three numbers"),
        ("LAYER,P,R,F\n0,0.1,0.2,0.3\n1,0.1,0.2\n", "Line 3 of .* is no baseline"),
        ("LAYER,P,R,F\n0,0.1,0.2,0.3\n", "has no baseline of layer 2, but of 1 others; is it of this model?"),
    ],
)
def test_baselines_that_cannot_be_used_are_refused(
    made: Path, tmp_path: Path, content: str | None, sentence: str
) -> None:
    file = tmp_path / "baseline.tsv"
    if content is not None:
        file.write_text(content)
    models = ScoreModels(bert_model=str(made / "bert"), bert_layer=2, bert_baseline=str(file))
    with pytest.raises(DataError, match=sentence):
        models.open()


# --- on the command line ---


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    from showtell.cli import main

    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def test_score_and_explanations_show_them(
    made: Path, tiny_scenes: Path, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = ("--clip-model", made / "clip", "--bert-model", made / "bert", "--bert-layer", 2)
    common = (tiny_checkpoint, tiny_scenes, "--limit", 3, "--num-beams", 1)
    code, out, err = run(capsys, "evaluate", *common, *models, "--metrics", "clip_score,bert_score", "--json",
                         "--out", tmp_path / "captions.json")  # fmt: skip
    assert code == 0, err
    evaluated = json.loads(out)["scores"]
    code, out, err = run(
        capsys,
        "score",
        tmp_path / "captions.json",
        "--references",
        tiny_scenes,
        "--limit",
        3,
        *models,
        "--per-image",
        tmp_path / "per.json",
    )
    assert code == 0, err
    for name in ("clip_score", "ref_clip_score", "bert_score_p", "bert_score_r", "bert_score_f1"):
        assert re.search(rf"^{name} +-?\d\.\d{{4}} +\[-?\d\.\d{{4}}, -?\d\.\d{{4}}\]$", out, re.MULTILINE)
    scored = json.loads((tmp_path / "per.json").read_text())
    assert np.mean([one["bert_score_f1"] for one in scored.values()]) == pytest.approx(evaluated["bert_score_f1"])
    code, out, err = run(capsys, "explain", *common, *models, "--json", "--out", tmp_path / "explained.json")
    assert code == 0, err
    for one in json.loads((tmp_path / "explained.json").read_text()):
        assert {"clip_score", "ref_clip_score", "bert_score_f1"} <= one["models"][0]["scores"].keys()
    code, out, err = run(
        capsys, "score", tmp_path / "captions.json", "--references", tiny_scenes, "--clip-model", "/none"
    )
    assert (code, out) == (2, "")
    assert 'The model "/none" does not exist' in err
