"""Every recipe is loaded, built and trained for a step; those of the papers are held against docs/notes."""

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
from showtell.checkpoint import NoRandomNumbers
from showtell.config import flat
from showtell.errors import RecipeError
from showtell.features import EncoderConfig, build_encoder
from showtell.models import MODELS, build_decoder
from showtell.objectives import OBJECTIVES, build_objective
from showtell.recipes import find_recipe, list_recipes, published_for, recipe_name
from showtell.training import load_recipe
from showtell.types import Batch, Features

RECIPES = showtell.recipes.FOLDER
SMALL = 16  # sizes of the models that take a step
DOCS = Path(__file__).resolve().parents[1] / "docs"
FILES = sorted(RECIPES.rglob("*.yaml"))
NAMES = {file: recipe_name(file) or "" for file in FILES}
NEEDED = (
    "data.path", "encoder.name", "model.name", "objective.name", "training.epochs", "training.batch_size",
    "training.learning_rate", "training.seed", "decoding.num_beams",
)  # fmt: skip


@cache
def content_of(file: Path) -> dict[str, Any]:
    """What a recipe has of its own, by section.key."""
    return flat(yaml.safe_load(file.read_text()))


def test_every_recipe_says_what_it_is_and_what_to_expect():
    for file in FILES:
        text, name = file.read_text(), NAMES[file]
        written = content_of(file).keys()
        has_decoding = any(key.startswith("decoding.") for key in written)
        left = (".name", ".name" if has_decoding else "decoding.num_beams")  # to a checkpoint
        needed = {key for key in NEEDED if not ("training.start_from" in written and key.endswith(left))}
        assert needed <= written, name
        head = [line for line in text.splitlines() if line.startswith("#")]
        assert any(f"showtell train {name}" in line for line in head), name
        assert any("Hardware:" in line for line in head), name
        origins = [[words in line for words in ("measured by us on", "published in")] for line in head]
        assert any(map(any, origins)) or any("not measured" in line for line in head), name
        assert not any(map(all, origins)), f"{name} mixes what was measured with what was published"
        assert max(map(len, text.splitlines())) <= 130, name


def test_every_recipe_can_be_built_and_trained(tiny_checkpoint: Path):
    """The encoder without its numbers, which is quick; decoder and objective for one step on random features."""
    for file in FILES:
        of_checkpoint = "model.name" not in content_of(file)
        recipe = load_recipe(file, [f"training.start_from={tiny_checkpoint}"] if of_checkpoint else [])
        sizes = {"feature_size": feature_size(recipe.encoder), "vocabulary_size": 50}
        with torch.device("meta"), NoRandomNumbers():
            build_decoder(recipe.model, **sizes)
            build_objective(recipe.objective, **sizes)
        model = {key: SMALL if key.endswith("_size") else value for key, value in recipe.model.model_dump().items()}
        likelihood, without_gradient = one_step(json.dumps(model), recipe.objective.model_dump_json())
        assert 2 < likelihood < 8, file  # log 50 is 3.9
        rewarded = OBJECTIVES[recipe.objective.name][1].optimises_reward and recipe.model.name == "stack"
        silent = (0,) if recipe.objective.name == "coarse_to_fine" else (0, 1)  # stages whose words are not rewarded
        unused = {f"outputs.{stage}.{part}" for stage in silent for part in ("weight", "bias") if rewarded}
        assert set(without_gradient) == unused, file


@cache
def feature_size(config: EncoderConfig) -> int:
    """Of an encoder without its numbers; many recipes share one."""
    with torch.device("meta"), NoRandomNumbers():
        return build_encoder(config, load_weights=False).feature_size


