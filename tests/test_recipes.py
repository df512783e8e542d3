"""Every recipe is loaded, built and trained for a step; those of the papers are held against docs/recipes.md."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import showtell.recipes
from showtell import counter_rng
from showtell.captioner import Captioner
from showtell.datasets import read_dataset
from showtell.errors import RecipeError
from showtell.features import build_encoder
from showtell.features.store import FeatureStore
from showtell.models import MODELS, build_decoder
from showtell.objectives import OBJECTIVES, build_objective
from showtell.recipes import find_recipe, recipe_names
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import SPECIAL, Vocabulary
from showtell.training import load_recipe, train
from showtell.types import Batch, Features
from tests.training.test_loop import log_of

RECIPES = showtell.recipes.FOLDER
DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "recipes.md"
FILES = sorted(RECIPES.rglob("*.yaml"))
NEEDED = (
    "data.path", "encoder.name", "model.name", "objective.name", "training.epochs", "training.batch_size",
    "training.learning_rate", "training.seed", "decoding.num_beams",
)  # fmt: skip


def name_of(file: Path) -> str:
    return f"{file.parent.name}/{file.stem}"


def test_there_are_recipes():
    names = {name_of(file) for file in FILES}
    flickr = {
        f"{data}/{name}"
        for data in ("flickr8k", "flickr30k")
        for name in ("nic_lstm", "sat_soft_xu2015", "sat_hard_xu2015", "updown", "stack", "stack_coarse_to_fine")
    }
    coco = {
        "coco/nic_gru_ensae", "coco/nic_lstm_gu2018", "coco/nic_lstm3_gu2018", "coco/sat_soft_xu2015",
        "coco/sat_hard_xu2015", "coco/sat_soft_gu2018", "coco/sat_soft_ensae", "coco/updown_grid_gu2018",
        "coco/updown_anderson2018", "coco/updown_regions_anderson2018", "coco/stack_gu2018",
        "coco/stack_independent_gu2018", "coco/stack_coarse_to_fine_gu2018",
        "coco/stack_independent_coarse_to_fine_gu2018",
    }  # fmt: skip
    assert names >= {"scenes/sat_soft", "coco-mini/sat_soft"} | flickr | coco


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_a_recipe_says_what_it_is_and_what_to_expect(file: Path):
    text = file.read_text()
    content = yaml.safe_load(text)
    for key in NEEDED:
        section, name = key.split(".")
        assert name in content[section], f"{file.name} leaves out {key}"
    head = [line for line in text.splitlines() if line.startswith("#")]
    assert any(f"showtell train {name_of(file)}" in line for line in head)
    assert any("Hardware:" in line for line in head)
    assert any("measured by us on" in line or "published in" in line or "not measured" in line for line in head)
    assert not any("measured by us on" in line and "published in" in line for line in head)  # never mixed
    assert max(map(len, text.splitlines())) <= 130


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_a_recipe_can_be_built_and_trained(file: Path):
    """The encoder without its numbers, which is quick; decoder and objective for one step on random features."""
    recipe = load_recipe(file)
    with torch.device("meta"):
        encoder = build_encoder(recipe.encoder, load_weights=False)
    assert not (recipe.data.features and recipe.encoder.trained), "features on disk do not learn"
    model, objective = recipe.model.model_dump_json(), recipe.objective.model_dump_json()
    likelihood, without_gradient = one_step(model, objective, encoder.feature_size)
    assert 2 < likelihood < 8  # log 50 is 3.9
    rewarded = OBJECTIVES[recipe.objective.name][1].optimises_reward and recipe.model.name == "stack"
    silent = (0,) if recipe.objective.name == "coarse_to_fine" else (0, 1)  # stages whose words are not rewarded
    assert set(without_gradient) == {
        f"outputs.{stage}.{part}" for stage in silent for part in ("weight", "bias") if rewarded
    }


@cache
def one_step(model: str, objective: str, feature_size: int) -> tuple[float, list[str]]:
    """The loss of the words on random features, and weights that got no gradient. Many recipes share a model."""
    model_config, objective_config = (
        registry[settings["name"]][0].model_validate(settings)
        for registry, settings in ((MODELS, json.loads(model)), (OBJECTIVES, json.loads(objective)))
    )
    sizes = {"feature_size": feature_size, "vocabulary_size": 50}
    torch.manual_seed(0)
    decoder, objective_of = build_decoder(model_config, **sizes), build_objective(objective_config, **sizes)
    features = Features(torch.rand(2, 3, feature_size), torch.ones(2, 3, dtype=torch.bool))
    words = torch.tensor([[[1, 7, 9, 2]], [[1, 8, 2, 0]]])  # begin, words, end, padding
    batch = Batch(("a", "b"), None, words, torch.ones(2, 1, dtype=torch.bool), features)
    objective_of.prepare(dict(zip(batch.image_ids, words.tolist(), strict=True)), 20)
    with counter_rng.use(counter_rng.CounterRNG(0, 0, batch.image_ids)):
        objective_of(batch, features, decoder).total.backward()
        likelihood = objective_of.eval()(batch, features, decoder).parts["words"]
    return float(likelihood), [name for name, weight in decoder.named_parameters() if weight.grad is None]


# ---- the papers' settings


def table_rows() -> list[tuple[str, str, Any]]:
    """(recipes, key, value) of the tables of docs/recipes.md."""
    lines = re.findall(r"^\| `([^`]+/[^`]+)` \| `([^`]+)` \| (.+?) \| ", DOCUMENT.read_text(), flags=re.MULTILINE)
    return [(names, key, yaml.safe_load(value)) for names, key, value in lines]


OF_PAPERS = [file for file in FILES if file.parent.name in ("coco", "flickr8k", "flickr30k")]
NO_SETTING = {"data.path", "data.features", "training.seed", "training.start_from"}


def settings(file: Path) -> dict[str, Any]:
    """What a recipe says, nested keys as dotted ones."""
    return {key: value for key, value in flat(yaml.safe_load(file.read_text())).items() if key not in NO_SETTING}


def flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for key, value in content.items():
        entries |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return entries


def fits(file: Path, names: str) -> bool:
    """Whether a recipe is one of those that a row is about: patterns with spaces between them."""
    return any(fnmatch(name_of(file), name) for name in names.split())


def test_the_table_of_sources_is_what_the_recipes_say():
    rows = table_rows()
    assert len(rows) > 100
    for names, key, value in rows:
        fitting = [file for file in OF_PAPERS if fits(file, names)]
        assert fitting, f"no recipe is called {names}"
        for file in fitting:
            assert settings(file).get(key) == value, f"{name_of(file)} has another {key} than docs/recipes.md"


@pytest.mark.parametrize("file", OF_PAPERS, ids=name_of)
def test_every_setting_of_a_papers_recipe_has_a_source(file: Path):
    sourced = {key for names, key, _ in table_rows() if fits(file, names)}
    like = {
        "nic_lstm": "coco/nic_lstm_gu2018",
        "updown": "coco/updown_grid_gu2018",
        "updown_self_critical": f"{file.parent.name}/updown",
        "stack": "coco/stack_gu2018",
        "stack_coarse_to_fine": "coco/stack_coarse_to_fine_gu2018",
    }.get(file.stem)
    other = settings(RECIPES / f"{like}.yaml") if like else {}
    mine = settings(file)
    assert {key for key in mine | other if mine.get(key) != other.get(key)} == sourced


@pytest.mark.parametrize("file", OF_PAPERS, ids=name_of)
def test_recipes_with_one_store_have_one_encoder(file: Path):
    mine = yaml.safe_load(file.read_text())
    for other in OF_PAPERS:
        content = yaml.safe_load(other.read_text())
        same = content["data"]["features"] == mine["data"]["features"]
        assert same == (content["encoder"] == mine["encoder"] and content["data"]["path"] == mine["data"]["path"])


def test_the_published_scores_of_the_heads_are_those_of_the_papers():
    """As papers/002 and papers/003 print them; those of soft and hard attention are swapped in papers/002, Table 3."""
    heads = {name_of(file): " ".join(file.read_text().split("data:")[0].replace("#", " ").split()) for file in FILES}
    for name, scores in {
        "coco/sat_soft_xu2015": "70.7, 49.2, 34.4, 24.3, METEOR 23.90",
        "coco/sat_hard_xu2015": "71.8, 50.4, 35.7, 25.0, METEOR 23.04",
        "flickr8k/sat_soft_xu2015": "67, 44.8, 29.9, 19.5, METEOR 18.93",
        "flickr8k/sat_hard_xu2015": "67, 45.7, 31.4, 21.3, METEOR 20.30",
        "flickr30k/sat_soft_xu2015": "66.7, 43.4, 28.8, 19.1, METEOR 18.49",
        "flickr30k/sat_hard_xu2015": "66.9, 43.9, 29.6, 19.9, METEOR 18.46",
        "coco/nic_lstm_gu2018": "72.1, 54.8, 39.6, 28.5, METEOR 24.3, CIDEr 91.4",
        "coco/nic_lstm3_gu2018": "70.5, 53.1, 38.9, 28.3, METEOR 23.2, CIDEr 85.7",
        "coco/sat_soft_gu2018": "73.8, 57.2, 43.1, 33.0, METEOR 25.7, CIDEr 101.0",
        "coco/updown_grid_gu2018": "74.9, 58.6, 44.5, 33.3, METEOR 25.8, CIDEr 103.4",
        "coco/stack_independent_gu2018": "75.6, 59.6, 45.6, 34.6, METEOR 26.3, CIDEr 108.0",
        "coco/stack_gu2018": "76.2, 60.4, 46.4, 35.2, METEOR 26.5, CIDEr 109.1",
        "coco/stack_independent_coarse_to_fine_gu2018": "77.9, 61.6, 46.7, 35.0, METEOR 26.9, CIDEr 115.9",
        "coco/stack_coarse_to_fine_gu2018": "78.6, 62.5, 47.9, 36.1, METEOR 27.4, CIDEr 120.4",
        "coco/updown_anderson2018": "BLEU-1 77.2, BLEU-4 36.2, ROUGE-L 56.4, CIDEr 113.5",
    }.items():
        assert scores in heads[name], name
    unpenalised = [name for name in heads if name.endswith("_xu2015")]
    assert len(unpenalised) == 6 and all("no brevity penalty" in heads[name] for name in unpenalised)


@pytest.mark.shared
def test_the_papers_limits_on_the_words_of_flickr8k(shared_data: Path):
    """10,000 words (papers/003) are more than there are; at least twice occur about the 5,156 of papers/000."""
    captions = [tokenize(text) for record in read_dataset(shared_data / "flickr8k").records for text in record.captions]
    assert len(captions) == 40455
    sizes = {count: len(Vocabulary.build(captions, count, 10000)) - len(SPECIAL) for count in (1, 2, 5)}
    assert sizes == {1: 8909, 2: 5227, 5: 2994}
    assert sizes[2] == pytest.approx(5156, rel=0.02)


# ---- a recipe of COCO on real photos


@pytest.mark.slow
@pytest.mark.shared
def test_recipes_of_coco_train_on_real_photos(shared_data: Path, tmp_path: Path):
    """A whole run on coco-mini: store, two recipes that share it, evaluation on photos. Weights are random."""
    store = tmp_path / "store"
    for name in ("sat_soft_xu2015", "sat_hard_xu2015"):
        result = train(
            RECIPES / "coco" / f"{name}.yaml", tmp_path / name, quiet=True,
            overrides=[
                f"data.path={shared_data / 'coco-mini'}", f"data.features={store}", "data.limit=12", "encoder.seed=0",
                "encoder.weights=random", "training.epochs=1", "training.batch_size=6", "model.hidden_size=64",
                "training.trackers=[]", "training.log_every=1",
            ],
        )  # fmt: skip
        assert result.epochs == 1 and result.best is not None
        words = [line["words"] for line in log_of(result.folder) if "words" in line]
        assert len(words) == 2 and all(0 < value < 10 for value in words)
    assert len(FeatureStore(store)) == 24  # 12 of train, 12 of val, once
    photo = next((shared_data / "coco-mini" / "images").glob("*.jpg"))
    (captions,) = Captioner.from_pretrained(result.folder / "best", device="cpu").caption([photo])
    assert captions


def test_recipes_are_found_by_name_and_a_path_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    file = RECIPES / "folder" / "sat_soft.yaml"
    assert recipe_names() == sorted(name_of(path) for path in FILES)
    for given in ("folder/sat_soft", "folder/sat_soft.yaml", "recipes/folder/sat_soft.yaml", Path("folder/sat_soft")):
        assert find_recipe(given) == file
    (tmp_path / "folder" / "sat_soft").mkdir(parents=True)
    assert find_recipe("folder/sat_soft") == file
    mine = tmp_path / "folder" / "sat_soft.yaml"
    mine.write_text("data: {}")
    assert find_recipe("folder/sat_soft.yaml") == Path("folder/sat_soft.yaml")
    assert find_recipe(mine) == mine


@pytest.mark.parametrize(
    ("given", "suggestion"),
    [
        (
            "sat_soft",
            "no recipe of showtell has that name; the nearest are coco-mini/sat_soft, folder/sat_soft, scenes/",
        ),
        ("foldr/sat_soft", "no recipe of showtell has that name; the nearest are coco-mini/sat_soft, folder/sat_soft"),
        ("scenes/sat_sofd", "no recipe of showtell has that name; the nearest are scenes/sat_soft,"),
        ("recipes/scenes/stak.yaml", "no recipe of showtell has that name; the nearest are scenes/stack"),
        (
            "folder",
            "the recipes in folder are folder/sat_soft, folder/sat_soft_corrections, folder/sat_soft_pretrained.",
        ),
        (
            "qqq",
            "no recipe of showtell has that name; they are in coco, coco-mini, flickr30k, flickr8k, folder, scenes: "
            "showtell train scenes lists those of one folder.",
        ),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(given: str, suggestion: str):
    with pytest.raises(RecipeError) as caught:
        load_recipe(given)
    assert str(caught.value).startswith(f"There is no recipe {given}: it is not the path of a file, and {suggestion}")
