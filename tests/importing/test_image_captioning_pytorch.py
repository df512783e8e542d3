"""Files of ImageCaptioning.pytorch as they circulate: old, wrapped, halved, paired wrongly, damaged."""

from __future__ import annotations

import math
import pickle
import struct
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from published_parity import LUO, WORDS, vocabulary_of
from showtell.captioners import Captioner
from showtell.errors import CheckpointError, DataError, ShowtellError, UsageError, WeightsError
from showtell.features.small_cnn import SmallCnn, SmallCnnConfig
from showtell.importing import Imported, import_checkpoint
from showtell.importing.image_captioning_pytorch import POOLED, REGIONS
from showtell.recipes import recipe_names
from showtell.text.vocabulary import SPECIAL, Vocabulary
from showtell.training import load_recipe
from showtell.types import Features
from tests.importing.makers import luo_infos, luo_tensors, write_luo

UPDOWN, ATT2IN2, TRANSFORMER, NEWFC = "updown, use_bn 2", "att2in2, use_bn 1", "transformer, use_bn 1", "newfc"
PLAIN = "updown, use_bn 0"
UNUSED = {  # tensors of the base class that some versions of a model saved and none reads
    UPDOWN: (), ATT2IN2: ("fc_embed.0.weight",), NEWFC: ("att_embed.0.weight", "ctx2att.weight"),
    TRANSFORMER: ("fc_embed.0.weight", "embed.0.weight", "logit.weight"),
}  # fmt: skip


def decoders_are_equal(one: Imported, other: Imported) -> bool:
    first, second = one.checkpoint.decoder.state_dict(), other.checkpoint.decoder.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def value_of(imported: Imported, name: str) -> tuple[object, str]:
    (option,) = (one for one in imported.report.options if one.name == name)
    return option.value, option.origin


# --- what circulates ---


def as_python_2(value: Any) -> bytes:
    """The opcodes of a value as Python 2 pickles it: text in bytes, an old Namespace."""
    if isinstance(value, Namespace):
        return b"cargparse\nNamespace\n)\x81" + as_python_2(vars(value)) + b"b"
    if isinstance(value, dict):
        return b"}(" + b"".join(as_python_2(key) + as_python_2(one) for key, one in value.items()) + b"u"
    if isinstance(value, str):
        content = value.encode("latin-1")
        return b"U" + bytes([len(content)]) + content
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    return b"J" + struct.pack("<i", value)


@pytest.mark.parametrize("case", [UPDOWN, ATT2IN2, TRANSFORMER, NEWFC])
def test_files_of_another_form_give_the_same(tmp_path: Path, case: str):
    plain = import_checkpoint(write_luo(tmp_path / "plain", case))
    tensors, infos = luo_tensors(case), luo_infos(case)
    without = {name: one for name, one in tensors.items() if not name.endswith(("num_batches_tracked", ".pe"))}
    extra = tensors | dict.fromkeys(UNUSED[case], torch.zeros(6, 10))
    numbered = {**infos, "vocab": {int(key): word for key, word in infos["vocab"].items()}, "opt": vars(infos["opt"])}
    for name, own_tensors, own_infos, save in (
        ("data parallel", {f"module.{name}": one for name, one in tensors.items()}, infos, {}),
        ("old torch", tensors, infos, {"_use_new_zipfile_serialization": False}),
        ("no counters and positions", without, infos, {}),
        ("nested", {"state_dict": tensors, "epoch": 3}, infos, {}),
        ("modules of the base class", extra, infos, {}),
        (
            "double",
            {name: one.double() if one.is_floating_point() else one for name, one in tensors.items()},
            infos,
            {},
        ),
        ("numbers as ids, options in a dict", tensors, numbered, {}),
    ):
        other = import_checkpoint(write_luo(tmp_path / name, case, own_tensors, own_infos, **save))
        kept, made = other.checkpoint.decoder.state_dict(), plain.checkpoint.decoder.state_dict()
        assert kept.keys() == made.keys()
        counters = {key for key in made if key.endswith("num_batches_tracked")}
        assert all(torch.equal(made[key], kept[key]) for key in made.keys() - counters), name
        assert other.checkpoint.decoder.config == plain.checkpoint.decoder.config, name
        assert other.checkpoint.vocabulary.words == plain.checkpoint.vocabulary.words, name
    folder = tmp_path / "python 2"
    write_luo(folder, case)
    (folder / "infos_run-best.pkl").write_bytes(b"\x80\x02" + as_python_2(infos) + b".")
    assert decoders_are_equal(plain, import_checkpoint(folder))


