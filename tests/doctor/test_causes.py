from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from showtell.captioners import Captioner, EncoderDecoderCaptioner
from showtell.captions import Caption
from showtell.datasets import CaptionDataset, read_dataset
from showtell.doctor import Diagnosis, diagnose_checkpoint, diagnose_scores, split_to_score
from showtell.errors import DataError
from showtell.training import make_recipe


@pytest.fixture
def captioner(tiny_checkpoint: Path) -> Captioner:
    return Captioner.from_pretrained(tiny_checkpoint, device="cpu")


@pytest.fixture
def scenes(tiny_scenes: Path) -> CaptionDataset:
    return read_dataset(tiny_scenes)


def sentences(diagnosis: Diagnosis) -> dict[str, str]:
    return {cause.name: cause.sentence for cause in diagnosis.causes}


# --- the checkpoint alone ---


def changed(tiny_checkpoint: Path, folder: Path, **changes: Any) -> Diagnosis:
    """The diagnosis of the checkpoint with other values in its settings: part={key: value}."""
    shutil.copytree(tiny_checkpoint, folder)
    settings = json.loads((folder / "config.json").read_text())
    for part, values in changes.items():
        settings[part].update(values)
    (folder / "config.json").write_text(json.dumps(settings))
    return diagnose_checkpoint(Captioner.from_pretrained(folder, device="cpu"))


def test_nothing_is_wrong_with_a_fresh_checkpoint(tiny_checkpoint: Path, captioner: Captioner) -> None:
    diagnosis = diagnose_checkpoint(captioner)
    assert diagnosis.causes == []
    assert diagnosis.facts["encoder"] == "small_cnn" and diagnosis.facts["about"] == {"data": "tiny scenes"}


def test_another_tokenizer_is_named(tiny_checkpoint: Path, tmp_path: Path) -> None:
    diagnosis = changed(tiny_checkpoint, tmp_path / "c", vocabulary={"tokenizer": "ptb-0"})
    assert sentences(diagnosis)["tokenizer"].startswith(
        "The vocabulary was made with the tokenizer ptb-0, and this showtell has ptb-1: words are split differently"
    )


def test_another_preprocessing_is_named_value_by_value(tiny_checkpoint: Path, tmp_path: Path) -> None:
    diagnosis = changed(tiny_checkpoint, tmp_path / "c", preprocessing={"interpolation": "bicubic", "image_size": 64})
    assert list(sentences(diagnosis)) == ["preprocessing"]
    assert "image_size 64 then and 48 now; interpolation bicubic then and bilinear now;" in diagnosis.causes[0].sentence


def test_pixels_of_another_scale_are_named(tiny_checkpoint: Path, captioner: Captioner) -> None:
    preprocessing = captioner.encoder.preprocessing
    captioner.encoder.preprocessing = preprocessing.model_copy(update={"mean": (123.7, 116.3, 103.5)})
    causes = sentences(diagnose_checkpoint(captioner))
    assert "should be for pixels between 0 and 1: divide them by 255" in causes["pixel_scale"]


