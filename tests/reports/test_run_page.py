"""The page of a run: what is read of the folder, what is drawn, and the whole of it in a real Chromium."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from showtell.captioners import EncoderDecoderCaptioner
from showtell.datasets import open_dataset
from showtell.errors import DataError
from showtell.evaluation import evaluate
from showtell.features.extraction import fill_store
from showtell.features.store import FeatureStore
from showtell.recipes import published_for
from showtell.reports.curves import chart
from showtell.reports.run import Paper, Run, read_run, score_run
from showtell.reports.run_page import draw_curves, write_run_page
from showtell.training import load_recipe, make_recipe
from tests.chromium import Chromium
from tests.cli.test_caption import Captured, run

EPOCHS = 4


def recipe(data: str = "scenes", **training: Any) -> dict[str, Any]:
    """Resolved, as a run writes it."""
    return make_recipe(
        {
            "data": {"path": data},
            "vocabulary": {},
            "encoder": {"name": "small_cnn", "image_size": 32, "widths": [8]},
            "model": {"name": "sat", "hidden_size": 8, "embedding_size": 8, "attention_size": 8},
            "objective": {"name": "cross_entropy"},
            "training": {"epochs": EPOCHS, "batch_size": 8, "learning_rate": 0.01, **training},
            "decoding": {"num_beams": 2, "max_length": 8},
        }
    ).model_dump(mode="json")


def step(number: int, epoch: int, loss: float, **terms: float) -> dict[str, Any]:
    return {"step": number, "epoch": epoch, "learning_rate": 0.01, "loss": loss, **terms, "gradient_norm": 1.0}


def validation(number: int, epoch: int, cider: float, *warnings: str) -> dict[str, Any]:
    numbers = {"loss": 2.0, "bleu_4": 0.1, "cider": cider}
    return {"step": number, "epoch": epoch, "validation": numbers, "warnings": list(warnings)}


LOG = [
    step(10, 1, 4.0, words=4.0), validation(15, 1, 0.2, "all alike"),
    step(20, 2, 3.0, words=3.0), validation(30, 2, 0.5, "all alike", "too short"),
    step(40, 3, 2.5, words=2.5), validation(45, 3, 0.5),
]  # fmt: skip


def write_run(folder: Path, lines: list[dict[str, Any]], **options: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe(**options)))
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_an_interrupted_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", LOG)
    with (folder / "log.jsonl").open("a") as stream:
        stream.write('{"step": 50, "epo')  # a line that is just being written is left for later
    run = read_run(folder)
    assert run.log == tuple(LOG)
    state = "it is still running, or was interrupted and can be resumed with --resume"
    assert run.progress == f"not finished: 45 steps, in epoch 3 of 4; {state}"
    assert run.best == "cider 0.5000 in epoch 2"  # the first of the two with 0.5
    assert run.checkpoint is None
    assert run.warnings == ["epoch 1, epoch 2: all alike", "epoch 2: too short"]


def test_what_is_no_run_is_a_sentence(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", LOG)
    (folder / "best").mkdir()
    missing = "is no run folder: there is no recipe.yaml and no log.jsonl in it;"
    with pytest.raises(DataError, match=re.escape(f"{tmp_path} {missing} showtell train writes one.")):
        read_run(tmp_path)
    with pytest.raises(DataError, match=re.escape(f"{missing} name the run itself: {folder}.")):
        read_run(folder / "best")


def corners(text: str) -> list[tuple[float, float]]:
    """The corners of the only line of a chart."""
    (points,) = re.findall(r'points="([^"]*)"', text)
    return [(float(x), float(y)) for x, y in (corner.split(",") for corner in points.split())]


def test_a_chart_is_to_scale_and_its_names_are_text() -> None:
    # ticks 0, 1, 2, 3, 4 over 140 pixels from 148 up to 8; 0 to 20 steps over 282 pixels from 48 to 330
    drawn = chart("loss", {"": [(0, 4.0), (5, 1.0), (20, 0.0)]})
    assert corners(drawn) == [(48, 8), (48 + 282 / 4, 148 - 140 / 4), (330, 148)]
    assert 'aria-label="loss: 4 at step 0, 0 at step 20"' in drawn
    drawn = chart('<b>"', {"<i>": [(0, 1.0), (1, 2)], "b": [(0, 2.0)]})
    assert "<i>" not in drawn and "&lt;b&gt;&#34;: &lt;i&gt; 1 at step 0" in drawn


def test_every_term_has_a_chart_and_a_term_that_is_the_loss_has_none() -> None:
    def names(lines: list[dict[str, Any]]) -> list[str]:
        run = Run(Path("run"), recipe(), "", tuple(lines))
        titles = [re.findall(r"<figcaption>(.*?)(?: ·|</fig)|small.>(.*?):", one)[0] for one in draw_curves(run)]
        return ["".join(pair) for pair in titles]

    rest = ["gradient norm", "learning rate"]
    assert names(LOG) == ["cross-entropy per word", "validation bleu_4", "validation cider", *rest]
    lines = [step(1, 1, 4.0, words=3.0, reward=0.5), step(2, 1, 4.0, words=3.0, reward=0.5, length_mean=9.0)]
    assert names(lines) == ["cross-entropy per word", "training loss, all terms", "reward", "length mean", *rest]
    # the loss of a reward is no likelihood, so the two losses have a chart each
    rewarded = ["training loss, not a likelihood", "validation loss, cross-entropy per word", "reward", *rest]
    assert names([step(1, 1, -0.5, reward=0.5)]) == rewarded


@pytest.fixture(scope="module")
def run_folder(tiny_checkpoint: Path, tiny_scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose best weights are the tiny checkpoint."""
    lines = [*LOG, validation(60, 4, 0.4, "</script><b>not bold")]
    folder = write_run(tmp_path_factory.mktemp("runs") / "<i>mine", lines, data=str(tiny_scenes))
    shutil.copytree(tiny_checkpoint, folder / "best")
    return folder


