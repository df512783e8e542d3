import hashlib
import json
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from showtell.captioners import Captioner
from showtell.errors import CheckpointError
from showtell.hub import find_checkpoint
from showtell.text.vocabulary import Vocabulary


@pytest.fixture
def copy(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy"))


def edit(folder: Path, change) -> None:
    settings = json.loads((folder / "config.json").read_text())
    change(settings)
    (folder / "config.json").write_text(json.dumps(settings))


def test_saved_and_opened_it_says_the_same(tiny_checkpoint, photos, tmp_path):
    first = Captioner.from_pretrained(tiny_checkpoint, device="cpu")
    first.save_pretrained(tmp_path / "again")
    second = Captioner.from_pretrained(tmp_path / "again", device="cpu")
    for photo in photos[:5]:
        assert first.caption(photo, num_return_sequences=2) == second.caption(photo, num_return_sequences=2)
    files = [(folder / "model.safetensors").read_bytes() for folder in (tiny_checkpoint, tmp_path / "again")]
    assert files[0] == files[1]
    assert sorted(path.name for path in tiny_checkpoint.iterdir()) == ["config.json", "model.safetensors"]


def refused(folder: Path) -> str:
    with pytest.raises(CheckpointError) as raised:
        Captioner.from_pretrained(folder)
    return str(raised.value)


def word(text: str) -> Callable[[dict], object]:
    return lambda s: s["vocabulary"]["words"].__setitem__(5, text)


SETTINGS = [  # what is changed in config.json, and what is said
    (lambda s: s["vocabulary"]["words"].pop(), "was trained with .*: its words were changed"),
    (lambda s: s["fingerprints"].update(weights="0" * 12), "config.json beside them was written for 000000000000"),
    (lambda s: s["model"].update(name="sad"), 'a model "sad" that is not known here; .*, or did you mean "sat"'),
    (lambda s: s["encoder"].update(name="sad"), 'There is no encoder "sad"'),
    (lambda s: s["model"].update(hidden_size=0), "The checkpoint is damaged: .*config.json: model.hidden_size: "),
    (lambda s: s["model"].update(hidden_size=10**400), "The checkpoint is damaged: .*config.json: model.hidden_size: "),
    (lambda s: s["model"].update(hidden_size=33),
     r"do not fit the decoder of config.json: size mismatch for decoder\.\S+, .* in the file and .* by config"),
    (lambda s: s["preprocessing"].update(mean=[0, 0, 0]), "is not what the encoder was trained with"),
    (lambda s: s.pop("decoding"), "The checkpoint is damaged: .*config.json: decoding: Field required"),
    (lambda s: s.update(model=[]), "The checkpoint is damaged: .*config.json: model: Input should be a valid dict"),
    (lambda s: s.update(format=99, showtell="9.9"), "written by showtell 9.9 in format 99, .* install the version"),
    (lambda s: s.pop("format"), 'is not of a showtell checkpoint: it has no key "format"'),
    (word("a\x1b[31m"), 'the word of id 9, ".*", has a control character at character 2'),
    (word("x" * 3_000_000), 'the word of id 9, "x+[.]{3}x+", has 3,000,000 characters; at most 1000 are allowed'),
    (word("<end>"), 'the word of id 9, "<end>", is that of id 2 too'),
    (word("ab\ud800"), r"config.json holds '\\ud800', which is no character"),
    (lambda s: s.update(vocabulary=Vocabulary(["a", "b"]).to_json()),
     r"size mismatch for decoder.embedding.weight, \(\d+, 16\) in the file and \(6, 16\) by config"),
]  # fmt: skip


def test_a_changed_setting_has_its_sentence(copy):
    whole = (copy / "config.json").read_text()
    for change, sentence in SETTINGS:
        edit(copy, change)
        message = refused(copy)
        assert re.search(sentence, message) and len(message) < 600, (sentence, message)
        (copy / "config.json").write_text(whole)
    for content in ("", "{", "[1]"):
        (copy / "config.json").write_text(content)
        assert "config.json" in refused(copy)


def test_damaged_weights_are_named(copy):
    file = copy / "model.safetensors"
    whole = file.read_bytes()
    for content in (b"", b"not weights at all", whole[:1000]):
        file.write_bytes(content)
        assert re.search(r"The checkpoint is damaged: .*model.safetensors cannot be read", refused(copy))
    for header in (b"", b"{}", b"[]", b"null", b"[" * 5000, b'{"a":' * 300, b"\xff" * 8):
        content = struct.pack("<Q", len(header)) + header
        file.write_bytes(content)
        edit(copy, lambda s, content=content: s["fingerprints"].update(weights=fingerprint(content)))
        assert re.search(r"model.safetensors (cannot be read|do not fit the encoder)", refused(copy))


def test_what_is_no_checkpoint_at_all(tiny_checkpoint, tmp_path, monkeypatch):
    shutil.copytree(tiny_checkpoint, tmp_path / "run" / "best")
    assert re.search(r"has no config.json; it looks like a run: use .*run/best", refused(tmp_path / "run"))
    with pytest.raises(CheckpointError, match="There is no checkpoint folder /no/such/folder; give a folder"):
        find_checkpoint("/no/such/folder")
    with pytest.raises(CheckpointError, match="There is no checkpoint folder xxx"):
        find_checkpoint("x" * 300)  # longer than a file's name may be
    file = tmp_path / "model.pt"
    file.write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"is a file; a checkpoint is a folder with model\.safetensors"):
        find_checkpoint(file)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(CheckpointError, match="is no folder here, is not in the local cache, and the Hugging"):
        find_checkpoint("someone/something@v2")


