from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from PIL import Image

from showtell import Captioner
from showtell.errors import ImageError, UsageError


@pytest.fixture(scope="module")
def captioner(tiny_checkpoint: Path) -> Captioner:
    return Captioner.from_pretrained(tiny_checkpoint, device="cpu")


@pytest.fixture(scope="module")
def photos(tiny_scenes: Path) -> list[Path]:
    return sorted((tiny_scenes / "images").iterdir())


def test_a_caption_has_words_with_probabilities_that_add_up(captioner, photos):
    for caption in captioner.caption(photos[0], num_beams=3, num_return_sequences=3):
        assert caption.text == " ".join(word.word for word in caption.words)
        said = sum(word.logprob for word in caption.words)
        assert caption.logprob <= said + 1e-4 if caption.finished else math.isclose(caption.logprob, said, abs_tol=1e-4)
        assert all(word.logprob <= 0 for word in caption.words)


def test_files_one_by_one_and_in_batches_are_the_same(captioner, photos):
    together = dict(captioner.caption_files(photos[:7], batch_size=3))
    assert list(together) == photos[:7]
    for path in photos[:7]:
        (alone, *_), (one, *_) = captioner.caption(path), together[path]
        assert alone.text == one.text
        assert alone.logprob == pytest.approx(one.logprob, abs=1e-4)


def test_a_file_that_is_no_image_does_not_cost_the_batch(captioner, photos, tmp_path):
    bad = tmp_path / "bad.jpg"
    bad.write_text("no picture")
    found = dict(captioner.caption_files([photos[0], bad, photos[1]], batch_size=8))
    assert isinstance(found[bad], ImageError)
    assert found[photos[0]] == captioner.caption(photos[0])
    assert found[photos[1]][0].text == captioner.caption(photos[1])[0].text


def test_an_image_in_memory_is_as_good_as_a_file(captioner, photos):
    assert captioner.caption(Image.open(photos[0])) == captioner.caption(photos[0])


def test_captioning_leaves_train_mode_as_it_was(captioner, photos):
    captioner.decoder.train()
    first = captioner.caption(photos[0])
    assert captioner.decoder.training
    captioner.decoder.eval()
    assert captioner.caption(photos[0]) == first  # no dropout either way


def test_unknown_settings_are_named(captioner, photos):
    with pytest.raises(UsageError, match='There is no decode setting "num_beam"; did you mean "num_beams"'):
        captioner.caption(photos[0], num_beam=3)
    with pytest.raises(UsageError, match="num_beams: Input should be greater than or equal to 1"):
        captioner.caption(photos[0], num_beams=0)


def test_a_picture_of_any_size_becomes_the_square_of_the_encoder(captioner):
    for size in ((1, 1), (500, 20), (48, 48), (33, 77)):
        square = captioner.encoder.preprocessing.prepare(Image.new("RGB", size, (255, 0, 0)))
        assert square.shape == (3, 48, 48)
        assert square.dtype == torch.uint8
        assert square[0].min() == 255
        assert square[1:].max() == 0
