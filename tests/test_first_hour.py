"""What someone who knows torch, timm, transformers and datasets types first; and what is said where it cannot be."""

import copy
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from showtell import (
    PHOTOS,
    Captioner,
    DataError,
    DecodingConfig,
    Features,
    RecipeError,
    ScoreReport,
    ShowtellError,
    TrainingResult,
    UsageError,
    compare,
    create_model,
    evaluate,
    list_metrics,
    list_models,
    list_recipes,
    load_recipe,
    open_dataset,
    score,
    train,
)
from showtell.captions import Attention, Caption, Word
from showtell.evaluation import Evaluation
from showtell.models import MODELS


def test_a_dataset_has_splits_and_records(tiny_scenes: Path):
    dataset = open_dataset(tiny_scenes)
    test = dataset["test"]
    assert len(dataset) == sum(len(dataset[name]) for name in dataset.splits) == 60
    assert [record.image_id for record in dataset] == [record.image_id for record in dataset.records]
    assert {record.split for record in test} == {"test"} and "test" in dataset and "tset" not in dataset
    assert (test[0], test[:2][1], test[-1]) == (test.records[0], test.records[1], test.records[-1])
    assert list(dataset["val", "test"]) == [*dataset["val"], *test]
    counts = f"{len(test)} images, {sum(len(record.captions) for record in test)} captions; test {len(test)}"
    assert repr(test) == f"<CaptionDataset {tiny_scenes} (coco): {counts}>"
    with pytest.raises(DataError, match='has no split "tset": did you mean "test"'):
        dataset["tset"]


def test_evaluate_takes_a_path_a_dataset_or_records_on_top_of_the_captioners_settings(
    tiny_checkpoint: Path, tiny_scenes: Path, tmp_path: Path
):
    captioner, dataset = Captioner.from_pretrained(tiny_checkpoint), open_dataset(tiny_scenes)
    scored = partial(evaluate, captioner, metrics="bleu", num_beams=3)
    of_split = scored(dataset, "val")
    for same in (scored(tiny_scenes, split="val"), scored(dataset["val"]), scored(list(dataset["val"]))):
        assert (same.scores, same.captions) == (of_split.scores, of_split.captions)
    shutil.copytree(tiny_scenes, tmp_path / "other")
    parts = scored([tiny_scenes, tmp_path / "other"], "val").parts
    assert [part.scores for part in parts.values()] == [of_split.scores] * 2
    photos = [record.path for record in dataset["val"]]
    expected = [captions[0] for captions in captioner.caption(photos, num_beams=3)]
    assert list(of_split.captions.values()) == expected  # no_unknown and all else are the checkpoint's
    assert scored(dataset).captions.keys() == {record.image_id for record in dataset["test"]}
    assert evaluate(captioner, dataset["val"], metrics=["truth"]).scores["truth"] is not None  # it knows their scenes
    assert "truth" in evaluate(captioner, list(dataset["val"]), metrics=["truth"]).skipped
    table = compare({"three": of_split, "one": evaluate(captioner, dataset["val"], metrics="bleu", num_beams=1)})
    assert [row.number for row in table] == list(of_split.scores) and "three - one" in str(table)
    for call, sentence in {
        partial(evaluate, captioner, dataset, DecodingConfig(num_beams=3)): "evaluate(captioner, data, num_beams=5)",
        partial(evaluate, captioner, list(dataset), "test"): 'split="test" is for a dataset',
        partial(evaluate, captioner, dataset, num_beam=3): 'did you mean "num_beams"',
        partial(evaluate, captioner, dataset, metrics="bleu_4"): 'did you mean "bleu"',
        partial(compare, [of_split]): 'compare({"mine": report, "other": another})',
    }.items():
        with pytest.raises(UsageError, match=re.escape(sentence)):
            call()


def test_metrics_are_a_name_or_names():
    references = {"1": ["a dog runs"], "2": ["a cat"]}
    scored = partial(score, {"1": "a dog", "2": "a cat"}, references)
    assert scored(metrics="bleu,rouge_l").scores == scored(metrics=["rouge_l", "bleu"]).scores
    assert scored(metrics="bleu").scores.keys() == {f"bleu_{n}" for n in range(1, 5)}
    with pytest.raises(UsageError, match="No metric is named"):
        scored(metrics="")


def test_train_takes_overrides_as_a_dictionary_or_by_section_and_gives_what_it_trained(tiny_recipe, tmp_path: Path):
    before = copy.deepcopy(tiny_recipe)
    result = train(
        tiny_recipe, tmp_path / "run", overrides={"training.epochs": 1, "data.path": Path(tiny_recipe["data"]["path"])},
        training={"batch_size": 16}, model={"name": "updown", "attention_size": 8, "hidden_size": 8}, quiet=True,
    )  # fmt: skip
    assert tiny_recipe == before
    assert result.captioner.about.folder == tmp_path / "run" / "best" and result.captioner.about.name == "updown"
    assert result.scores["cider"] == result.best and "loss" in result.scores
    steps = [line for line in result.history if "loss" in line]
    assert result.epochs == 1 and [line["step"] for line in steps] == list(range(1, len(steps) + 1))
    assert result.captioner.caption(PHOTOS[0])[0].text is not None


