"""Files of ImageCaptioning.pytorch as they circulate: old, wrapped, halved, paired wrongly, damaged."""

import math
import random
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from published_parity import LUO, WORDS, vocabulary_of
from showtell.captioners import Captioner
from showtell.errors import CheckpointError, DataError, ShowtellError, UsageError, WeightsError
from showtell.importing import Imported, import_checkpoint
from showtell.text.vocabulary import SPECIAL, Vocabulary
from showtell.types import Features
from tests.importing.makers import luo_infos, luo_tensors, write_luo

UPDOWN, TRANSFORMER, NEWFC = "updown, use_bn 2", "transformer, use_bn 1", "newfc"
PLAIN = "updown, use_bn 0"


def assert_equal(one: Imported, other: Imported) -> None:
    first, second = one.checkpoint.decoder.state_dict(), other.checkpoint.decoder.state_dict()
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    assert one.checkpoint.decoder.config == other.checkpoint.decoder.config
    assert one.checkpoint.vocabulary.words == other.checkpoint.vocabulary.words


# --- what circulates ---


@pytest.mark.parametrize("case", [UPDOWN, TRANSFORMER])
def test_files_of_another_form_give_the_same(tmp_path: Path, case: str):
    tensors, infos = luo_tensors(case), luo_infos(case)
    counters = dict.fromkeys((name for name in tensors if name.endswith("num_batches_tracked")), torch.tensor(0))
    plain = import_checkpoint(write_luo(tmp_path / "plain", case, tensors | counters))
    without = {name: one for name, one in tensors.items() if not name.endswith(("num_batches_tracked", ".pe"))}
    unused = () if case == UPDOWN else ("fc_embed.0.weight", "embed.0.weight", "logit.weight")
    numbered = {**infos, "vocab": {int(key): word for key, word in infos["vocab"].items()}, "opt": vars(infos["opt"])}
    double = {name: one.double() if one.is_floating_point() else one for name, one in without.items()}
    for name, own_tensors, own_infos, save in (
        ("data parallel", {f"module.{name}": one for name, one in without.items()}, infos, {}),
        ("old torch", without, infos, {"_use_new_zipfile_serialization": False}),
        ("nested", {"state_dict": without, "epoch": 3}, infos, {}),
        ("modules of the base class", without | dict.fromkeys(unused, torch.zeros(6, 10)), infos, {}),
        ("double", double, infos, {}),
        ("numbers as ids, options in a dict", without, numbered, {}),
    ):
        assert_equal(plain, import_checkpoint(write_luo(tmp_path / name, case, own_tensors, own_infos, **save)))


def test_options_that_old_files_lack_have_the_defaults_of_the_project(tmp_path: Path):
    infos = {**luo_infos(PLAIN), "opt": Namespace(caption_model="transformer", num_layers=2)}
    tensors = luo_tensors("transformer, sizes of recurrent models")
    imported = import_checkpoint(write_luo(tmp_path, PLAIN, tensors, infos))
    assert imported.checkpoint.decoder.config.heads == 8 and imported.checkpoint.decoding.max_length == 20


def test_of_several_files_of_a_run_the_best_are_taken(tmp_path: Path):
    write_luo(tmp_path, NEWFC)
    for name in ("model.pth", "optimizer-best.pth", "infos_run.pkl"):
        (tmp_path / name).write_bytes(b"")
    assert import_checkpoint(tmp_path).report["model"] == "newfc"
    (tmp_path / "infos_other-best.pkl").write_bytes(b"")
    with pytest.raises(UsageError, match=r"\(infos_other-best.pkl, infos_run-best.pkl\); give it with --infos FILE"):
        import_checkpoint(tmp_path)


# --- words ---


