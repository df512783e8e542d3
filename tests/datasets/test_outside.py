"""No reader opens a file that a name leads to outside the dataset's folder."""

import json
from pathlib import Path

import pytest

from showtell.datasets import read_dataset
from showtell.datasets.image_files import ImageFiles
from tests.datasets.makers import captioned, write_photo

FILES = {
    "karpathy": ("d.json", '{{"images": [{{"filename": {0}, "split": "train", "sentences": [{{"raw": "A."}}]}}]}}'),
    "coco": (
        "captions_train.json",
        f'{{{{"images": [{{{{"id": 1, "file_name": {{0}}}}}}], "annotations": {json.dumps(captioned(1)).replace("{", "{{").replace("}", "}}")}}}}}',  # noqa: E501
    ),
    "flickr": ("F.token", "{1}#0\tA dog .\n"),
    "table": ("captions.csv", "image,caption,split\n{0},A.,train\n"),
    "jsonl": ("train.jsonl", '{{"image": {0}, "caption": "A."}}\n'),
}


@pytest.mark.parametrize(
    "name", ["../secret.jpg", "a/../../secret.jpg", "{absolute}", "..\\secret.jpg", "C:\\secret.jpg"]
)
@pytest.mark.parametrize("reader", FILES)
def test_names_that_lead_outside(tmp_path: Path, reader: str, name: str) -> None:
    write_photo(tmp_path / "secret.jpg")
    folder = tmp_path / "data"
    write_photo(folder / "a" / "secret.jpg")  # by its bare name it would be found
    name = name.replace("{absolute}", str(tmp_path / "secret.jpg"))
    file, form = FILES[reader]
    (folder / file).write_text(form.format(json.dumps(name), name))
    dataset = read_dataset(folder)
    assert dataset.format == reader and dataset.records == ()
    (problem,) = [problem for problem in dataset.problems if "outside its folder" in problem]
    assert problem.startswith(f"{file} names 1 image file outside its folder: ")
    assert problem.endswith("secret.jpg; put the images into the folder and name them from there.")


@pytest.mark.parametrize("name", ["a/../b.jpg", "..b.jpg", "a..jpg", "./b.jpg", "a/b/../../b.jpg"])
def test_names_that_stay_inside(tmp_path: Path, name: str) -> None:
    assert ImageFiles([tmp_path]).find([name]) == Path(tmp_path, name)
