"""Training from a store: what it changes, what it refuses, and that stopping anywhere still changes nothing."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
import torch

from showtell.captioners import Captioner
from showtell.datasets import open_dataset
from showtell.errors import CheckpointError, DataError, ImageError
from showtell.evaluation import caption_records
from showtell.features.precomputed import Precomputed, PrecomputedConfig
from showtell.features.store import FeatureStore, ImageFeatures, StoreInfo, StoreWriter
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import Vocabulary
from showtell.training import train
from showtell.training.batches import TrainingSet, epoch_batches


@pytest.fixture
def stored_recipe(tiny_recipe: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    tiny_recipe["encoder"]["trained"] = False
    tiny_recipe["data"]["features"] = str(tmp_path / "store")
    return tiny_recipe


def log_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def test_features_are_extracted_first_and_training_learns_from_them(stored_recipe, tmp_path, tiny_scenes):
    run = train(stored_recipe, tmp_path / "run", quiet=True).folder
    store = FeatureStore(tmp_path / "store")
    dataset = open_dataset(tiny_scenes)
    expected = {record.image_id for record in dataset.records if record.split in ("train", "val")}
    assert set(store.ids()) == expected
    # The same run on photos differs by the rounding to half precision alone.
    from_photos = copy.deepcopy(stored_recipe)
    del from_photos["data"]["features"]
    other = train(from_photos, tmp_path / "photos", quiet=True).folder
    ours, theirs = log_of(run), log_of(other)
    assert len(ours) == len(theirs)
    losses = [(line["loss"], again["loss"]) for line, again in zip(ours, theirs, strict=True) if "loss" in line]
    assert [loss for loss, _ in losses] == pytest.approx([loss for _, loss in losses], rel=2e-3)
    assert any(loss != again for loss, again in losses)
    captioner = Captioner.from_pretrained(run / "best")
    store.require(captioner.encoder)
    assert captioner.caption(dataset.records[0].path)[0].words  # a raw photo, by the encoder in the checkpoint


def test_captions_of_a_store_are_those_of_the_photos(stored_recipe, tmp_path, tiny_scenes):
    captioner = Captioner.from_pretrained(train(stored_recipe, tmp_path / "run", quiet=True).folder / "last")
    records = open_dataset(tiny_scenes).split("val")
    from_photos = caption_records(captioner, records)
    from_store = caption_records(captioner, records, store=FeatureStore(tmp_path / "store"), batch_size=3)
    assert from_photos.keys() == from_store.keys()
    for image_id, caption in from_photos.items():
        assert from_store[image_id].logprob == pytest.approx(caption.logprob, abs=0.02)


def test_features_of_another_encoder_are_refused_by_name(stored_recipe, tmp_path):
    stored_recipe["training"]["epochs"] = 1
    train(stored_recipe, tmp_path / "run", quiet=True)
    for change, message in (
        ({"widths": [8, 16, 8]}, r"are of small_cnn \(fingerprint \w{12}\), not of small_cnn: widths \[8, 16, 16\] "),
        ({"name": "resnet18", "weights": "random", "image_size": 32}, "are of small_cnn .*, not of resnet18: "),
    ):
        other = copy.deepcopy(stored_recipe)
        other["encoder"] = {"trained": False, **({} if "name" in change else stored_recipe["encoder"]), **change}
        other["data"]["path"] = str(tmp_path / "no dataset")  # which is not looked at
        with pytest.raises(DataError, match=message):
            train(other, tmp_path / "other", quiet=True)
        assert not (tmp_path / "other").exists()
    stored_recipe["training"]["seed"] = 7
    with pytest.raises(DataError, match="the settings are the same and the weights are not"):
        train(stored_recipe, tmp_path / "other", quiet=True)


def test_an_image_that_the_store_lacks_is_extracted(stored_recipe, tmp_path):
    stored_recipe["training"]["epochs"] = 1
    train(stored_recipe, tmp_path / "run", quiet=True)
    kept = contents(tmp_path / "store")
    image = sorted(kept)[-1]
    path = str(tmp_path / "store")
    with lmdb.open(path, lock=False, map_size=2**26) as environment, environment.begin(write=True) as transaction:
        transaction.delete(image)
    train(stored_recipe, tmp_path / "again", quiet=True)
    assert contents(tmp_path / "store") == kept


def contents(store: Path) -> dict[bytes, bytes]:
    with lmdb.open(str(store), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return dict(transaction.cursor())


def test_a_photo_that_cannot_be_read_is_named(stored_recipe, tmp_path, tiny_scenes):
    data = tmp_path / "data"
    (data / "images").mkdir(parents=True)
    (data / "annotations").symlink_to(tiny_scenes / "annotations")
    for file in (tiny_scenes / "images").iterdir():
        (data / "images" / file.name).write_bytes(file.read_bytes())
    broken = open_dataset(data).split("train")[3].path
    broken.write_bytes(b"nonsense")
    stored_recipe["data"]["path"] = str(data)
    with pytest.raises(ImageError, match=f"A photo cannot be read: .*{broken.name} is not an image"):
        train(stored_recipe, tmp_path / "run", quiet=True)


@pytest.fixture
def regions(tmp_path: Path) -> tuple[FeatureStore, dict[str, ImageFeatures], list[Any]]:
    """Features of 12 images with 1 to 12 regions each, and records for them."""
    from showtell.datasets.records import CaptionRecord

    chance = np.random.default_rng(0)
    images = {
        str(n): ImageFeatures(
            chance.standard_normal((n, 6)).astype("f2"), (64, 48), chance.random((n, 4)).astype("f4") * 48
        )
        for n in range(1, 13)
    }
    encoder = Precomputed(PrecomputedConfig(feature_size=6, source="a test"))
    with StoreWriter(tmp_path / "regions", StoreInfo.of(encoder, "fp16")) as writer:
        writer.write(images)
    records = [CaptionRecord(n, Path(f"{n}.jpg"), "train", ("a dog runs", "a cat", "two birds fly")) for n in images]
    return FeatureStore(tmp_path / "regions"), images, records


def test_batches_of_a_store_hold_each_image_with_its_own_regions(regions):
    store, images, records = regions
    words = [tokenize(caption) for record in records for caption in record.captions]
    data = TrainingSet(records, store, Vocabulary.build(words), captions_per_image=2, max_length=5, seed=0)
    settings = {"batch_size": 5, "bucket": 2, "seed": 0, "workers": 2}
    batches = list(epoch_batches(data, epoch=0, skip=0, **settings))
    assert sorted(sum((batch.image_ids for batch in batches), ()), key=int) == [str(n) for n in range(1, 13)]
    for batch in batches:
        assert batch.images is None
        assert batch.features.vectors.dtype == torch.float16
        moved = batch.to(torch.device("cpu")).features
        assert (moved.vectors.dtype, moved.regions.boxes.dtype) == (torch.float32, torch.float32)
        assert moved.vectors.shape == (len(batch.image_ids), max(map(int, batch.image_ids)), 6)
        for index, image_id in enumerate(batch.image_ids):
            assert moved.is_region[index].sum() == int(image_id)
            assert np.array_equal(moved.vectors[index][moved.is_region[index]].numpy(), images[image_id].vectors)
            assert np.array_equal(moved.regions.boxes[index][moved.is_region[index]].numpy(), images[image_id].boxes)
            assert not moved.vectors[index][~moved.is_region[index]].any()
    rest = list(epoch_batches(data, epoch=0, skip=2, **settings))
    assert [batch.image_ids for batch in rest] == [batch.image_ids for batch in batches[2:]]


def test_a_decoder_trained_on_foreign_features_says_why_it_cannot_caption_a_photo(tiny_recipe, tmp_path, tiny_scenes):
    records = [record for record in open_dataset(tiny_scenes).records if record.split in ("train", "val")]
    chance = np.random.default_rng(0)
    encoder = Precomputed(PrecomputedConfig(feature_size=6, source="up-down features"))
    with StoreWriter(tmp_path / "foreign", StoreInfo.of(encoder, "fp32")) as writer:
        writer.write({r.image_id: ImageFeatures(chance.random((4, 6), dtype="f4")) for r in records[1:]})
    tiny_recipe["encoder"] = {"name": "precomputed", "feature_size": 6, "source": "up-down features"}
    tiny_recipe["data"]["features"] = str(tmp_path / "foreign")
    tiny_recipe["training"]["epochs"] = 1
    with pytest.raises(DataError, match=rf"has no features of 1 of {len(records)} images: {records[0].image_id}; only"):
        train(tiny_recipe, tmp_path / "run", quiet=True)
    with StoreWriter(tmp_path / "foreign", StoreInfo.of(encoder, "fp32")) as writer:
        writer.write({records[0].image_id: ImageFeatures(chance.random((4, 6), dtype="f4"))})
    run = train(tiny_recipe, tmp_path / "run", quiet=True).folder
    captioner = Captioner.from_pretrained(run / "last")
    with pytest.raises(
        CheckpointError, match="features from up-down features, which were computed elsewhere, so it can"
    ):
        captioner.caption(records[0].path)
    captions = caption_records(captioner, records[:5], store=FeatureStore(tmp_path / "foreign"))
    assert [record.image_id for record in records[:5]] == list(captions)
