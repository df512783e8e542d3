"""What a dataset knows of its images."""

from pathlib import Path

from showtell.datasets import open_dataset
from showtell.scenes import read_scenes
from showtell.scenes.world import SHAPES
from showtell.scores import ImageFacts, image_facts


def test_a_drawn_dataset_has_scenes_in_place_of_objects(tiny_scenes: Path) -> None:
    dataset = open_dataset(tiny_scenes)
    facts, scenes = image_facts(dataset), read_scenes(tiny_scenes)
    assert scenes is not None
    assert facts.keys() == scenes.keys()
    for record in dataset.records:
        expected = ImageFacts(record.captions, objects=None, scene=scenes[record.image_id], path=record.path)
        assert facts[record.image_id] == expected
    val = dataset["val"]
    assert list(image_facts(val)) == [record.image_id for record in val]


def test_a_dataset_with_boxes_has_their_categories(tiny_boxes: Path) -> None:
    dataset = open_dataset(tiny_boxes)
    facts = image_facts(dataset)
    for record in dataset.records:
        assert record.boxes
        assert facts[record.image_id].objects == {box.category for box in record.boxes}
        assert facts[record.image_id].scene is None
    assert {category for one in facts.values() for category in one.objects or ()} == set(SHAPES)
