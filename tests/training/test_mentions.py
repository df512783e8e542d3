"""Which words of training captions name which boxes, and which regions those are."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from showtell.datasets import open_dataset
from showtell.datasets.records import Box, CaptionRecord, Grounding
from showtell.features.grid import GridEncoder
from showtell.features.small_cnn import SmallCnn, SmallCnnConfig
from showtell.grounding.mentions import category_phrases, named_boxes
from showtell.images.loading import PreparedPhotos
from showtell.objectives.contract import counts_of
from showtell.scenes import read_scenes
from showtell.scenes.annotations import box_id
from showtell.scenes.lexicon import SHAPE_WORDS
from showtell.scenes.parser import parse_caption
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import Vocabulary
from showtell.training import train
from showtell.training.batches import TrainingSet, collate
from showtell.training.mentions import ImageMentions, collate_mentions, find_mentions, locate
from showtell.types import Features, Mentions, NamingWords, Regions
from tests.training.test_loop import log_of


def boxes_of(record: CaptionRecord) -> dict[tuple[float, ...], Box]:
    """The boxes by their corners, as tensors have them."""
    return {
        tuple(torch.tensor([box.x, box.y, box.x + box.width, box.y + box.height]).tolist()): box
        for box in record.boxes or ()
    }


def test_phrases_of_scenes_name_the_items_that_they_describe(tiny_scenes: Path):
    """Parsed words, by the grammar, against the drawn scene: number, shape, colour, size and pattern of every box."""
    scenes = read_scenes(tiny_scenes)
    assert scenes is not None
    records = open_dataset(tiny_scenes).records
    phrases = category_phrases(records)
    seen = 0
    for record in records:
        items = {box_id(int(record.image_id), index): item for index, item in enumerate(scenes[record.image_id].items)}
        boxes = boxes_of(record)
        for caption, text in enumerate(record.captions):
            words = tokenize(text)
            nouns = named_boxes(record, caption, phrases, naming="nouns")
            for phrase in named_boxes(record, caption, phrases, naming="phrases"):
                parsed = parse_caption(" ".join(words[phrase.first : phrase.end]))
                assert parsed is not None, words[phrase.first : phrase.end]
                named = [items[boxes[tuple(corners)].id] for corners in phrase.boxes.tolist()]
                if parsed.total is not None:  # "three shapes" names them all, and has no noun of a category
                    assert len(named) == parsed.total == len(items)
                    continue
                (described,) = parsed.phrases
                assert len(named) == described.count
                for item in named:
                    assert item.shape == described.shape
                    assert all(getattr(item, kind) == value for kind, value in described.attributes)
                noun = nouns.pop(0)
                assert noun.boxes.tolist() == phrase.boxes.tolist()
                assert phrase.first <= noun.first < noun.end <= phrase.end
                forms = {form for pair in SHAPE_WORDS[described.shape] for form in pair}
                assert noun.end == noun.first + 1 and words[noun.first] in forms
                seen += 1
            assert not nouns
    assert seen > 300


def record_of(caption: str, boxes: tuple[Box, ...] | None, groundings: Any = None) -> CaptionRecord:
    return CaptionRecord("1", Path("1.png"), "train", (caption,), boxes, groundings)


def test_words_between_two_phrases_look_at_the_second():
    boxes = (Box(1, 0, 0, 4, 4, "star"), Box(2, 9, 0, 4, 4, "moon"))
    text = "there is a red star that is above a moon today"
    record = record_of(text, boxes, ((Grounding(2, 5, (1,)), Grounding(8, 10, (2,))),))
    unannotated = record_of(text, boxes)
    phrases = category_phrases([record])
    cases: list[tuple[CaptionRecord, NamingWords, list[tuple[int, int, float]]]] = [
        (record, "nouns", [(4, 5, 0), (9, 10, 9)]),
        (record, "phrases", [(2, 5, 0), (8, 10, 9)]),
        (record, "links", [(2, 5, 0), (5, 10, 9)]),
        (unannotated, "links", [(4, 5, 0), (5, 10, 9)]),
    ]
    for of, naming, spans in cases:
        named = named_boxes(of, 0, phrases, naming)
        assert [(phrase.first, phrase.end, float(phrase.boxes[0, 0])) for phrase in named] == spans
    (mentions,) = find_mentions([record], [[12]], naming="links")
    assert mentions.indices[0].tolist() == [-1, -1, 0, 0, 0, 1, 1, 1, 1, 1, -1, -1]


def test_a_batch_has_the_mentions_of_its_own_captions(tiny_scenes: Path):
    """Whatever captions an epoch chooses, each target of the batch that is a noun names boxes of its shape."""
    records = open_dataset(tiny_scenes)["train"]
    vocabulary = Vocabulary.build(tokenize(caption) for record in records for caption in record.captions)
    settings = SmallCnn(SmallCnnConfig(image_size=48, widths=(8,))).preprocessing
    photos = PreparedPhotos([record.path for record in records], settings, 100)
    arguments: dict[str, Any] = {"captions_per_image": 2, "max_length": 7, "seed": 3}
    data = TrainingSet(records, photos, vocabulary, naming="nouns", **arguments)
    plain = TrainingSet(records, photos, vocabulary, **arguments)
    nouns = {form: shape for shape, pairs in SHAPE_WORDS.items() for pair in pairs for form in pair}
    checked = 0
    for epoch in (0, 1):
        batch, without = (collate([of[epoch, index] for index in range(len(of))]) for of in (data, plain))
        assert torch.equal(batch.words, without.words) and counts_of(batch) == counts_of(without)
        assert without.mentions is None and batch.mentions is not None
        assert batch.mentions.indices.shape == batch.targets.shape
        assert batch.mentions.windows.tolist() == [[0, 0, 48, 48]] * len(records)
        for image, record in enumerate(records):
            boxes = boxes_of(record)
            targets, indices = batch.targets[image].flatten().tolist(), batch.mentions.indices[image].flatten().tolist()
            for word, index in zip(targets, indices, strict=True):
                shape = nouns.get(vocabulary.words[word])
                assert (index >= 0) == (shape is not None)
                if index >= 0:
                    named = batch.mentions.boxes[image, index].tolist()
                    assert {boxes[tuple(corners)].category for corners in named} == {shape}
                    checked += 1
    assert checked > 100


class Cells(GridEncoder):
    """2 x 3 cells of 10 pixels, or the regions that the features have."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)

    def maps(self, images: Tensor) -> Tensor:
        raise NotImplementedError

    def rectangles(self, features: Features, windows: Tensor) -> Tensor:
        if features.regions is not None:
            return features.regions.boxes
        cells = torch.tensor([[x, y, x + 10.0, y + 10.0] for y in (0.0, 10.0) for x in (0.0, 10.0, 20.0)])
        return cells + windows[:, [0, 1, 0, 1]].unsqueeze(1)