def test_half_precision_is_read_as_the_numbers_that_it_holds(tmp_path: Path):
    halves = {name: one.half() if one.is_floating_point() else one for name, one in luo_tensors(UPDOWN).items()}
    singles = {name: one.float() if one.is_floating_point() else one for name, one in halves.items()}
    one, other = (write_luo(tmp_path / name, UPDOWN, kept) for name, kept in (("one", halves), ("other", singles)))
    assert decoders_are_equal(import_checkpoint(one), import_checkpoint(other))


def test_options_that_old_files_lack_have_the_defaults_of_the_project(tmp_path: Path):
    tensors = luo_tensors("transformer, sizes of recurrent models")
    infos = {**luo_infos(PLAIN), "opt": Namespace(caption_model="transformer", num_layers=2)}
    imported = import_checkpoint(write_luo(tmp_path, PLAIN, tensors, infos))
    config = imported.checkpoint.decoder.config
    assert (config.heads, config.dropout, config.input_dropout, config.box_features) == (8, 0.1, 0.5, "none")
    assert value_of(imported, "num_att_heads") == (8, "the default of the project")
    assert imported.checkpoint.decoding.max_length == 20
    assert imported.report.contradictions == ()


def test_a_length_of_0_is_that_of_the_training_captions(tmp_path: Path):
    imported = import_checkpoint(write_luo(tmp_path, "newfc, equal sizes, as old options name it"))
    assert imported.checkpoint.decoding.max_length == 5


@pytest.mark.parametrize("case", [UPDOWN, TRANSFORMER])
def test_the_best_of_two_runs_is_taken_from_a_folder(tmp_path: Path, case: str):
    best = import_checkpoint(write_luo(tmp_path, case))
    torch.save({name: one * 0 for name, one in luo_tensors(case).items()}, tmp_path / "model.pth")
    torch.save({"state": {}}, tmp_path / "optimizer-best.pth")
    (tmp_path / "infos_run.pkl").write_bytes(pickle.dumps({"opt": {}, "vocab": {}}))
    assert decoders_are_equal(best, import_checkpoint(tmp_path))


def test_infos_are_those_whose_name_has_most_in_common_with_the_weights(tmp_path: Path):
    for case, name in ((UPDOWN, "updown"), (NEWFC, "newfc"), (TRANSFORMER, "transformer-best")):
        folder = write_luo(tmp_path / name, case).parent
        (folder / "model-best.pth").rename(tmp_path / f"model_{name}.pth")
        (folder / "infos_run-best.pkl").rename(tmp_path / f"infos_{name}.pkl")
    for name in ("updown", "newfc", "transformer-best"):
        report = import_checkpoint(tmp_path / f"model_{name}.pth").report
        assert report.files["infos"] == str(tmp_path / f"infos_{name}.pkl")
    assert import_checkpoint(tmp_path).report.model == "transformer"  # the only one called best


# --- words ---


def test_marks_are_four_ids_here(tmp_path: Path):
    imported = import_checkpoint(write_luo(tmp_path, PLAIN))
    vocabulary = imported.checkpoint.vocabulary
    assert vocabulary.words == (*SPECIAL, *(word for word in WORDS if word != "UNK"))
    tensors, decoder = luo_tensors(PLAIN), imported.checkpoint.decoder.state_dict()
    table, bias = decoder["embedding.weight"], decoder["output.bias"]
    for mark in (Vocabulary.pad, Vocabulary.begin, Vocabulary.end):
        assert torch.equal(table[mark], tensors["embed.0.weight"][0])
    assert torch.equal(table[Vocabulary.unknown], tensors["embed.0.weight"][WORDS.index("UNK") + 1])
    assert bias[[Vocabulary.pad, Vocabulary.begin]].tolist() == [-1e4, -1e4]
    assert bias[Vocabulary.end] == tensors["logit.bias"][0]
    assert not decoder["output.weight"][[Vocabulary.pad, Vocabulary.begin]].any()


