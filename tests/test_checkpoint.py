from __future__ import annotations

import hashlib
import json
import pickletools
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from showtell.captioners import Captioner
from showtell.checkpoint import find_checkpoint
from showtell.errors import CheckpointError
from showtell.text.vocabulary import Vocabulary


@pytest.fixture
def copy(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy"))


def edit(folder: Path, change) -> None:
    settings = json.loads((folder / "config.json").read_text())
    change(settings)
    (folder / "config.json").write_text(json.dumps(settings))


def test_saved_and_opened_it_says_the_same(tiny_checkpoint, tiny_scenes, tmp_path):
    first = Captioner.from_pretrained(tiny_checkpoint, device="cpu")
    first.save_pretrained(tmp_path / "again")
    second = Captioner.from_pretrained(tmp_path / "again", device="cpu")
    for photo in sorted((tiny_scenes / "images").iterdir())[:5]:
        assert first.caption(photo, num_return_sequences=2) == second.caption(photo, num_return_sequences=2)
    files = [
        (folder / name).read_bytes()
        for folder in (tiny_checkpoint, tmp_path / "again")
        for name in ("model.safetensors",)
    ]
    assert files[0] == files[1]


def test_there_is_no_pickle_in_it(tiny_checkpoint):
    assert sorted(path.name for path in tiny_checkpoint.iterdir()) == ["config.json", "model.safetensors"]
    with pytest.raises(ValueError, match="opcode"):
        list(pickletools.genops((tiny_checkpoint / "model.safetensors").read_bytes()))


def test_its_settings_say_what_it_is(tiny_checkpoint):
    settings = json.loads((tiny_checkpoint / "config.json").read_text())
    assert set(settings) == {
        "format", "showtell", "encoder", "preprocessing", "model", "decoding", "about", "fingerprints", "vocabulary",
    }  # fmt: skip
    assert settings["model"]["name"] == "sat"
    assert settings["preprocessing"]["image_size"] == 48


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: s["vocabulary"]["words"].pop(), "was trained with .*: its words were changed"),
        (lambda s: s["fingerprints"].update(weights="0" * 12), "config.json beside them was written for 000000000000"),
        (lambda s: s["model"].update(name="sad"), 'a model "sad" that is not known here: did you mean "sat"'),
        (lambda s: s["model"].update(hidden_size=0), "has a bad value at hidden_size"),
        (
            lambda s: s["model"].update(hidden_size=17),
            r"do not fit the decoder of config.json: size mismatch for decoder\.\S+, .* in the file and .* by config",
        ),
        (lambda s: s.pop("decoding"), "config.json has no key 'decoding'"),
        (
            lambda s: s.update(format=99, showtell="9.9"),
            "written by showtell 9.9 in format 99; .* install the newer one",
        ),
        (lambda s: s.pop("format"), 'is not of a showtell checkpoint: it has no key "format"'),
    ],
)
def test_a_changed_setting_has_its_sentence(copy, change, sentence):
    edit(copy, change)
    with pytest.raises(CheckpointError, match=sentence):
        Captioner.from_pretrained(copy)


def test_the_vocabulary_of_another_model_is_refused_with_both_sizes(copy):
    def shorten(settings):
        settings["vocabulary"] = Vocabulary(["a", "b"]).to_json()

    edit(copy, shorten)
    weights = len(load_file(copy / "model.safetensors")["decoder.embedding.weight"])
    with pytest.raises(CheckpointError, match=f"are for {weights} words and the vocabulary in .* has 6"):
        Captioner.from_pretrained(copy)


def test_the_weights_of_another_model_are_refused(copy):
    tensors = {name: torch.zeros_like(tensor) for name, tensor in load_file(copy / "model.safetensors").items()}
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(CheckpointError, match="the two files are not of the same checkpoint"):
        Captioner.from_pretrained(copy)


@pytest.mark.parametrize("content", [b"", b"not weights at all", None])
def test_damaged_weights_are_named(copy, content):
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000] if content is None else content)
    with pytest.raises(CheckpointError, match=r"The checkpoint is damaged: .*model.safetensors cannot be read"):
        Captioner.from_pretrained(copy)


