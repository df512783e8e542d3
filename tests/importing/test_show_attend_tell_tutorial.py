"""Checkpoints of a-PyTorch-Tutorial-to-Image-Captioning: whole pickled modules, which are read and never run."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from published_parity import wordmap
from showtell.errors import CheckpointError, DataError, UsageError
from showtell.features.small_cnn import SmallCnn, SmallCnnConfig
from showtell.files import write_json
from showtell.importing import import_checkpoint
from tests.importing import makers
from tests.importing.makers import resnet18, write_tutorial
from tests.importing.test_parity import opened

CASE = "soft attention"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tutorial(tmp_path_factory.mktemp("tutorial"), CASE)


@pytest.fixture(scope="module")
def captioner(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return opened(source, tmp_path_factory.mktemp("imported") / "out")


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    blocks = np.random.default_rng(0).integers(0, 255, (9, 16, 3), dtype=np.uint8)
    path = tmp_path_factory.mktemp("photo") / "photo.png"
    Image.fromarray(blocks).resize((320, 180), Image.Resampling.BICUBIC).save(path)
    return path


def test_its_features_are_those_of_its_own_encoder(captioner: Any, photo: Path):
    """What its caption.py does with a photo: squash it to 256 x 256, normalise, encode, pool to 14 x 14."""
    squashed = np.asarray(Image.open(photo).convert("RGB").resize((256, 256), Image.Resampling.BILINEAR))
    pixels = torch.from_numpy(squashed.copy()).permute(2, 0, 1).float() / 255
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    image = (pixels - mean.view(3, 1, 1)) / deviation.view(3, 1, 1)
    layers = nn.Sequential(*list(resnet18().children())[:-2], nn.AdaptiveAvgPool2d((14, 14))).eval()
    with torch.no_grad():
        expected = layers(image.unsqueeze(0)).permute(0, 2, 3, 1).flatten(1, 2)
    vectors = captioner.encode_prepared([captioner.prepare(photo)]).features.vectors
    assert vectors.shape == (1, 196, 512)
    assert torch.allclose(vectors, expected, atol=1e-4) and expected.std() > 0.5


def test_a_photo_is_captioned_and_explained_at_once(captioner: Any, photo: Path):
    (caption,) = captioner.caption(photo, min_length=2)
    assert len(caption.words) >= 2 and set(caption.text.split()) <= {*wordmap(), "<unknown>"}
    assert captioner.decoding.num_beams == 5 and captioner.decoding.max_length == 50
    (model,) = captioner.explain(photo, num_beams=1, max_length=5).models
    assert model.caption.words[0].probability > 0


def test_nothing_of_the_file_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The modules' classes stand in a module that is gone when the file is read."""
    file = write_tutorial(tmp_path, CASE)
    monkeypatch.setitem(sys.modules, makers.__name__, None)
    imported = import_checkpoint(file)
    assert imported.report["tensors"] == 120 + 19  # of the encoder and of the decoder
    assert "its own resnet18, 14 x 14 cells of 512 numbers over the photo at 256" in imported.report["features"]


def test_a_word_map_that_does_not_fit_is_refused(source: Path, tmp_path: Path):
    weights, file, words = tmp_path / "small.pth", tmp_path / "words.json", wordmap()
    decoder = torch.load(source, weights_only=False)["decoder"].state_dict()
    torch.save({"encoder": {}, "decoder": decoder}, weights)  # words are read before the encoder
    apart = "The two files do not belong together"
    for content, sentence in (
        ({word: index for word, index in words.items() if word != "<start>"}, "is no word map: it should hold a"),
        ({word: index for word, index in words.items() if word != "dog"}, f"no word has id 3. {apart}"),
        ({**words, "zebra": 21}, f"there are words of id 21. {apart}"),
        ({**words, "zebra": words["dog"]}, "a number of its own for each word"),
        ({**words, "dog": "3"}, "is no word map"),
        ([1, 2], "is no word map"),
    ):
        write_json(file, content)
        with pytest.raises(DataError, match=sentence):
            import_checkpoint(weights, wordmap=file)
    for damaged in (b"", b"{", b'{"<start>": 1e999}', b"\x80\x02N.", b"[" * 100_000, b'{"\xff": 1}'):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=r"words\.json"):
            import_checkpoint(weights, wordmap=file)


def test_what_it_is_not_imported_with(source: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="which has no --infos; it has --wordmap"):
        import_checkpoint(source, infos=source)
    encoder = SmallCnn(SmallCnnConfig(image_size=48, widths=(8, 16)))
    with pytest.raises(UsageError, match="brings its own encoder; leave --features-from out"):
        import_checkpoint(source, encoder=encoder)
    content = torch.load(source, weights_only=False)
    content["encoder"].resnet[4] = nn.Sequential(content["encoder"].resnet[4][0])
    torch.save(content, tmp_path / "cut.pth")
    with pytest.raises(CheckpointError, match=r"is no ResNet of torchvision .*: its stages have 1, 2, 2, 2 blocks"):
        import_checkpoint(tmp_path / "cut.pth", wordmap=source.with_name("WORDMAP_toy.json"))
    states = {part: content[part].state_dict() for part in ("encoder", "decoder")}
    states["decoder"]["fc.weight"] = torch.ones(2, 6)
    torch.save(states, tmp_path / "cut.pth")
    with pytest.raises(CheckpointError, match=r"words and its output layer \(decoder\.fc\) for 2: the file is damaged"):
        import_checkpoint(tmp_path / "cut.pth", wordmap=source.with_name("WORDMAP_toy.json"))