def test_overrides_that_are_none_are_answered_with_what_to_write():
    for arguments, sections, sentence in (
        ((), {"epochs": 1}, "epochs=1 is no section of a recipe with values; write it like training={'epochs': 3}"),
        (({"training": {"epochs": 1}},), {}, '"training" is no override; write section.key=value'),
    ):
        with pytest.raises(RecipeError, match=re.escape(sentence)):
            load_recipe("scenes/sat_soft", *arguments, **sections)
    recipe = load_recipe("scenes/sat_soft", {"training.epochs": 1})
    assert recipe == load_recipe("scenes/sat_soft", ["training.epochs=1"]) == load_recipe(recipe)
    assert load_recipe(recipe, training={"epochs": 2}).training.epochs == 2


def test_models_recipes_and_metrics_are_listed_and_made_by_name():
    assert list_models() == sorted(MODELS) and list_models("*down") == ["updown"]
    assert "scenes/sat_soft" in list_recipes("scenes/*") and "bleu" in list_metrics()
    assert repr(MODELS) == f"<Registry showtell.models: {', '.join(MODELS)}>"
    features = Features(torch.randn(2, 5, 16), torch.ones(2, 5, dtype=torch.bool))
    decoder = create_model("sat", feature_size=16, vocabulary_size=50, hidden_size=8)
    assert decoder(features, torch.randint(50, (2, 7))).shape == (2, 7, 50)
    for name, settings, sentence in (
        ("satt", {}, 'There is no model "satt": did you mean "sat"?'),
        ("sat", {"hiden_size": 8}, 'sat has no setting "hiden_size": did you mean "hidden_size"?'),
        ("sat", {"hidden_size": 0}, "hidden_size: Input should be greater than or equal to 1."),
    ):
        with pytest.raises(UsageError, match=f"^{re.escape(sentence)}"):
            create_model(name, feature_size=16, vocabulary_size=50, **settings)


def test_precisions_and_devices_are_those_of_torch():
    captioner = Captioner.from_pretrained("small", torch.device("cpu"), dtype=torch.bfloat16)
    assert captioner.encoder.precision == "bf16" and captioner.device == torch.device("cpu")
    for options in ({"dtype": torch.float64}, {"dtype": "bfloat16"}, {"device": "gpu"}):
        with pytest.raises(ShowtellError, match=r"There is no (precision|device) "):
            Captioner.from_pretrained("small", **options)


CAPTION = Caption("a red dog", -1.25, True, (Word("a", -0.051), Word("red", -1.0), Word("dog", -0.1)))


def test_a_caption_is_its_text_and_a_run_its_result():
    result = TrainingResult(Path("runs/a"), 10, 1.4123, 8)
    assert repr(result) == "<TrainingResult runs/a: 10 epochs, best cider 1.412 at epoch 8>"
    assert str(CAPTION) == f"{CAPTION}" == "a red dog"
    assert repr([CAPTION]) == "[Caption(text='a red dog', logprob=-1.25, confidence=0.73)]"
    assert repr(replace(CAPTION, finished=False)).endswith("confidence=0.66, finished=False)")
    assert repr(Attention(torch.rand(3, 36), None)) == "Attention(3 words over 36 regions)"


def report() -> ScoreReport:
    references = {"1": ["a red dog", "the dog is red"], "2": ["a cat sleeps"]}
    return score({"1": "a red dog", "2": "a dog"}, references, metrics=["bleu", "rouge_l"])


def test_a_report_is_a_table():
    lines = str(report()).splitlines()
    assert lines[0] == "2 images"
    assert [line.split()[0] for line in lines[4:9]] == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L"]
    low, high = vars(report().intervals()["bleu_1"]).values()
    assert lines[4].split(maxsplit=2) == ["BLEU-1", f"{report().scores['bleu_1']:.4f}", f"[{low:.4f}, {high:.4f}]"]
    assert any(line.startswith("signature") for line in lines)
    numbers = ", ".join(f"{name} {value:.4f}" for name, value in report().scores.items())
    assert repr(report()) == f"<ScoreReport of 2 images: {numbers}>"
    nothing = score({"1": "a dog"}, {"1": ["a dog"]}, metrics=["truth"])
    assert repr(nothing) == "<ScoreReport of 1 images: no scores; skipped " + ", ".join(nothing.scores) + ">"
    assert repr(Evaluation(**vars(report()), captions={})) == f"<Evaluation of 2 images: {numbers}>"