@cache
def one_step(model: str, objective: str) -> tuple[float, list[str]]:
    """The loss of the words on random features, and weights that got no gradient. Many recipes share a small model."""
    model_config, objective_config = (
        registry[settings["name"]][0].model_validate(settings)
        for registry, settings in ((MODELS, json.loads(model)), (OBJECTIVES, json.loads(objective)))
    )
    sizes = {"feature_size": SMALL, "vocabulary_size": 50}
    torch.manual_seed(0)
    decoder, objective_of = build_decoder(model_config, **sizes), build_objective(objective_config, **sizes)
    features = Features(torch.rand(2, 3, SMALL), torch.ones(2, 3, dtype=torch.bool))
    words = torch.tensor([[[1, 7, 9, 2]], [[1, 8, 2, 0]]])  # begin, words, end, padding
    batch = Batch(("a", "b"), None, words, torch.ones(2, 1, dtype=torch.bool), features)
    objective_of.prepare(dict(zip(batch.image_ids, words.tolist(), strict=True)), 4)
    with counter_rng.use(counter_rng.CounterRNG(0, 0, batch.image_ids)):
        objective_of(batch, features, decoder).total.backward()
        likelihood = objective_of.eval()(batch, features, decoder).parts["words"]
    return float(likelihood), [name for name, weight in decoder.named_parameters() if weight.grad is None]


# ---- the papers' settings: each has its source behind it, docs/notes/recipe_sources.md has the defaults


OF_PAPERS = [file for file in FILES if file.parent.name in ("coco", "flickr8k", "flickr30k")]
LIKE_OTHERS = ("nic_lstm", "updown", "stack", "stack_coarse_to_fine")  # flickr*: no paper's own


def test_every_setting_of_a_papers_recipe_has_a_source():
    for file in OF_PAPERS:
        if file.stem not in (*LIKE_OTHERS, "updown_self_critical"):
            for key, rest in re.findall(r"^ +(\w+): (.+)$", file.read_text(), flags=re.MULTILINE):
                has_source = "  # " in rest or key in ("path", "features", "seed", "start_from")
                assert has_source, f"{NAMES[file]}: {key} has no source"


def test_the_defaults_that_papers_recipes_rely_on_are_those_that_are_stated():
    """A later row of the table of defaults holds against an earlier one, which is about more recipes."""
    stated: dict[tuple[Path, str], Any] = {}
    row = re.compile(r"^\| `([^`]+/[^`]+)` \| `([^`]+)` \| (.+?) \| (.*) \|$", re.MULTILINE)
    for patterns, key, value, source in row.findall((DOCS / "notes" / "recipe_sources.md").read_text()):
        about = [file for file in OF_PAPERS if any(fnmatch(NAMES[file], one) for one in patterns.split())]
        new = [(file, key) for file in about if key not in content_of(file)]
        assert source and new, f"no recipe has {key} = {value} by default"
        stated |= dict.fromkeys(new, yaml.safe_load(value))
    for file in OF_PAPERS:
        content = flat(load_recipe(file).model_dump(mode="json"))
        for (of, key), value in stated.items():
            if of == file and key in content:
                assert content[key] == value, f"{NAMES[file]} has another {key} than docs/notes/recipe_sources.md"


def test_each_set_up_of_a_paper_has_a_recipe():
    part = (DOCS / "recipes.md").read_text().partition("## One recipe for each set-up of a paper")[2]
    rows = re.findall(r"^\| ([A-Z][^|]+) \| (.+?) \| (.+?) \| (.+?) \|$", part.partition("\n## ")[0], re.MULTILINE)
    named = [name for *_, cell in rows for name in re.findall(r"`([^`]+)`", cell)]
    assert len(rows) > 15 and set(named) <= set(list_recipes())
    ours = {f"{data}/{name}" for data in ("flickr8k", "flickr30k") for name in (*LIKE_OTHERS, "updown_self_critical")}
    assert set(named) | ours == {NAMES[file] for file in OF_PAPERS}
    for paper, *_, cell in rows:
        for name in re.findall(r"`([^`]+)`", cell):
            text = (RECIPES / f"{name}.yaml").read_text()
            assert paper.split()[0] in text or cell.count("`") == 2, f"{name} does not name {paper}"


# ---- published scores: docs/published.md, the papers and the heads of the recipes


FILES_OF_PAPERS = {"El Baz 2020": "001", "Gu et al. 2018": "002", "Xu et al. 2015": "003"}  # in the shared folder


