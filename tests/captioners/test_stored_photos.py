"""Images of a store in place of photos: the same captions, log-probabilities and explanations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from showtell import UsageError
from showtell.captioners import Captioner, EncoderDecoderCaptioner
from showtell.captioners.opening import fastest_precision
from showtell.datasets import open_dataset
from showtell.errors import DataError
from showtell.features.extraction import extract
from showtell.features.store import FeatureStore, ImageFeatures, StoredImage, StoreInfo, StoreWriter
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import Vocabulary
from tests.toys import random_captioner

GRID = {"name": "small_cnn", "image_size": 48, "widths": [8, 16]}


def captioner_of(encoder: dict[str, Any], data: Path) -> EncoderDecoderCaptioner:
    words = [tokenize(text) for record in open_dataset(data)["train"] for text in record.captions]
    model = {"name": "sat", "embedding_size": 12, "hidden_size": 12}
    return random_captioner(encoder, model, Vocabulary.build(words), num_beams=3, max_length=7)


def test_an_encoder_computes_in_bf16_if_told_and_whatever_depends_on_it_says_so(tiny_scenes, tmp_path):
    timm = {"name": "mobilenetv3_small_050", "weights": "random", "image_size": 64, "seed": 1}
    captioner_of(timm, tiny_scenes).save_pretrained(tmp_path / "checkpoint")
    own, fp32, half = (
        EncoderDecoderCaptioner.from_pretrained(tmp_path / "checkpoint", "cpu", dtype=dtype)
        for dtype in (None, "fp32", "bf16")
    )
    auto = EncoderDecoderCaptioner.from_pretrained(tmp_path / "checkpoint", "cpu", dtype="auto")
    assert own.encoder.precision == fp32.encoder.precision == "fp32" and half.encoder.precision == "bf16"
    assert auto.encoder.precision == fastest_precision(half.encoder.precisions, half.device)
    assert own.about.fingerprints == fp32.about.fingerprints
    assert half.about.fingerprints == own.about.fingerprints | {"encoder_precision": "bf16"}

    records = open_dataset(tiny_scenes).records[:2]
    texts = [record.captions[0] for record in records]
    exact, near = ([one[0].logprob for one in c.logprobs([r.path for r in records], texts)] for c in (own, half))
    assert exact != near == pytest.approx(exact, rel=0.05)
    extract(half.encoder, records, tmp_path / "store", dtype="fp32")
    store = FeatureStore(tmp_path / "store")
    assert store.info.encoder["precision"] == "bf16" and half.reads(store) and not own.reads(store)
    with pytest.raises(DataError, match="precision 'bf16' instead of 'fp32'"):
        own.caption(StoredImage(store, records[0].image_id))

    half.save_pretrained(tmp_path / "half")
    assert EncoderDecoderCaptioner.from_pretrained(tmp_path / "half", "cpu").encoder.precision == "bf16"
    with pytest.raises(UsageError, match="computes in fp32 or bf16; leave fp16 out"):
        Captioner.from_pretrained(tmp_path / "checkpoint", "cpu", dtype="fp16")


def test_a_store_gives_what_the_photos_give(tiny_scenes: Path, tmp_path: Path) -> None:
    captioner = captioner_of(GRID, tiny_scenes)
    records = open_dataset(tiny_scenes).records[:5]
    extract(captioner.encoder, records, tmp_path / "store", dtype="fp32", batch_size=3)
    store = FeatureStore(tmp_path / "store")
    photos = [record.path for record in records]
    stored = [StoredImage(store, record.image_id, record.path) for record in records]

    settings = {"attention": True, "num_return_sequences": 2}
    captions = captioner.caption(photos, **settings), captioner.caption(stored, **settings, batch_size=2)
    for own, other in zip(*captions, strict=True):
        assert [caption.text for caption in own] == [caption.text for caption in other] and len(own) == 2
        for one, another in zip(own, other, strict=True):
            assert another.logprob == pytest.approx(one.logprob, abs=1e-5)
            assert one.attention is not None and another.attention is not None
            torch.testing.assert_close(another.attention.weights, one.attention.weights, atol=1e-5, rtol=0)
            torch.testing.assert_close(another.attention.boxes, one.attention.boxes, atol=1e-3, rtol=0)
    texts = [[record.captions[0], "a cat"] for record in records]
    logprobs = captioner.logprobs(photos, texts), captioner.logprobs(stored, texts)
    for own_texts, other_texts in zip(*logprobs, strict=True):
        assert [one.logprob for one in other_texts] == pytest.approx([one.logprob for one in own_texts], abs=1e-5)
    explanations = captioner.explain(photos, saliency="mean"), captioner.explain(stored, saliency="mean")
    for one, another in zip(*explanations, strict=True):
        assert another.image == one.image and another.size == one.size == (48, 48)
        assert another.photo.tobytes() == one.photo.tobytes()
        of_photo, of_store = one.models[0], another.models[0]
        assert (of_store.grid, of_store.labels) == (of_photo.grid, of_photo.labels)
        torch.testing.assert_close(of_store.boxes, of_photo.boxes, atol=1e-3, rtol=0)
        for word, other in zip(of_store.caption.words, of_photo.caption.words, strict=True):
            assert word.word == other.word and [text for text, _ in word.others] == [text for text, _ in other.others]
            assert word.probability == pytest.approx(other.probability, abs=1e-5)
            torch.testing.assert_close(word.saliency, other.saliency, atol=2e-5, rtol=0)


def test_regions_have_the_categories_of_the_store_and_attributes_in_front(tiny_scenes: Path, tmp_path: Path) -> None:
    described = {"labels": np.array([1, -1, 0], "i4"), "attributes": np.array([0, 1, -1], "i4")}
    vectors = np.random.default_rng(0).random((3, 6), dtype="f4")
    boxes = np.array([[0, 0, 20, 30], [10, 5, 64, 40], [1, 1, 9, 9]], "f4")
    captioner = captioner_of({"name": "precomputed", "feature_size": 6, "source": "a test"}, tiny_scenes)
    names = {"categories": ("cat", "dog"), "attributes": ("red", "old")}
    with StoreWriter(tmp_path / "store", StoreInfo.of(captioner.encoder, "fp32").model_copy(update=names)) as writer:
        writer.write({"7": ImageFeatures(vectors, (100, 50), boxes, **described)})
    explanation = captioner.explain(StoredImage(FeatureStore(tmp_path / "store"), "7"))
    assert explanation.models[0].labels == ("red dog", "", "cat")
    assert (explanation.image, explanation.size, explanation.photo.size) == ("7", (100, 50), (640, 320))
    colours = {colour for _, colour in explanation.photo.getcolors(2**16) or ()}
    assert len(colours) > 2  # the picture in place of the photo is not empty: it has outlines and a text