def fingerprint(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def rewrite(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Exchange the tensors of a checkpoint, with their fingerprint."""
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    edit(folder, lambda s: s["fingerprints"].update(weights=fingerprint((folder / "model.safetensors").read_bytes())))


HH, TABLE = "decoder.lstm.weight_hh", "decoder.embedding.weight"
WRONG = [  # tensors in place of others, None for a missing one, and the message
    ({TABLE: torch.tensor(1.0)}, r"size mismatch for decoder.embedding.weight, \(\) in the file"),
    ({HH: torch.zeros(64, 15)}, r"size mismatch for decoder.lstm.weight_hh, \(64, 15\) in the file and \(64, 16\) by"),
    ({HH: torch.zeros(64, 16, dtype=torch.int64)}, "decoder.lstm.weight_hh holds int64 instead of float32"),
    ({HH: torch.zeros(64, 16, dtype=torch.bool)}, "decoder.lstm.weight_hh holds bool instead of float32"),
    ({HH: torch.zeros(64, 16, dtype=torch.complex64)}, r"used: decoder.lstm.weight_hh holds complex64\."),
    ({HH: torch.zeros(64, 8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}, r"weight_hh holds float4_e2m1fn_x2\."),
    ({HH: torch.full((64, 16), float("nan"))}, r"used: decoder\.\S+ contains NaN; the training run"),
    ({HH: torch.full((64, 16), -float("inf"))}, r"used: decoder\.\S+ contains infinity; the training run"),
    ({HH: None}, "missing tensor decoder.lstm.weight_hh"),
    ({"decoder.more": torch.zeros(1)}, "unexpected tensor decoder.more"),
]


def test_tensors_that_do_not_fit_are_named(copy):
    whole = load_file(copy / "model.safetensors")
    for change, sentence in WRONG:
        rewrite(copy, {name: tensor for name, tensor in {**whole, **change}.items() if tensor is not None})
        message = refused(copy)
        assert re.search(sentence, message), (sentence, message)
    rewrite(copy, {})
    assert re.search(r"encoder of config.json: missing tensor encoder\..* and \d+ more\.$", refused(copy))