def two_images() -> Mentions:
    """An image that names a box, and two at once; and one that was cropped by 100 pixels, whose box is half seen."""
    one = torch.tensor([[5.0, 0.0, 20.0, 10.0]])
    two = torch.tensor([[0.0, 0.0, 10.0, 5.0], [5.0, 0.0, 10.0, 10.0]])
    other = torch.tensor([[95.0, 0.0, 105.0, 10.0]])
    images = [
        ImageMentions((one, two), (torch.tensor([-1, 0, 1, -1]), torch.tensor([0, -1]))),
        ImageMentions((other,), (torch.tensor([0, -1]),)),
    ]
    return collate_mentions(images, [(0, 0, 30, 20), (100, 0, 130, 20)], (2, 4))


def test_the_targets_of_a_grid_are_shares_of_cells():
    mentions = two_images()
    assert mentions.indices.tolist() == [[[-1, 0, 1, -1], [0, -1, -1, -1]], [[0, -1, -1, -1], [-1, -1, -1, -1]]]
    located = locate(mentions, Cells(), Features(torch.zeros(2, 6, 1), torch.ones(2, 6, dtype=torch.bool))).targets
    assert located is not None
    assert located[0, 0].tolist() == pytest.approx([0.5, 1, 0, 0, 0, 0])
    assert located[0, 1].tolist() == pytest.approx([0.75, 0, 0, 0, 0, 0])  # the union of both, counted once
    assert located[1, 0].tolist() == pytest.approx([0.5, 0, 0, 0, 0, 0])


def test_the_targets_of_detected_regions_are_those_that_overlap_by_half():
    boxes = torch.tensor(
        [
            [[5.0, 0.0, 20.0, 10.0], [0.0, 0.0, 20.0, 10.0], [0.0, 0.0, 30.0, 20.0], [5.0, 0.0, 9.0, 10.0]],
            [[95.0, 0.0, 104.0, 10.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]],
        ]
    )
    is_region = torch.tensor([[True] * 4, [True, False, False, False]])
    located = locate(two_images(), Cells(), Features(torch.zeros(2, 4, 1), is_region, Regions(boxes))).targets
    assert located is not None
    assert located[0, 0].tolist() == [1, 1, 0, 0]
    assert located[0, 1].tolist() == [0, 0, 0, 1]  # the second of its two boxes
    assert located[1, 0].tolist() == [1, 0, 0, 0]


def test_a_run_learns_to_look(tiny_recipe, tmp_path):
    del tiny_recipe["objective"]["doubly_stochastic"]  # it asks for the opposite
    tiny_recipe["objective"]["attention_supervision"] = {"weight": 2}
    tiny_recipe["training"]["epochs"] = 2
    log = log_of(train(tiny_recipe, tmp_path / "run", quiet=True).folder)
    losses = [line["attention_supervision"] for line in log if "loss" in line]
    assert len(losses) == 14 and sum(losses[-5:]) < sum(losses[:5])