def test_the_probability_of_words_that_the_source_has_not_is_0(tmp_path: Path):
    infos = luo_infos(PLAIN)
    infos["vocab"] = {key: "zebra" if word == "UNK" else word for key, word in infos["vocab"].items()}
    imported = import_checkpoint(write_luo(tmp_path / "source", PLAIN, infos=infos))
    assert "and one for unknown words" not in imported.report.words
    imported.save(tmp_path / "out")
    captioner: Any = Captioner.from_pretrained(tmp_path / "out")
    features = Features(torch.rand(1, 3, 10), torch.ones(1, 3, dtype=torch.bool))
    ((text,),) = captioner.logprobs(features, [["a unicorn"]])
    assert text.words[1].word == "unicorn" and text.words[1].logprob < -5000
    known = sorted({*WORDS, "zebra"} - {"UNK"})
    (texts,) = captioner.logprobs(features, [[*known, ""]])
    first = [text.words[0].logprob if text.words else text.end for text in texts]
    assert sum(map(math.exp, first)) == pytest.approx(1, abs=1e-5)


def test_words_that_no_text_has_are_counted(tmp_path: Path):
    infos = luo_infos(PLAIN)
    infos["vocab"] = {**infos["vocab"], "3": "Dog", "4": "can't"}
    imported = import_checkpoint(write_luo(tmp_path, PLAIN, infos=infos))
    assert "2 of them are words that the tokenizer never makes of a text (Dog, can't)" in imported.report.words


# --- what contradicts, is missing or is not supported ---


def test_the_tensors_decide_and_contradictions_are_named(tmp_path: Path):
    infos = luo_infos(PLAIN, caption_model="att2in2", rnn_size=512, use_bn=2, fc_feat_size="2048")
    imported = import_checkpoint(write_luo(tmp_path, PLAIN, infos=infos))
    assert imported.checkpoint.decoder.config.name == "updown"
    assert imported.checkpoint.decoder.config.hidden_size == 6
    file = tmp_path / "infos_run-best.pkl"
    assert imported.report.contradictions == (
        f'{file} has caption_model "att2in2", and the tensors are those of updown',
        f"{file} has use_bn 2, and by att_embed it is 0",
        f"{file} has rnn_size 512, and by core.att_lstm.weight_hh it is 6",
        f"{file} has fc_feat_size '2048', and by fc_embed it is 10",
    )
    warning = imported.report.warning()
    assert warning is not None and "nothing but the options says " in warning and "norm_att_feat=" in warning
    assert "rnn_size=" not in warning.partition("nothing but")[2]
    assert value_of(imported, "rnn_size") == (6, "core.att_lstm.weight_hh")


def without(case: str, *names: str) -> dict[str, torch.Tensor]:
    return {name: one for name, one in luo_tensors(case).items() if name not in names}


def changed(case: str, **changes: torch.Tensor) -> dict[str, torch.Tensor]:
    return {**luo_tensors(case), **{name.replace("__", "."): one for name, one in changes.items()}}


def infos_of(vocabulary: Mapping[str, object] | object = None, case: str = PLAIN, **options: Any) -> dict[str, Any]:
    infos = luo_infos(case, **options)
    return infos if vocabulary is None else {**infos, "vocab": vocabulary}


WORDS_OF = vocabulary_of(LUO[PLAIN])


C, D, W = CheckpointError, DataError, WeightsError


