"""Training from a store: what it changes, what it refuses, and that stopping anywhere still changes nothing."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from showtell.captioners import Captioner
from showtell.datasets import open_dataset
from showtell.datasets.records import CaptionRecord
from showtell.errors import DataError
from showtell.evaluation import caption_records
from showtell.features.precomputed import Precomputed, PrecomputedConfig
from showtell.features.store import FeatureStore, ImageFeatures, StoreInfo
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import Vocabulary
from showtell.training import train
from showtell.training.batches import TrainingSet, epoch_batches
from tests.features.test_store import write
from tests.training.test_loop import log_of


@pytest.fixture
def stored_recipe(tiny_recipe: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    tiny_recipe["encoder"]["trained"] = False
    tiny_recipe["data"]["features"] = str(tmp_path / "store")
    tiny_recipe["training"]["epochs"] = 1
    return tiny_recipe


def test_features_are_extracted_first_and_training_learns_from_them(stored_recipe, tmp_path, tiny_scenes):
    run = train(stored_recipe, tmp_path / "run", quiet=True).folder
    store = FeatureStore(tmp_path / "store")
    dataset = open_dataset(tiny_scenes)
    assert set(store.ids()) == {record.image_id for record in dataset.records if record.split in ("train", "val")}
    # The same run on photos differs by the rounding to half precision alone.
    from_photos = copy.deepcopy(stored_recipe)
    del from_photos["data"]["features"]
    ours, theirs = log_of(run), log_of(train(from_photos, tmp_path / "photos", quiet=True).folder)
    assert len(ours) == len(theirs)
    losses = [(line["loss"], again["loss"]) for line, again in zip(ours, theirs, strict=True) if "loss" in line]
    assert [loss for loss, _ in losses] == pytest.approx([loss for _, loss in losses], rel=2e-3)
    assert any(loss != again for loss, again in losses)
    captioner, records = Captioner.from_pretrained(run / "best"), dataset["val"]
    store.require(captioner.encoder)
    from_photos, from_store = caption_records(captioner, records), caption_records(captioner, records, store=store)
    assert from_photos.keys() == from_store.keys()
    for image_id, caption in from_photos.items():
        assert from_store[image_id].logprob == pytest.approx(caption.logprob, abs=0.02)


def test_features_of_another_encoder_are_refused_by_name(stored_recipe, tmp_path):
    train(stored_recipe, tmp_path / "run", quiet=True)
    encoder, data = stored_recipe["encoder"], stored_recipe["data"]
    for changed, message in (
        ({"encoder": encoder | {"widths": [8, 16, 8]}}, r"of small_cnn .*, not of small_cnn: widths \[8, 16, 16\] "),
        ({"training": stored_recipe["training"] | {"seed": 7}}, "the settings are the same and the weights are not"),
    ):
        is_seed = "training" in changed  # otherwise the dataset is not looked at
        other = stored_recipe | {"data": data if is_seed else data | {"path": str(tmp_path / "none")}} | changed
        with pytest.raises(DataError, match=message):
            train(other, tmp_path / "other", quiet=True)
        assert not (tmp_path / "other").exists()


@pytest.fixture
def regions(tmp_path: Path) -> tuple[FeatureStore, dict[str, ImageFeatures], list[Any]]:
    """Features of 12 images with 1 to 12 regions each, and records for them."""
    chance = np.random.default_rng(0)
    images = {
        str(n): ImageFeatures(
            chance.standard_normal((n, 6)).astype("f2"), (64, 48), chance.random((n, 4)).astype("f4") * 48
        )
        for n in range(1, 13)
    }
    info = StoreInfo.of(Precomputed(PrecomputedConfig(feature_size=6, source="a test")), "fp16")
    records = [CaptionRecord(n, Path(f"{n}.jpg"), "train", ("a dog runs", "a cat", "two birds fly")) for n in images]
    return FeatureStore(write(tmp_path / "regions", images, info)), images, records


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
