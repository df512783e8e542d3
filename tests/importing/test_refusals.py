"""Imports of files that do not belong together, of tensors that are none, and of whatever accidents leave."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from published_parity import LUO
from showtell.errors import CheckpointError, DataError, ShowtellError
from showtell.importing import import_checkpoint
from tests.importing.makers import luo_infos, luo_tensors, reference, write_luo, write_tutorial

UPDOWN, ATT2IN2, TRANSFORMER, NEWFC = "updown, use_bn 2", "att2in2, use_bn 1", "transformer, use_bn 1", "newfc"


def refused(folder: Path, weights: Path) -> str:
    """The sentence with which an import is refused, after which there is nothing new."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(ShowtellError) as raised:
        import_checkpoint(weights).save(folder / "out")
    assert sorted(folder.rglob("*")) == before
    sentence = str(raised.value)
    assert sentence.endswith(".") and "\n" not in sentence and str(folder) in sentence
    return sentence


def test_files_in_the_place_of_others_are_named(tmp_path: Path) -> None:
    weights = write_luo(tmp_path / "luo", UPDOWN)
    with pytest.raises(DataError, match=r"model-best\.pth is no infos file of ImageCaptioning\.pytorch"):
        import_checkpoint(weights, infos=weights)
    weights.with_name("infos_run-best.pkl").write_bytes(b"\x80\x02cos\nsystem\nX\x0b\x00\x00\x00touch proof\x85R.")
    assert "infos_run-best.pkl is no infos file" in refused(tmp_path, weights)
    assert not Path("proof").exists()
    weights = write_tutorial(tmp_path / "tutorial", next(iter(reference("sgrvinod"))))
    for content in (b"", b"[]", b"{", b'{"<start>": 1e999}', b"\x80\x02N.", b"[" * 100_000, b'{"\xff": 1}'):
        weights.with_name("WORDMAP_toy.json").write_bytes(content)
        assert "WORDMAP_toy.json" in refused(tmp_path, weights)


# --- files that do not belong together ---


def test_a_pair_of_two_runs_is_said(tmp_path: Path) -> None:
    """The tensors decide; what the options say instead is in the report, and another vocabulary is refused."""
    for one, other in itertools.pairwise((UPDOWN, ATT2IN2, TRANSFORMER, NEWFC, UPDOWN)):
        imported = import_checkpoint(write_luo(tmp_path / one, one, infos=luo_infos(other)))
        assert any("caption_model" in contradiction for contradiction in imported.report.contradictions)
        infos = luo_infos(other)
        infos["vocab"] = {key: word for key, word in infos["vocab"].items() if int(key) < 12}
        sentence = refused(tmp_path, write_luo(tmp_path / f"{one} of other words", one, infos=infos))
        assert "The two files do not belong together" in sentence


# --- tensors that are none ---

WRONG: dict[str, Callable[[torch.Tensor], object]] = {
    "int": lambda tensor: tensor.to(torch.int64),
    "bool": lambda tensor: tensor.bool(),
    "complex": lambda tensor: tensor.to(torch.complex64),
    "unsigned": lambda tensor: tensor.abs().to(torch.uint16),
    "infinite": lambda tensor: tensor / 0,
    "too large for single precision": lambda tensor: tensor.double() * 1e300,
    "one dimension more": lambda tensor: tensor.unsqueeze(0),
    "no dimension": lambda tensor: torch.tensor(1.0),
    "empty": lambda tensor: tensor.reshape(-1)[:0],
    "an array": lambda tensor: np.ones(3),
    "a number": lambda tensor: 1.0,
}


@pytest.mark.parametrize("case", [UPDOWN, ATT2IN2, TRANSFORMER, NEWFC])
def test_each_tensor_that_is_wrong_is_refused(tmp_path: Path, case: str) -> None:
    """Each in another way."""
    tensors, wrong = luo_tensors(case), itertools.cycle(WRONG.items())
    for name, tensor in tensors.items():
        if not name.endswith((".pe", "num_batches_tracked", "alpha_net.bias")):  # which are not read
            kind, make = next(wrong)
            weights = write_luo(tmp_path, case, {**tensors, name: make(tensor + 1)})
            with pytest.raises(CheckpointError, match=r"model-best\.pth.*\.$"):
                pytest.fail(f"{name} was read although it is {kind}: {import_checkpoint(weights)}")