def test_marks_are_four_ids_here(tmp_path: Path):
    imported = import_checkpoint(write_luo(tmp_path, PLAIN))
    assert imported.checkpoint.vocabulary.words == (*SPECIAL, *(word for word in WORDS if word != "UNK"))
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
    assert "and one for unknown words" not in imported.report["words"]
    imported.save(tmp_path / "out")
    captioner: Any = Captioner.from_pretrained(tmp_path / "out")
    features = Features(torch.rand(1, 3, 10), torch.ones(1, 3, dtype=torch.bool))
    ((text,),) = captioner.logprobs_features(features, [["a unicorn"]])
    assert text.words[1].word == "unicorn" and text.words[1].logprob < -5000
    known = sorted({*WORDS, "zebra"} - {"UNK"})
    (texts,) = captioner.logprobs_features(features, [[*known, ""]])
    first = [text.words[0].logprob if text.words else text.end for text in texts]
    assert sum(map(math.exp, first)) == pytest.approx(1, abs=1e-5)


# --- what contradicts, is missing or is not supported ---


def test_the_tensors_decide_and_another_model_in_the_options_is_noted(tmp_path: Path):
    infos = luo_infos(PLAIN, caption_model="att2in2", rnn_size=512, use_bn=2)
    imported = import_checkpoint(write_luo(tmp_path, PLAIN, infos=infos))
    config = imported.checkpoint.decoder.config
    assert (config.name, config.hidden_size, config.feature_batch_norm) == ("updown", 6, "none")
    file = tmp_path / "infos_run-best.pkl"
    assert f"{file} is of att2in2 and the tensors are not, so the words may be of another run" in imported.describe()


def without(case: str, *names: str) -> dict[str, torch.Tensor]:
    return {name: one for name, one in luo_tensors(case).items() if name not in names}


def changed(case: str, **changes: torch.Tensor) -> dict[str, torch.Tensor]:
    return {**luo_tensors(case), **{name.replace("__", "."): one for name, one in changes.items()}}


def infos_of(vocabulary: object = None, case: str = PLAIN, **options: Any) -> dict[str, Any]:
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
    (changed(PLAIN, logit__bias=torch.ones(19).to(torch.int32)), None, C, "does not hold finite floating point"),
    (changed(PLAIN, logit__bias=torch.ones(1).expand(19)), None, C, "finite floating point numbers, all stored"),
    ({**luo_tensors(PLAIN), 7: torch.ones(3)}, None, C, "has 1 tensors that this model does not have (7)"),
    (changed(PLAIN, ctx2att__weight=torch.ones(0, 10)), None, C, "none of them empty: the file is damaged"),
    (changed(PLAIN, logit__bias=torch.full((19,), torch.nan)), None, C, "does not hold finite floating"),
    (changed(PLAIN, fc_embed__0__weight=torch.ones(6, 8)), None, C, "trained on two kinds of features"),
    (changed(PLAIN, logit__weight=torch.ones(7, 6)), None, C, "is for 19 words and its output layer"),
    ({"logit.0.weight": torch.ones(3), "logit.3.weight": torch.ones(3), "core.a2c.weight": torch.ones(1)}, None,
     C, "There is no tensor"),
    ({"features.0.weight": torch.ones(3, 2)}, None, C, "is of no model that is imported"),
    ({}, None, W, "holds no weights by their names"),
    (None, {"vocab": WORDS_OF}, D, "is no infos file of ImageCaptioning.pytorch"),
    (None, infos_of({}), D, "The vocabulary (vocab) in"),
    (None, infos_of({**WORDS_OF, "19": "zebra"}), D, "there are words of id 19. The two files do not belong"),
    (None, infos_of({key: word for key, word in WORDS_OF.items() if key != "7"}), D, "no word has id 7. The"),
    (None, infos_of({**WORDS_OF, "2": "a"}), D, '"a", is the word of id 1 too.'),
    (None, infos_of({**WORDS_OF, "2": "<end>"}), D, '"<end>", marks something else here.'),
    (None, infos_of({**WORDS_OF, "2": "a\nb"}), D, "has a control character at character 2"),
    (None, infos_of(bos_idx=40), D, "The option bos_idx in"),
    (None, infos_of(max_length=10**12), D, "is 1000000000000; it should be a whole number"),
    (luo_tensors(TRANSFORMER), infos_of(num_att_heads=3), C, "cannot be built here: heads=3 does not divide hidden_"),
    (None, {**luo_infos(PLAIN), "opt": 3}, D, "should be a Namespace or a dict, not 3."),
]  # fmt: skip