def test_few_training_photos_are_named_unless_it_started_from_a_checkpoint(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    few = changed(tiny_checkpoint, tmp_path / "few", about={"train_images": 107})
    assert sentences(few)["few_training_photos"].startswith(
        "The checkpoint learned from 107 photos, which are too few to learn from scratch ("
    )
    assert sentences(changed(tiny_checkpoint, tmp_path / "many", about={"train_images": 5000})) == {}
    started = {"train_images": 107, "start_from": "runs/mine/best"}
    assert sentences(changed(tiny_checkpoint, tmp_path / "started", about=started)) == {}


def test_a_run_that_was_best_at_once_is_named(
    tiny_checkpoint: Path, tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for scores, is_named in (([3, 1, 1, 1], True), ([3, 1, 1], False), ([1, 3, 1, 1], False)):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(tiny_checkpoint, run / "best")
        make_recipe(tiny_recipe).save(run / "recipe.yaml")
        lines = [
            {"step": 7 * epoch, "epoch": epoch, "validation": {"cider": score}}
            for epoch, score in enumerate(scores, start=1)
        ]
        (run / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        causes = sentences(diagnose_checkpoint(Captioner.from_pretrained(run / "best", device="cpu")))
        assert list(causes) == (["best_is_first"] if is_named else [])
        if is_named:
            assert causes["best_is_first"].startswith(
                "The best checkpoint is that of epoch 1, after 7 steps, and none of the 3 validations behind it was "
            )
    (run / "log.jsonl").write_text("7\n")
    causes = sentences(diagnose_checkpoint(Captioner.from_pretrained(run / "best", device="cpu")))
    assert list(causes) == ["damaged_run"]


def test_greedy_and_last_are_named(tiny_checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_checkpoint, tmp_path / "run" / "best")
    diagnosis = changed(tiny_checkpoint, tmp_path / "run" / "last", decoding={"num_beams": 1})
    assert list(sentences(diagnosis)) == ["greedy", "last"]
    assert f"{tmp_path / 'run' / 'best'} is the one with the highest" in sentences(diagnosis)["last"]


# --- with a dataset ---


class Says(EncoderDecoderCaptioner):
    """A captioner with the words of another that says what it is told, a caption for each image in turn."""

    def __init__(self, captioner: Captioner, *texts: str, finished: bool = True) -> None:
        parts = {"encoder": captioner.encoder, "decoder": captioner.decoder, "vocabulary": captioner.vocabulary}
        super().__init__(**parts, decoding=captioner.decoding, origin=captioner.origin)
        self._texts, self._finished = texts, finished

    def caption_photos(self, paths: list[Path], first_alone: bool = True) -> Any:
        for number, path in enumerate(paths):
            yield path, [Caption(self._texts[number % len(self._texts)], 0.0, self._finished, ())]


def scored(captioner: Any, dataset: CaptionDataset, split: str = "test", **options: Any) -> Diagnosis:
    return diagnose_scores(captioner, dataset, split, **options)


def test_a_real_captioner_is_sampled_and_its_numbers_told(captioner: Captioner, scenes: CaptionDataset) -> None:
    done: list[int] = []
    diagnosis = scored(captioner, scenes, "train", sample=8, progress=done.append)
    assert sum(done) == diagnosis.facts["captioned"] == 8
    assert {"train_split", "few_images", "dataset"} <= set(sentences(diagnosis))
    assert sentences(diagnosis)["dataset"].startswith("The checkpoint writes at most 8 words, and ")
    assert diagnosis.facts["unknown_words"] == 0 and 0 <= diagnosis.facts["rates"]["bad_endings"] <= 1


def test_good_captions_raise_nothing_of_their_own(captioner: Captioner, scenes: CaptionDataset) -> None:
    references = [record.captions[0] for record in scenes.split("train")]
    causes = sentences(scored(Says(captioner, *references), scenes, "train"))
    assert set(causes) == {"train_split", "few_images", "dataset"}  # dataset: longer than 8 words


def test_photos_that_the_checkpoint_did_not_learn_from(captioner: Captioner, scenes: CaptionDataset) -> None:
    own = scenes.splits["train"]
    for about, other in (
        ({"data": "elsewhere", "train_images": own + 1}, True),
        ({"data": "elsewhere", "train_images": own}, False),  # the same photos in another folder, as far as one can see
        ({"data": str(scenes.root), "train_images": own + 1}, False),  # of the same dataset, a part of it
    ):
        captioner.origin = about
        causes = sentences(scored(captioner, scenes, sample=1))
        assert ("other_photos" in causes) is other
        if other:
            assert causes["other_photos"].startswith(
                f"The checkpoint learned from {own + 1} photos of elsewhere, and this is {scenes.root} with {own} of"
            )


@pytest.mark.parametrize(
    ("texts", "finished", "name", "sentence"),
    [
        (
            ["a red circle"],
            True,
            "degenerate",
            'images have the same caption ("a red circle"): the model does not look',
        ),
        (["a red circle above a", "a circle"], True, "bad_endings", '50% of the captions end in a word like "a" or'),
        (["a red red circle", "a circle"], True, "repeats", "50% of the captions repeat words"),
        (["a circle", "a <unknown>"], True, "says_unknown", "25.0% of the generated words are the unknown token"),
        (["a circle", "a square"], True, "short", "The captions have 2.0 words and the references "),
        (["a circle", "a square"], False, "cut_off", "100% of the captions are cut off after 8 words"),
    ],
)
def test_degenerate_captions_are_named(
    captioner: Captioner, scenes: CaptionDataset, texts: list[str], finished: bool, name: str, sentence: str
) -> None:
    causes = sentences(scored(Says(captioner, *texts, finished=finished), scenes, "train"))
    assert sentence in causes[name]


def test_few_references_are_named(captioner: Captioner, scenes: CaptionDataset) -> None:
    fewer = replace(scenes, records=tuple(replace(r, captions=r.captions[:2], groundings=None) for r in scenes.records))
    causes = sentences(scored(Says(captioner, "a circle"), fewer, "val"))
    assert causes["few_references"].startswith("val has 2.0 captions per image and published scores are from 5")


def test_what_data_check_finds_is_named_too(captioner: Captioner, scenes: CaptionDataset) -> None:
    foreign = tuple(replace(r, captions=("ein Hund", "eine Katze")) for r in scenes.records)
    faulty = replace(scenes, records=foreign, problems=("An image is in two splits.",))
    diagnosis = scored(Says(captioner, "a circle"), faulty)
    assert (
        diagnosis.causes[0].name == "dataset_problem" and diagnosis.causes[0].sentence == "An image is in two splits."
    )
    assert "The checkpoint does not know 100.0% (train)" in sentences(diagnosis)["dataset"]
    assert diagnosis.facts["unknown_words"] == 1.0


def test_an_image_that_cannot_be_read_does_not_end_it(
    captioner: Captioner, scenes: CaptionDataset, tmp_path: Path
) -> None:
    (tmp_path / "bad.png").write_text("no image")
    first, *others = scenes.split("test")
    dataset = replace(scenes, records=(replace(first, path=tmp_path / "bad.png"), *others))
    diagnosis = scored(captioner, dataset)
    assert sentences(diagnosis)["unreadable"].startswith(f"1 of {len(others) + 1} images cannot be captioned.")
    assert diagnosis.facts["captioned"] == len(others)


def test_captions_that_are_all_empty_are_a_problem(
    captioner: Captioner, scenes: CaptionDataset, tmp_path: Path
) -> None:
    rows = [f"{record.path.name}, ,{record.split}" for record in scenes.records]
    for record in scenes.records:
        (tmp_path / record.path.name).symlink_to(record.path.resolve())
    (tmp_path / "captions.csv").write_text("\n".join(["image,caption,split", *rows]))
    diagnosis = diagnose_scores(captioner, read_dataset(tmp_path), "test", sample=2)
    assert sentences(diagnosis)["dataset_problem"].startswith(f"{len(scenes.records)} images have no caption: ")
    facts = diagnosis.facts
    assert (facts["reference_length"], facts["unknown_words"], facts["captioned"]) == (0.0, 0.0, 2)


def test_the_split_that_is_scored(scenes: CaptionDataset) -> None:
    def only(*splits: str) -> CaptionDataset:
        return replace(scenes, records=tuple(record for record in scenes.records if record.split in splits))

    assert split_to_score(scenes) == "test"
    assert split_to_score(only("train", "val")) == "val"
    assert split_to_score(only("train")) == "train"
    with pytest.raises(DataError, match="holds no image with captions, so there is nothing to diagnose"):
        split_to_score(only())


@pytest.mark.parametrize("captions", [(), ("",), ("", " ")])
def test_captions_without_words_are_a_cause_and_no_crash(
    tiny_checkpoint: Path, tiny_scenes: Path, captions: tuple[str, ...]
) -> None:
    dataset = read_dataset(tiny_scenes)
    records = tuple(replace(record, captions=captions, groundings=None) for record in dataset.records)
    empty = replace(dataset, records=records)
    diagnosis = diagnose_scores(Captioner.from_pretrained(tiny_checkpoint), empty, "test", sample=2)
    assert "The captions of test have no words, so nothing can be scored" in " ".join(
        cause.sentence for cause in diagnosis.causes if cause.name == "no_references"
    )
    assert diagnosis.facts["reference_length"] == 0
