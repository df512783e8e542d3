from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from showtell.datasets.records import CaptionRecord
from showtell.errors import ImageError
from showtell.images.loading import PreparedPhotos
from showtell.images.preprocessing import Preprocessing
from showtell.objectives.contract import counts_of
from showtell.text.vocabulary import Vocabulary
from showtell.training.batches import TrainingSet, epoch_batches, epoch_plan

SETTINGS = Preprocessing(
    image_size=8, resize="squash", interpolation="bilinear", mean=(0.5,) * 3, deviation=(0.25,) * 3
)
WORDS = ["one", "two", "three", "four", "five", "six", "seven"]


@pytest.fixture
def data(tmp_path: Path) -> TrainingSet:
    records = []
    for number in range(10):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (8, 8), (number * 20, 0, 0)).save(path)
        captions = tuple(" ".join(WORDS[: 1 + (number + k) % 7]) for k in range(1 + number % 7))
        records.append(CaptionRecord(str(number), path, "train", captions))
    return TrainingSet(
        records, PreparedPhotos([record.path for record in records], SETTINGS, memory_megabytes=1), Vocabulary(WORDS),
        captions_per_image=3, max_length=5, seed=0,
    )  # fmt: skip


def every_batch(data: TrainingSet, **changes: int):
    settings = {"epoch": 0, "skip": 0, "batch_size": 4, "bucket": 1, "seed": 0, "workers": 0, **changes}
    return list(epoch_batches(data, **settings))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_photo_that_cannot_be_read_is_named_in_one_line(workers, data, tmp_path):
    data.images = PreparedPhotos([tmp_path / f"{number}.png" for number in range(10)], SETTINGS)
    (tmp_path / "7.png").write_bytes(b"no picture")
    with pytest.raises(ImageError) as caught:
        every_batch(data, workers=workers)
    assert str(caught.value) == f"{tmp_path}/7.png is not an image: it holds text."


def test_an_epoch_has_every_image_once_with_its_own_picture_and_captions(data):
    batches = every_batch(data)
    assert [len(batch.image_ids) for batch in batches] == [4, 4, 2]
    image_ids = [image for batch in batches for image in batch.image_ids]
    assert sorted(image_ids, key=int) == [str(number) for number in range(10)]
    vocabulary = Vocabulary(WORDS)
    for batch in batches:
        for index, image in enumerate(batch.image_ids):
            number = int(image)
            assert int(batch.images[index, 0, 0, 0]) == number * 20
            assert int(batch.is_caption[index].sum()) == min(3, 1 + number % 7)
            allowed = [WORDS[: min(5, 1 + (number + k) % 7)] for k in range(1 + number % 7)]
            for row in batch.words[index][batch.is_caption[index]]:
                assert vocabulary.decode(row.tolist()) in allowed
            assert int(batch.words[index][~batch.is_caption[index]].abs().sum()) == 0


def test_order_and_choice_of_captions_change_with_the_epoch_and_repeat_with_the_seed(data):
    first, again, second = every_batch(data), every_batch(data), every_batch(data, epoch=1)
    assert all(torch.equal(a.words, b.words) and a.image_ids == b.image_ids for a, b in zip(first, again, strict=True))
    ids = [batch.image_ids for batch in first]
    assert ids != [batch.image_ids for batch in second]
    assert [batch.image_ids for batch in every_batch(data, skip=2)] == ids[2:]

    def chosen(batches, image):  # image 6 has seven captions
        return next(batch.words[batch.image_ids.index(image)].tolist() for batch in batches if image in batch.image_ids)

    assert any(chosen(every_batch(data, epoch=epoch), "6") != chosen(first, "6") for epoch in range(1, 5))


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=80),
    batch_size=st.integers(1, 9),
    bucket=st.integers(1, 5),
)
def test_a_plan_has_every_image_once_and_one_short_batch_at_the_end(lengths, batch_size, bucket):
    plan = epoch_plan(lengths, batch_size=batch_size, bucket=bucket, seed=0, epoch=0)
    assert sorted(index for batch in plan for index in batch) == list(range(len(lengths)))
    assert all(len(batch) == batch_size for batch in plan[:-1])


def test_buckets_leave_little_padding_and_still_change_with_the_epoch():
    lengths = [3 + index * 7 % 19 for index in range(400)]

    def padding(plan: list[list[int]]) -> int:
        return sum(max(lengths[index] for index in batch) * len(batch) for batch in plan) - sum(lengths)

    sorted_plan = epoch_plan(lengths, batch_size=10, bucket=8, seed=0, epoch=0)
    assert padding(sorted_plan) < 0.3 * padding(epoch_plan(lengths, batch_size=10, bucket=1, seed=0, epoch=0))
    assert sorted_plan != epoch_plan(lengths, batch_size=10, bucket=8, seed=0, epoch=1)
    assert sorted_plan != epoch_plan(lengths, batch_size=10, bucket=8, seed=1, epoch=0)


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_processes_share_each_batch_and_one_without_images_keeps_pace(data, processes):
    whole = every_batch(data)  # of 4, 4 and 2 images
    shares = [every_batch(data, process=process, processes=processes) for process in range(processes)]
    for batch, *parts in zip(whole, *shares, strict=True):
        counted = [part for part in parts if not part.is_dummy]
        assert sorted(image for part in counted for image in part.image_ids) == sorted(batch.image_ids)
        assert [part.is_dummy for part in parts] == [process >= len(batch.image_ids) for process in range(processes)]
        for rank, part in enumerate(parts):
            assert part.image_ids == (batch.image_ids[rank::processes] or batch.image_ids[:1])
        assert counts_of(*parts) == counts_of(batch)
