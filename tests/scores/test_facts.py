"""What a dataset knows of its images."""

from pathlib import Path

from showtell.datasets import open_dataset
from showtell.scenes.world import SHAPES
from showtell.scores import image_facts


def test_a_dataset_with_boxes_has_their_categories(tiny_boxes: Path) -> None:
    dataset = open_dataset(tiny_boxes)
    facts = image_facts(dataset)
    for record in dataset.records:
        assert record.boxes
        assert facts[record.image_id].objects == {box.category for box in record.boxes}
        assert facts[record.image_id].scene is None
    assert {category for one in facts.values() for category in one.objects or ()} == set(SHAPES)