def published() -> list[tuple[str, list[str], str]]:
    """(paper, its numbers in the order of the columns, recipe or "") of the tables of docs/published.md."""
    rows: list[tuple[str, list[str], str]] = []
    for part in re.split(r"^## ", (DOCS / "published.md").read_text(), flags=re.MULTILINE)[1:]:
        paper = [name for name in FILES_OF_PAPERS if part.startswith(name)]
        for line in re.findall(r"^\| .*\d.* \|$", part, flags=re.MULTILINE):
            cells = [re.sub(r" \(\d\)$", "", cell.strip()) for cell in line.strip("|").split("|")]
            numbers = [cell for cell in cells if re.fullmatch(r"\d+(\.\d+)?", cell)]
            if numbers:
                rows.append((paper[0], numbers, cells[-1].strip("`") if "/" in cells[-1] else ""))
    return rows


@pytest.mark.shared
def test_published_scores_are_those_that_the_papers_print(shared_data: Path):
    rows = published()
    assert len(rows) == 15 + 6 + 6 + 12 + 6 + 3
    for paper, numbers, _ in rows:
        (file,) = (shared_data.parent / "papers").glob(f"{FILES_OF_PAPERS[paper]}_*.txt")
        text = re.sub(r"</?b>|<sup>.*?</sup>|[—\-]", " ", file.read_text())
        assert " ".join(numbers) in " ".join(text.split()), f"{paper} does not print {numbers} in a row"


def test_the_published_scores_of_the_heads_are_those_of_the_page():
    heads = {NAMES[file]: " ".join(file.read_text().split("data:")[0].replace("#", " ").split()) for file in FILES}
    seen = set()
    for paper, numbers, recipe in published():
        if recipe and recipe not in seen:  # a row of a later table repeats the first one's, with more columns
            seen.add(recipe)
            assert paper in heads[recipe]
            of_report = published_for(recipe)
            assert of_report and of_report.source.startswith(paper), recipe
            assert list(of_report.scores.values()) == [float(number) for number in numbers], recipe
            missing = [number for number in numbers if not re.search(rf"(?<![\d.]){number}(?![\d.]*\d)", heads[recipe])]
            assert not missing, f"the head of {recipe} lacks {missing}"
    ours = {name for name in heads if re.fullmatch(r"coco/\w+_(xu|gu)2018|\w+/sat_\w+_xu2015", name)}
    assert ours <= seen
    unpenalised = [name for name in heads if name.endswith("_xu2015")]
    assert len(unpenalised) == 6 and all("no brevity penalty" in heads[name] for name in unpenalised)


def test_recipes_are_found_by_name_and_a_path_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    file = RECIPES / "folder" / "sat_soft.yaml"
    assert list_recipes() == sorted(NAMES[path] for path in FILES)
    for given in ("folder/sat_soft", "folder/sat_soft.yaml", "recipes/folder/sat_soft.yaml", Path("folder/sat_soft")):
        assert find_recipe(given) == file
    (tmp_path / "folder" / "sat_soft").mkdir(parents=True)
    assert find_recipe("folder/sat_soft") == file
    mine = tmp_path / "folder" / "sat_soft.yaml"
    mine.write_text("data: {}")
    assert find_recipe("folder/sat_soft.yaml") == Path("folder/sat_soft.yaml")
    assert find_recipe(mine) == mine


def test_a_wrong_name_is_answered_with_the_nearest():
    for given, suggestion in (
        ("sat_soft", 'did you mean "scenes/sat_soft"? Known: coco-mini/sat_soft, folder/sat_soft, scenes/sat_soft.'),
        ("foldr/sat_soft", 'did you mean "folder/sat_soft"? Known: coco-mini/sat_soft, folder/sat_soft, '),
        ("recipes/scenes/stak.yaml", 'did you mean "scenes/stack"? Known: scenes/att2in, '),
        ("folder", "Known: folder/sat_soft, folder/sat_soft_pretrained."),
        ("qqq", "Known: adapt/, coco-mini/, coco/, flickr30k/, flickr8k/, folder/, scenes/."),
    ):
        reason = "it is not the path of a file, and no recipe of showtell has that name"
        with pytest.raises(RecipeError, match=f"^{re.escape(f'There is no recipe {given}: {reason}; {suggestion}')}"):
            load_recipe(given)