@pytest.mark.parametrize("content", ["", "{", "[1]"])
def test_damaged_settings_are_named(copy, content):
    (copy / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        Captioner.from_pretrained(copy)


def test_a_run_folder_is_pointed_to_its_best(tiny_checkpoint, tmp_path):
    shutil.copytree(tiny_checkpoint, tmp_path / "run" / "best")
    with pytest.raises(CheckpointError, match=r"has no config.json; it looks like a run: use .*run/best"):
        Captioner.from_pretrained(tmp_path / "run")


def test_what_is_no_checkpoint_at_all(tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match="There is no checkpoint folder /no/such/folder; give a folder"):
        find_checkpoint("/no/such/folder")
    file = tmp_path / "model.pt"
    file.write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"is a file; a checkpoint is a folder with model\.safetensors"):
        find_checkpoint(file)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        CheckpointError,
        match="no folder someone/something, it is not whole in the local cache of the hub, and it cannot be fetched",
    ):
        find_checkpoint("someone/something")


def test_the_local_cache_of_the_hub_comes_before_the_hub(tiny_checkpoint, tmp_path, monkeypatch):
    """A cache laid out as huggingface_hub does: a name for the commit, and a folder of that commit."""
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--someone--something"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    shutil.copytree(tiny_checkpoint, repository / "snapshots" / commit)
    assert find_checkpoint("someone/something") == repository / "snapshots" / commit


def test_a_checkpoint_of_hard_attention_with_the_old_names_opens(copy):
    def to_old(settings):
        model = settings["model"]
        model["attention"] = "hard"
        for old, new in (("coin", "expectation_per"), ("expectation_share", "expectation_probability")):
            model[old] = model.pop(new)
        model["look"] = {"argmax": "likeliest"}[model.pop("eval_attention")]

    edit(copy, to_old)
    config = Captioner.from_pretrained(copy).decoder.config
    assert (config.attention, config.eval_attention, config.expectation_per) == ("hard", "argmax", "image")
    assert config.expectation_probability == 0.5


# --- damage that is seen before a model is built


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the tensors of a checkpoint, and write their new fingerprint."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    content = (folder / "model.safetensors").read_bytes()
    edit(folder, lambda s: s["fingerprints"].update(weights=hashlib.sha256(content).hexdigest()[:12]))


@pytest.mark.parametrize(
    ("number", "kind"), [(float("nan"), "NaN"), (float("inf"), "infinity"), (-float("inf"), "infinity")]
)
@pytest.mark.parametrize("name", ["decoder.embedding.weight", "decoder.lstm.bias_ih", "encoder.layers.0.weight"])
def test_weights_that_are_no_numbers_are_refused_by_name(copy, name, number, kind):
    def spoil(tensors):
        known = name if name in tensors else next(key for key in tensors if key.startswith("encoder."))
        tensors[known].view(-1)[-1] = number

    rewrite(copy, spoil)
    with pytest.raises(CheckpointError, match=rf"used: (encoder|decoder)\.\S+ contains {kind}; the training"):
        Captioner.from_pretrained(copy)


def half(tensors: dict[str, torch.Tensor]) -> None:
    for name, tensor in tensors.items():
        tensors[name] = tensor.half() if tensor.is_floating_point() else tensor