def test_the_card_is_what_evaluation_says(captioner: EncoderDecoderCaptioner, tiny_scenes: Path) -> None:
    dataset = open_dataset(tiny_scenes)
    card = score_run(captioner, dataset, "val")
    expected = evaluate(captioner, dataset["val"])
    assert card.report.scores | expected.scores == card.report.scores and "truth" in card.report.scores
    assert card.bounds["bleu_1"] == expected.intervals()["bleu_1"]
    assert card.search == "beam of 2" and card.rates["mean_length"] > 0 and card.paper is None


def test_a_published_row_stands_beside_a_run_of_its_recipe(
    run_folder: Path, captioner: EncoderDecoderCaptioner, tiny_scenes: Path, tmp_path: Path
) -> None:
    ours = load_recipe("flickr8k/small/sat_soft", ["encoder.image_size=64"]).model_dump(mode="json")
    row = published_for(ours["training"]["recipe"])
    assert (row.recipe, row.scores["bleu_no_bp_4"], row.scores["meteor"]) == ("flickr8k/sat_soft_xu2015", 19.5, 18.93)
    paper = Paper(row, load_recipe(row.recipe).model_dump(mode="json"), ours)
    dataset = open_dataset(tiny_scenes)
    card = score_run(captioner, dataset, "val", paper=paper)
    bleu = evaluate(captioner, dataset["val"], metrics="bleu_no_bp").scores
    assert card.in_unit_of_paper["bleu_no_bp_4"] == pytest.approx(100 * (bleu["bleu_no_bp_4"] or 0))
    assert paper.differs["encoder.name"] == ("vgg19.tv_in1k", "tf_efficientnet_lite2")
    assert paper.differs["training.schedule"] == ("constant", "cosine")  # the paper's recipe leaves it at its default
    where_or_equal = {"data.path", "data.features", "training.recipe", "training.seed", "model.name"}
    assert not where_or_equal & paper.differs.keys()
    write_run_page(tmp_path / "page.html", read_run(run_folder), card, [])
    page = (tmp_path / "page.html").read_text()
    assert "Beside the paper" in page and "18.93" in page and "rewards short captions" in page


def test_the_page_in_a_browser(run_folder: Path, tmp_path: Path, browser: Chromium, capsys: Captured) -> None:
    out = tmp_path / "report.html"
    assert run(capsys, "report", run_folder, "--out", out, "--split", "train", "--photos", 3)[0] == 0
    browser.open(out)
    assert browser.ask("document.querySelector('h1').textContent") == "Run <i>mine"
    assert "not bold" in browser.ask("document.querySelector('.warnings').textContent")
    assert browser.ask("document.querySelectorAll('.charts svg polyline').length") == 6
    assert browser.ask("document.querySelectorAll('article.photo').length") == 3
    rows = "[...document.querySelectorAll('.cards tr')]"
    row = browser.ask(f"{rows}.find(r => r.textContent.startsWith('bleu_1')).innerText")
    assert re.fullmatch(r"bleu_1\s+0\.\d{4}\s+\[0\.\d{4}, 0\.\d{4}\]", row)
    assert "num_beams: 2" in browser.ask("document.querySelector('pre').textContent")
    assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
    assert [address for address in browser.requests if not address.startswith("data:")] == [out.as_uri()]
    assert not browser.complaints


def test_features_of_a_split_that_training_did_not_need_are_extracted(
    run_folder: Path, captioner: EncoderDecoderCaptioner, tiny_scenes: Path, tmp_path: Path, capsys: Captured
) -> None:
    dataset = open_dataset(tiny_scenes)
    fill_store(tmp_path / "store", captioner.encoder, dataset["val"])
    folder = shutil.copytree(run_folder, tmp_path / "run")
    read = recipe(data=f"[{tiny_scenes}]")
    read["data"]["features"] = str(tmp_path / "store")
    (folder / "recipe.yaml").write_text(yaml.safe_dump(read))
    out = tmp_path / "page.html"
    assert run(capsys, "report", folder, "--out", out, "--split", "test", "--limit", 2, "--photos", 3)[0] == 0
    assert "<h2>Scores</h2>" in out.read_text() and out.read_text().count("<article") == 3
    every = [record.image_id for record in dataset["test"]]
    assert len(FeatureStore(tmp_path / "store").missing(every)) == len(every) - 3


def test_without_scores_and_photos_nothing_but_the_folder_is_read(
    run_folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    folder = write_run(tmp_path / "run", LOG, data="gone")
    (folder / "best").mkdir()
    shutil.copy(run_folder / "best" / "config.json", folder / "best")
    assert run(capsys, "report", folder, "--out", tmp_path / "a.html", "--no-score", "--photos", 0)[0] == 0
    page = (tmp_path / "a.html").read_text()
    assert "<h2>Curves</h2>" in page and "<h2>Scores</h2>" not in page and "<article" not in page
    new = write_run(tmp_path / "new", [])
    assert run(capsys, "report", new, "--out", tmp_path / "a.html")[0] == 0
    assert "There is no checkpoint yet" in (tmp_path / "a.html").read_text()