@pytest.mark.parametrize("wrong", [torch.zeros(3), torch.zeros(0), torch.ones((), dtype=torch.complex64)])
def test_a_counter_is_one_number(tmp_path: Path, wrong: torch.Tensor) -> None:
    name = "att_embed.0.num_batches_tracked"
    weights = write_luo(tmp_path, UPDOWN, {**luo_tensors(UPDOWN), name: wrong})
    assert f"The tensor {name} in {weights} should be a single number" in refused(tmp_path, weights)


def test_rows_for_fewer_words_are_refused(tmp_path: Path) -> None:
    case = next(iter(reference("sgrvinod")))
    weights = write_tutorial(tmp_path, case)
    content = torch.load(weights, weights_only=False)
    decoder = {**content["decoder"].state_dict(), "fc.weight": torch.ones(2, 6)}
    torch.save({"encoder": content["encoder"].state_dict(), "decoder": decoder}, weights)
    assert "words and its output layer (decoder.fc) for 2: the file is damaged" in refused(tmp_path, weights)


def test_a_word_of_half_a_character_is_refused(tmp_path: Path) -> None:
    infos = luo_infos(UPDOWN)
    infos["vocab"] = {**infos["vocab"], "3": "\ud83d"}
    assert "The word of id 3 in" in refused(tmp_path, write_luo(tmp_path, UPDOWN, infos=infos))


# --- anything ---

_ODD = [
    *(
        None,
        True,
        -1,
        0,
        1,
        3.5,
        1e308,
        2**70,
        float("nan"),
        float("inf"),
        1j,
        "",
        "7",
        "a" * 300,
        "\0",
        "\ud83d",
        b"x",
    ),
    *([], {}, (1, 2), {1}, {1: 2}, np.float32(2), np.arange(3), torch.tensor(3), torch.tensor([1, 2])),
]
_OPTIONS = (
    *("use_bn", "norm_att_feat", "use_box", "norm_box_feat", "max_length", "seq_length", "caption_model", "bos_idx"),
    *("eos_idx", "pad_idx", "unk_idx", "num_layers", "num_att_heads", "drop_prob_lm", "dropout", "d_ff", "rnn_size"),
)


def odd_tensor(rng: random.Random, tensor: torch.Tensor) -> object:
    """Something else in place of a tensor."""
    if rng.random() < 0.2:
        return rng.choice(_ODD)
    if rng.random() < 0.5:
        return torch.zeros([max(0, size + rng.randint(-1, 1)) for size in tensor.shape])
    return rng.choice(list(WRONG.values()))(tensor)


def odd_files(rng: random.Random) -> tuple[str, dict[str, object], dict[str, object]]:
    """A case of ImageCaptioning.pytorch after accidents to its tensors, options and words."""
    case = rng.choice(list(LUO))
    tensors: dict[str, object] = dict(luo_tensors(case))
    for _ in range(rng.randint(0, 2)):
        name = rng.choice(list(luo_tensors(case)))
        tensors[rng.choice((name, f"{name}.x", f"x.{name}"))] = odd_tensor(rng, luo_tensors(case)[name])
        tensors.pop(rng.choice(list(tensors)) if rng.random() < 0.2 else "", None)
    infos: dict[str, Any] = luo_infos(case)
    for _ in range(rng.randint(0, 2)):
        infos["opt"] = type(infos["opt"])(**{**vars(infos["opt"]), rng.choice(_OPTIONS): rng.choice(_ODD)})
    if rng.random() < 0.3:
        infos["vocab"] = {
            **infos["vocab"],
            rng.choice(("1", "5", "x", "-1", 7, None, "999999999999")): rng.choice(_ODD),
        }
    if rng.random() < 0.1:
        infos[rng.choice(("vocab", "opt", "best_val_score"))] = rng.choice(_ODD)
    return case, tensors, infos


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, 10**9))
def test_odd_files_are_imported_or_refused(tmp_path: Path, number: int) -> None:
    case, tensors, infos = odd_files(random.Random(number))
    weights = write_luo(tmp_path, case, tensors, infos)  # type: ignore[arg-type]
    try:
        assert import_checkpoint(weights).report.describe()
    except ShowtellError as error:
        assert str(error).endswith(".") and str(tmp_path) in str(error)