def test_weights_in_half_precision_open(copy):
    rewrite(copy, half)
    assert Captioner.from_pretrained(copy).decoder.embedding.weight.dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda t: t.update({"decoder.embedding.weight": torch.tensor(1.0)}),
            "size mismatch for decoder.embedding.weight, a single number in the file and 94 x 16 by config.json",
        ),
        (
            lambda t: t.update({"decoder.lstm.weight_hh": torch.zeros(64, 15)}),
            "size mismatch for decoder.lstm.weight_hh, 64 x 15 in the file and 64 x 16 by config.json",
        ),
        (
            lambda t: t.update({"decoder.lstm.weight_hh": torch.zeros(64, 16, dtype=torch.int64)}),
            "decoder.lstm.weight_hh holds int64 instead of float32",
        ),
        (
            lambda t: t.update({"decoder.lstm.weight_hh": torch.zeros(64, 16, dtype=torch.bool)}),
            "decoder.lstm.weight_hh holds bool instead of float32",
        ),
        (
            lambda t: t.update({"decoder.lstm.weight_hh": torch.zeros(64, 16, dtype=torch.complex64)}),
            "decoder.lstm.weight_hh holds complex64 instead of float32",
        ),
        (lambda t: t.pop("decoder.lstm.weight_hh"), "missing tensor decoder.lstm.weight_hh"),
        (lambda t: t.update({"decoder.more": torch.zeros(1)}), "unexpected tensor decoder.more"),
        (
            dict.clear,
            r"the encoder of config.json: missing tensor encoder\..*, missing tensor encoder\..* and \d+ more\.$",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(copy, change, sentence):
    size = len(json.loads((copy / "config.json").read_text())["vocabulary"]["words"]) + 4
    rewrite(copy, change)
    with pytest.raises(CheckpointError, match=sentence.replace("94", str(size))):
        Captioner.from_pretrained(copy)


@pytest.mark.parametrize("header", [b"", b"{}", b"[]", b"null", b"[" * 5000, b'{"a":' * 300, b"\xff" * 8])
def test_weights_with_a_damaged_header_are_named(copy, header):
    content = struct.pack("<Q", len(header)) + header
    (copy / "model.safetensors").write_bytes(content)
    edit(copy, lambda s: s["fingerprints"].update(weights=hashlib.sha256(content).hexdigest()[:12]))
    with pytest.raises(CheckpointError, match=r"model.safetensors (cannot be read|do not fit the encoder)"):
        Captioner.from_pretrained(copy)


@pytest.mark.parametrize("size", [6000, 65_536])
def test_a_model_of_another_size_is_refused_before_it_is_built(copy, size):
    edit(copy, lambda s: s["model"].update(hidden_size=size, attention_size=size, embedding_size=size))
    began = time.monotonic()
    with pytest.raises(CheckpointError, match=r"size mismatch for decoder\.\S+, .* in the file and .* by config.json"):
        Captioner.from_pretrained(copy)
    assert time.monotonic() - began < 10  # built, it takes 40 s and gigabytes


@pytest.mark.parametrize("size", [2**63, -(2**70), 10**400, 65_537, 0])
def test_sizes_without_bound_are_bad_values(copy, size):
    edit(copy, lambda s: s["model"].update(hidden_size=size))
    with pytest.raises(CheckpointError, match=r"(bad value at hidden_size|too many digits|digits)"):
        Captioner.from_pretrained(copy)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("a\x1b[31m", 'the word of id 9, ".*", has a control character at character 2'),
        ("a\nb", 'the word of id 9, ".*", has a control character at character 2'),
        ("a\u2028b", 'the word of id 9, ".*", has a line end at character 2'),
        ("x" * 3_000_000, 'the word of id 9, "x+[.]{3}x+", has 3,000,000 characters; at most 1000 are allowed'),
        ("", 'the word of id 9, "", is empty'),
        ("<end>", 'the word of id 9, "<end>", is that of id 2 too'),
    ],
)
def test_a_text_that_is_no_word_is_refused_with_its_id(copy, word, sentence):
    edit(copy, lambda s: s["vocabulary"]["words"].__setitem__(5, word))
    with pytest.raises(CheckpointError, match=f"^The vocabulary in .*config.json is damaged: {sentence}") as raised:
        Captioner.from_pretrained(copy)
    assert len(str(raised.value)) < 400


def test_a_lone_surrogate_is_refused_with_its_line_or_id(copy):
    edit(copy, lambda s: s["vocabulary"]["words"].__setitem__(5, "ab\ud800"))
    with pytest.raises(CheckpointError, match=r"config.json holds \\ud800 at line 1, which is no character"):
        Captioner.from_pretrained(copy)
    content = json.loads((copy / "config.json").read_text())["vocabulary"]
    with pytest.raises(CheckpointError, match=r'the word of id 9, "ab\\ud800", has a lone surrogate at character 3'):
        Vocabulary.from_json(content, "config.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_other_value_anywhere_in_the_settings_is_refused_in_a_sentence_or_opens(tiny_checkpoint, tmp_path, data):
    folder = Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy", dirs_exist_ok=True))
    content = json.loads((folder / "config.json").read_text())
    inner = content
    key = data.draw(st.sampled_from(sorted(inner)))
    while isinstance(inner[key], dict) and inner[key] and data.draw(st.booleans()):
        inner = inner[key]
        key = data.draw(st.sampled_from(sorted(inner)))
    inner[key] = data.draw(JSON)
    (folder / "config.json").write_text(json.dumps(content))
    try:
        Captioner.from_pretrained(folder)
    except CheckpointError as error:
        assert str(error)