def refused(folder: Path, weights: Path, error: type[ShowtellError] = ShowtellError) -> str:
    """The sentence with which an import is refused, after which there is nothing new."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(error) as raised:
        import_checkpoint(weights).save(folder / "out")
    assert sorted(folder.rglob("*")) == before
    sentence = str(raised.value)
    assert sentence.endswith(".") and "\n" not in sentence and str(folder) in sentence
    return sentence


def test_what_cannot_be_imported_is_said_and_nothing_is_written(tmp_path: Path):
    for tensors, infos, error, sentence in REFUSED:
        assert sentence in refused(tmp_path, write_luo(tmp_path / "source", PLAIN, tensors, infos), error)


def test_files_that_are_missing_or_mistaken_for_each_other(tmp_path: Path):
    weights = write_luo(tmp_path / "source", PLAIN)
    infos = weights.with_name("infos_run-best.pkl")
    assert "holds options and words; it is for --infos" in refused(tmp_path, infos, CheckpointError)
    with pytest.raises(DataError, match=r"model-best\.pth is no infos file of ImageCaptioning\.pytorch"):
        import_checkpoint(weights, infos=weights)
    with pytest.raises(UsageError, match=r"which has no --wordmap; it has --infos"):
        import_checkpoint(weights, wordmap=infos)
    infos.write_bytes(b"\x80\x02cos\nsystem\nX\x0b\x00\x00\x00touch proof\x85R.")
    assert "infos_run-best.pkl is no infos file" in refused(tmp_path, weights)
    assert not Path("proof").exists()
    infos.unlink()
    assert "and words (vocab) of a run (no *infos*.pkl); give it with --infos" in refused(tmp_path, weights, UsageError)
    assert "There is no file or folder" in refused(tmp_path, tmp_path / "nowhere", UsageError)
    (tmp_path / "empty").mkdir()
    assert "should have one file with weights (no *.pth or" in refused(tmp_path, tmp_path / "empty", UsageError)


# --- whatever accidents leave ---


_ODD = [None, True, -1, 3.5, 2**70, float("nan"), 1j, "", "7", "\0", "\ud83d", [], {1: 2}, np.arange(3), torch.ones(2)]
_OPTIONS = (
    "use_bn", "norm_att_feat", "use_box", "norm_box_feat", "max_length", "seq_length", "caption_model", "bos_idx",
    "eos_idx", "pad_idx", "unk_idx", "num_layers", "num_att_heads", "d_ff", "rnn_size",
)  # fmt: skip


@given(number=st.integers(0, 10**9))
def test_odd_files_are_imported_or_refused(tmp_path: Path, number: int) -> None:
    """After accidents to tensors, options and words."""
    rng = random.Random(number)
    case = rng.choice(list(LUO))
    tensors, infos = dict(luo_tensors(case)), luo_infos(case)
    name = rng.choice(list(tensors))
    shape = [max(0, size + rng.randint(-1, 1)) for size in tensors[name].shape]
    tensors[rng.choice((name, f"{name}.x", f"x.{name}"))] = rng.choice((torch.zeros(shape), rng.choice(_ODD)))
    for _ in range(rng.randint(0, 2)):
        infos["opt"] = Namespace(**{**vars(infos["opt"]), rng.choice(_OPTIONS): rng.choice(_ODD)})
    if rng.random() < 0.3:
        infos["vocab"] |= {rng.choice(("1", "5", "x", "-1", 7, None, "999999999999")): rng.choice(_ODD)}
    if rng.random() < 0.1:
        infos[rng.choice(("vocab", "opt"))] = rng.choice(_ODD)
    try:
        assert import_checkpoint(write_luo(tmp_path, case, tensors, infos)).describe()
    except ShowtellError as error:
        assert str(error).endswith(".") and str(tmp_path) in str(error)
