"""Extraction: equal to encoding by hand, and equal to the last byte however often it is killed."""

import dataclasses
import multiprocessing
import random
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Semaphore
from pathlib import Path

import lmdb
import numpy as np
import pytest
import torch

from showtell.datasets import open_dataset
from showtell.datasets.records import CaptionRecord
from showtell.errors import DataError, ImageError
from showtell.features import Encoder, build_encoder, encoder_config
from showtell.features.extraction import extract, fill_store, split_batch
from showtell.features.store import FeatureStore
from showtell.images.photo import open_photo
from showtell.types import Features, PreparedBatch, Regions


def contents(store: Path) -> dict[bytes, bytes]:
    with lmdb.open(str(store), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return dict(transaction.cursor())


@pytest.fixture(scope="module")
def records(tiny_scenes: Path) -> tuple[CaptionRecord, ...]:
    return open_dataset(tiny_scenes).records


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    torch.manual_seed(0)
    return build_encoder(encoder_config({"name": "small_cnn", "image_size": 48, "widths": [16, 16, 16]}))


def test_the_store_holds_what_the_encoder_sees_in_each_photo(records, encoder, tmp_path):
    done: list[int] = []
    result = extract(encoder, records, tmp_path / "store", dtype="fp32", batch_size=7, progress=done.append)
    assert (result.written, result.already, result.unreadable) == (60, 0, ())
    assert (sum(done), len(done)) == (60, 10)  # told at the start and after each of 9 batches
    assert encoder.training  # as it was before
    store = FeatureStore(tmp_path / "store")
    encoder.eval()
    for record in records:
        photo = open_photo(record.path)
        with torch.no_grad():
            alone = encoder(PreparedBatch.of(encoder.preprocessing.prepare(photo).unsqueeze(0))).vectors[0]
        assert store[record.image_id].size == photo.size == (48, 48)
        assert np.abs(store[record.image_id].vectors - alone.numpy()).max() < 1e-5
    encoder.train()


def test_what_is_there_is_not_made_again_and_what_is_damaged_is(records, encoder, tmp_path, monkeypatch):
    store = tmp_path / "store"
    extract(encoder, records[:20], store, batch_size=8)
    before = contents(store)
    result = extract(encoder, records, store, batch_size=8)
    assert (result.written, result.already) == (40, 20)
    after = contents(store)
    assert {key: after[key] for key in before} == before
    data = (store / "data.mdb").read_bytes()
    (store / "data.mdb").write_bytes(data.replace(after[records[30].image_id.encode()][-64:], bytes(64)))
    assert extract(encoder, records, store, batch_size=8).written == 1
    monkeypatch.setattr(type(encoder), "forward", None)  # another run has nothing to encode
    assert extract(encoder, records, store, batch_size=8).already == 60
    assert contents(store) == after


def test_a_broken_photo_costs_the_others_nothing(records, encoder, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"nonsense")
    mixed = list(records)
    mixed[3], mixed[11] = (dataclasses.replace(records[index], path=broken) for index in (3, 11))
    for _ in range(2):  # resuming names them again, and does no other image twice
        result = extract(encoder, mixed, tmp_path / "store", batch_size=8)
        assert len(result.unreadable) == 2
        assert "broken.png is not an image" in str(result.unreadable[0])
    assert (result.written, result.already) == (0, 58)
    missing = FeatureStore(tmp_path / "store").missing([record.image_id for record in records])
    assert missing == [records[3].image_id, records[11].image_id]
    broken.write_bytes(records[3].path.read_bytes())  # mended: only what is missing is written
    assert extract(encoder, mixed, tmp_path / "store", batch_size=8).written == 2


def test_filling_reads_a_full_store_and_keeps_the_precision_of_another(records, encoder, tmp_path):
    store = tmp_path / "store"
    extract(encoder, records[:9], store, dtype="fp32")
    lost = dataclasses.replace(records[9], path=tmp_path / "lost.png")
    with pytest.raises(ImageError, match=r"A photo cannot be read: There is no file .*lost\.png"):
        fill_store(store, encoder, [*records[:9], lost])
    fill_store(store, encoder, records)
    assert FeatureStore(store)[records[50].image_id].vectors.dtype == np.float32
    (store / "data.mdb").chmod(0o444)
    before = (store / "data.mdb").stat().st_mtime_ns
    fill_store(store, encoder, records)
    assert (store / "data.mdb").stat().st_mtime_ns == before


def test_entries_of_a_batch_have_no_padding():
    is_region = torch.tensor([[True, False], [True, True]])
    numbers = torch.arange(4.0).view(2, 2)
    regions = Regions(numbers.unsqueeze(-1).expand(2, 2, 4), numbers / 10, numbers.long())
    one, two = split_batch(Features(numbers.unsqueeze(-1), is_region, regions), [(5, 6), (7, 8)])
    assert (one.size, one.vectors.tolist(), one.boxes.tolist()) == ((5, 6), [[0]], [[0] * 4])
    assert (two.labels.tolist(), two.scores.tolist(), two.attributes) == ([2, 3], pytest.approx([0.2, 0.3]), None)


def test_killed_at_twelve_moments_the_store_is_the_same_to_the_last_byte(records, encoder, tmp_path):
    """SIGKILL somewhere between one batch and the next; a forked child starts in no time."""
    extract(encoder, records, tmp_path / "whole", batch_size=2)
    moments = random.Random(0)
    context = multiprocessing.get_context("fork")
    counts = []
    for _ in range(12):
        told = context.Semaphore(0)
        child = context.Process(target=_extract_and_tell, args=(encoder, records, tmp_path / "broken", told))
        child.start()
        for _ in range(moments.randint(1, 3)):  # told once at the start, then after each batch
            assert told.acquire(timeout=60)
        time.sleep(moments.uniform(0, 0.01))
        child.kill()
        child.join()
        counts.append(_images(tmp_path / "broken"))
    assert counts == sorted(counts)  # nothing is lost
    assert len(set(counts)) > 2, "no kill hit the work"
    extract(encoder, records, tmp_path / "broken", batch_size=2)
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


def _extract_and_tell(encoder: Encoder, records: Sequence[CaptionRecord], store: Path, told: Semaphore) -> None:
    extract(encoder, records, store, batch_size=2, progress=lambda done: told.release())
    for _ in range(3):  # where nothing is left to do
        told.release()


def _images(store: Path) -> int:
    try:
        return len(FeatureStore(store))
    except DataError:  # killed before there was anything
        return 0
