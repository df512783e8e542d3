import math
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from showtell.captions import Caption, Word
from showtell.errors import ImageError


def test_photos_in_any_form_have_the_same_captions_in_batches_and_one_by_one(captioner, photos):
    image = np.asarray(Image.open(photos[3]))[::-1][::-1]
    mixed = [photos[0], Image.open(photos[1]), photos[2].read_bytes(), image, str(photos[4])]
    batched = list(captioner.caption_photos(iter(mixed), batch_size=3))
    assert captioner.caption([]) == [] and [photo for photo, _ in batched] == mixed
    for path, (_, (one, *_)) in zip(photos, batched, strict=False):
        (alone, *_) = captioner.caption(path)
        assert alone.text == one.text
        assert alone.logprob == pytest.approx(one.logprob, abs=1e-4)


def test_what_is_no_photo_is_said(captioner, photos):
    pixels = np.zeros((4, 4, 3), np.uint8)
    for photo, sentence in (
        (3, "A int is no photo; give a path, the bytes of an image file, an image of Pillow, or an array"),
        (pixels[0], r"An array \(4, 3\) of uint8 is no photo; give a path, .* or an array \(height, width, 3\) of uin"),
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
    plain = Caption("a dog", -1.5, False, words)
    calibrated = replace(plain, calibrated_confidence=0.9)
    for caption, confidence, is_calibrated in ((plain, math.exp(-0.75), False), (calibrated, 0.9, True)):
        content = caption.to_json()
        assert (content["confidence"], content["calibrated"]) == (pytest.approx(confidence), is_calibrated)
        assert Caption.from_json(content) == caption


def test_captioning_leaves_train_mode_as_it_was(captioner, photos):
    captioner.decoder.train()
    first = captioner.caption(photos[0])
    assert captioner.decoder.training
    captioner.decoder.eval()
    assert captioner.caption(photos[0]) == first  # no dropout either way