# tensors and infos in place of the whole ones, and what is said
REFUSED: list[tuple[Any, Any, type[ShowtellError], str]] = [
    (without(PLAIN, "core.lang_lstm.bias_hh"), None, C, "contradict each other: Missing key"),
    (without(PLAIN, "ctx2att.weight"), None, C, "There is no tensor ctx2att.weight in"),
    (changed(PLAIN, ctx2att__weight=torch.ones(5, 9)), None, C, "contradict each other: size mismatch"),
    (changed(PLAIN, ctx2att__weight=torch.ones(5)), None, C, "shape (5,); it should have 2 dimensions"),
    (changed(PLAIN, logit__bias=torch.ones(19).int()), None, C, "holds int32 instead of floating point"),
    (changed(PLAIN, logit__bias=torch.full((19,), torch.nan)), None, C, "contains NaN or infinity"),
    (changed(PLAIN, core__more=torch.ones(3)), None, C, "has 1 tensors that this model does not have"),
    (changed(PLAIN, fc_embed__0__weight=torch.ones(6, 8)), None, C, "trained on two kinds of features"),
    (changed(PLAIN, logit__weight=torch.ones(7, 6)), None, C, "is for 19 words and its output layer"),
    (changed(PLAIN, core__att2ctx__0__weight=torch.ones(3)), None, C, "does not have (core.att2ctx"),
    ({"logit.weight": torch.ones(3, 2), "refiner.a": torch.ones(1)}, None, C, "is of no model that is imported (it"),
    ({"core.a2h.weight": torch.ones(3, 2), "logit.weight": torch.ones(1)}, None, C, "is of no model that is imported"),
    ({"logit.0.weight": torch.ones(3), "logit.3.weight": torch.ones(3), "core.a2c.weight": torch.ones(1)}, None,
     C, "There is no tensor"),
    ({"decoder.word_emb.weight": torch.ones(3, 2)}, None, C, "(it has decoder.word_emb.weight); these are newfc, fc"),
    ({"features.0.weight": torch.ones(3, 2)}, None, C, "is of no model that is imported"),
    ({}, None, W, "holds no weights by their names"),
    (None, {"vocab": WORDS_OF}, D, "is no infos file of ImageCaptioning.pytorch"),
    (None, infos_of({}), D, "The vocabulary (vocab) in"),
    (None, infos_of({**WORDS_OF, "19": "zebra"}), D, "there are words of id 19. The two files do not belong"),
    (None, infos_of({key: word for key, word in WORDS_OF.items() if key != "7"}), D, "no word has id 7. The"),
    (None, infos_of({**WORDS_OF, "2": "a"}), D, 'has the word "a" twice, with ids 1 and 2.'),
    (None, infos_of({**WORDS_OF, "2": 5}), D, "it has an entry that is none"),
    (None, infos_of({**WORDS_OF, "2": "<end>"}), D, 'is "<end>", which marks something else here.'),
    (None, infos_of({**WORDS_OF, "2": "a\nb"}), D, "has a control character at character 2"),
    (None, infos_of(bos_idx=40), D, "The option bos_idx in"),
    (None, infos_of(drop_prob_lm="half"), D, "is 'half'; it should be a number"),
    (None, infos_of(max_length=10**12), D, "is 1000000000000; it should be a number"),
    (None, infos_of(use_box=2), D, "a whole number from 0 to 1."),
    (luo_tensors(TRANSFORMER), infos_of(num_att_heads=3), D, "num_att_heads 3, which does not divide the 8"),
    (None, {**luo_infos(PLAIN), "opt": 3}, D, "should be a Namespace or a dict, not 3."),
]  # fmt: skip


def test_what_cannot_be_imported_is_said_and_nothing_is_written(tmp_path: Path):
    for tensors, infos, error, sentence in REFUSED:
        file = write_luo(tmp_path / "source", PLAIN, tensors, infos)
        with pytest.raises(error) as raised:
            import_checkpoint(file).save(tmp_path / "out")
        assert sentence in str(raised.value)
        assert "\n" not in str(raised.value) and str(raised.value).endswith(".")
        assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_files_that_are_missing_or_mistaken_for_each_other(tmp_path: Path):
    weights = write_luo(tmp_path / "source", PLAIN)
    infos = weights.with_name("infos_run-best.pkl")
    with pytest.raises(CheckpointError, match="holds options and words; it is for --infos"):
        import_checkpoint(infos)
    with pytest.raises(DataError, match=r"is no infos file of ImageCaptioning\.pytorch"):
        import_checkpoint(weights, infos=write_luo(tmp_path / "other", PLAIN, infos={"opt": 1}).parent / infos.name)
    with pytest.raises(UsageError, match=r"which has no such file as --wordmap names; it has --infos"):
        import_checkpoint(weights, wordmap=infos)
    infos.unlink()
    with pytest.raises(UsageError, match=r"has no words: there is no \*infos\*\.pkl beside it"):
        import_checkpoint(weights)
    for name in ("infos_a.pkl", "infos_b.pkl"):
        weights.with_name(name).write_bytes(b"")
    with pytest.raises(UsageError, match=r"\(infos_a\.pkl, infos_b\.pkl\); name one with --infos FILE"):
        import_checkpoint(weights)
    with pytest.raises(UsageError, match="There is no file or folder"):
        import_checkpoint(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="has no file of weights"):
        import_checkpoint(tmp_path / "empty")


