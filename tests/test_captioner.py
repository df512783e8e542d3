from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from showtell import Captioner
from showtell.captions import Caption, Word
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
        total = sum(word.logprob for word in caption.words)
        assert (
            caption.logprob <= total + 1e-4 if caption.finished else math.isclose(caption.logprob, total, abs_tol=1e-4)
        )
        assert all(word.logprob <= 0 for word in caption.words)


def test_files_one_by_one_and_in_batches_are_the_same(captioner, photos):
    batched = dict(captioner.caption_photos(photos[:7], batch_size=3))
    assert list(batched) == photos[:7]
    for path in photos[:7]:
        (alone, *_), (one, *_) = captioner.caption(path), batched[path]
        assert alone.text == one.text
        assert alone.logprob == pytest.approx(one.logprob, abs=1e-4)


def test_a_file_that_is_no_image_does_not_cost_the_batch(captioner, photos, tmp_path):
    bad = tmp_path / "bad.jpg"
    bad.write_text("no picture")
    captions = dict(captioner.caption_photos([photos[0], bad, photos[1]], batch_size=8))
    assert isinstance(captions[bad], ImageError)
    assert captions[photos[0]] == captioner.caption(photos[0])
    assert captions[photos[1]][0].text == captioner.caption(photos[1])[0].text


def test_an_image_in_memory_is_as_good_as_a_file(captioner, photos):
    expected = captioner.caption(photos[0])
    image = Image.open(photos[0])
    for form in (str(photos[0]), photos[0].read_bytes(), image, np.asarray(image), np.asarray(image)[::-1][::-1]):
        assert captioner.caption(form) == expected


def test_an_image_of_pillow_is_treated_as_its_file_would_be(captioner, tmp_path):
    """Turned as its EXIF orientation says, and transparency on white."""
    image = Image.new("RGBA", (64, 32), (255, 0, 0, 255))
    image.paste((0, 0, 255, 90), (0, 0, 20, 32))
    exif = Image.Exif()
    exif[274] = 6
    image.save(tmp_path / "a.png", exif=exif)
    assert captioner.caption(Image.open(tmp_path / "a.png")) == captioner.caption(tmp_path / "a.png")


def test_many_of_any_form_are_captioned_in_batches(captioner, photos):
    mixed = [
        photos[0],
        Image.open(photos[1]),
        photos[2].read_bytes(),
        np.asarray(Image.open(photos[3])),
        str(photos[4]),
    ]
    expected = [captioner.caption(photo)[0].text for photo in photos[:5]]
    assert [captions[0].text for captions in captioner.caption(mixed, batch_size=2)] == expected
    assert [captions[0].text for captions in captioner.caption(iter(mixed))] == expected
    assert captioner.caption([]) == []


def test_what_is_no_photo_is_said(captioner, photos):
    pixels = np.zeros((4, 4, 3), np.uint8)
    for photo, sentence in (
        (3, "A int is no photo; give a path, the bytes of an image file, an image of Pillow, or an array"),
        (
            pixels[0],
            r"An array \(4, 3\) of uint8 is no photo; give a path, .* or an array \(height, width, 3\) of uint8 in RGB",
        ),
        (pixels.astype("f4"), r"An array \(4, 4, 3\) of float32 is no photo"),
        (pixels[:0], r"An array \(0, 4, 3\) of uint8 is no photo"),
        (b"", "The image in memory is empty; it should hold an image"),
        ([photos[0], b"no image", photos[1]], "The image in memory is not an image: it holds text"),
    ):
        with pytest.raises(ImageError, match=sentence):
            captioner.caption(photo)


def test_many_files_are_read_no_further_than_a_batch_ahead(captioner, photos):
    asked = []

    def listed():
        for photo in photos:
            asked.append(photo)
            yield photo

    results = captioner.caption_photos(listed(), batch_size=4)
    assert asked == []
    next(results)
    assert len(asked) == 5  # the first alone, and the batch behind it
    next(results)
    assert len(asked) == 9
    results.close()


def test_confidence_is_the_geometric_mean_of_the_words_probabilities():
    words = (Word("a", math.log(0.5)), Word("dog", math.log(0.25)))
    assert Caption("a dog", math.log(0.5 * 0.25 * 0.125), True, words).confidence == pytest.approx(0.25)
    assert Caption("a dog", math.log(0.5 * 0.25), False, words).confidence == pytest.approx(math.sqrt(0.125))
    assert Caption("", math.log(0.5), True, ()).confidence == pytest.approx(0.5)
    caption = Caption("a dog", -1.5, False, words)
    assert Caption.from_json(caption.to_json()) == caption


def test_json_of_a_caption_says_which_confidence_it_has():
    caption = Caption("a dog", -1.5, False, (Word("a", -1.0), Word("dog", -0.5)))
    plain = caption.to_json()
    assert (plain["confidence"], plain["calibrated"]) == (pytest.approx(math.exp(-0.75)), False)
    calibrated = replace(caption, calibrated_confidence=0.9)
    assert (calibrated.to_json()["confidence"], calibrated.to_json()["calibrated"]) == (0.9, True)
    assert [Caption.from_json(one.to_json()) for one in (caption, calibrated)] == [caption, calibrated]


def test_captioning_leaves_train_mode_as_it_was(captioner, photos):
    captioner.decoder.train()
    first = captioner.caption(photos[0])
    assert captioner.decoder.training
    captioner.decoder.eval()
    assert captioner.caption(photos[0]) == first  # no dropout either way


def test_unknown_settings_are_named(captioner, photos):
    with pytest.raises(UsageError, match='There is no decoding setting "num_beam"; did you mean "num_beams"'):
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


def test_a_prefix_is_gone_on_from_in_captions_and_explanations(captioner, photos):
    photo = photos[0]
    other = captioner.explain(photo).models[0].caption.words[0].others[0][0]
    (caption,) = captioner.caption(photo, prefix=other, max_length=6)
    explained = captioner.explain(photo, prefix=other, max_length=6).models[0].caption
    assert caption.words[0].word == explained.words[0].word == other
    assert explained.text == caption.text
    assert explained.words[0].probability == pytest.approx(math.exp(caption.words[0].logprob))