def test_tensors_that_share_their_bytes_many_times_are_refused(tmp_path: Path):
    shared = torch.ones(1000, 1000)
    tensors = {f"core.lang_lstm.{index}": shared for index in range(2000)} | luo_tensors(PLAIN)
    with pytest.raises(CheckpointError, match="claim 8,000 MB of a file of 4 MB, so they are copies of each other"):
        import_checkpoint(write_luo(tmp_path, PLAIN, tensors))


# --- what it looks at ---


def test_features_of_another_size_are_refused(tmp_path: Path):
    imported = import_checkpoint(write_luo(tmp_path / "source", "updown, boxes"))
    imported.save(tmp_path / "out")
    captioner: Any = Captioner.from_pretrained(tmp_path / "out")
    mask = torch.ones(1, 3, dtype=torch.bool)
    sentence = "The features have 12 numbers to a vector, and updown was trained on 10 or, with those of boxes, 15."
    for ask in (lambda one: captioner.logprobs(one, [["a dog"]]), captioner.caption_features):
        with pytest.raises(UsageError) as raised:
            ask(Features(torch.rand(1, 3, 12), mask))
        assert str(raised.value) == sentence
        with pytest.raises(UsageError, match=r"not \(1, 3, 15\) and \(1, 2\)"):
            ask(Features(torch.rand(1, 3, 15), mask[:, :2]))
        with pytest.raises(UsageError, match="There is an image without any region"):
            ask(Features(torch.rand(1, 3, 15), ~mask))


def test_photos_are_captioned_through_a_given_encoder(tmp_path: Path, tiny_scenes: Path):
    source = write_luo(tmp_path / "source", UPDOWN)
    photo = next((tiny_scenes / "images").iterdir())
    import_checkpoint(source).save(tmp_path / "blind")
    with pytest.raises(CheckpointError, match=r"trained on features from bottom-up regions, 10 to 100, which were"):
        Captioner.from_pretrained(tmp_path / "blind").caption(photo)
    torch.manual_seed(0)
    encoder = SmallCnn(SmallCnnConfig(image_size=48, widths=(8, 10)))
    imported = import_checkpoint(source, encoder=encoder)
    sees, random = imported.report.notes[-2:]
    assert sees.startswith("the model was trained on bottom_up weights=FILE, so")
    assert random.startswith("small_cnn has random weights")
    imported.save(tmp_path / "out")
    captioner = Captioner.from_pretrained(tmp_path / "out")
    assert captioner.caption(photo)[0].words
    assert captioner.explain(photo).models[0].caption.words[0].probability > 0
    with pytest.raises(
        UsageError, match=r"vectors of --features-from have 16 numbers, and the model in .* takes 10: bottom-up regions"
    ):
        import_checkpoint(source, encoder=SmallCnn(SmallCnnConfig(image_size=48, widths=(8, 16))))


def test_what_it_was_made_of_stays_with_it(tmp_path: Path):
    import_checkpoint(write_luo(tmp_path / "source", PLAIN)).save(tmp_path / "out")
    about = Captioner.from_pretrained(tmp_path / "out").about
    assert about.licence == "MIT"
    imported = about.origin["imported"]
    assert imported["model"] == "updown" and imported["project"] == "ImageCaptioning.pytorch"
    assert imported["scores"] == {"best_val_score": 1.13}
    assert imported["options"]["rnn_size"] == 6
    assert {name: len(digest) for name, digest in imported["files"].items()} == {
        "model-best.pth": 64, "infos_run-best.pkl": 64,
    }  # fmt: skip


def test_stores_of_the_recipes_are_those_that_imported_checkpoints_read():
    sources = {
        load_recipe(name).encoder.source
        for name in recipe_names()
        if name.startswith("coco/") and name.endswith("_luo")
    }
    assert sources == {REGIONS, POOLED}
