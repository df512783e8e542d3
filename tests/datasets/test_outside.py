"""No reader opens a file that a name leads to outside the dataset's folder."""

import itertools
import json
from pathlib import Path

from showtell.datasets import read_dataset
from showtell.datasets.image_files import ImageFiles
from tests.datasets.makers import captioned, in_folders, listed, write_photo

FILES = {
    "karpathy": ("d.json", '{"images": [{"filename": "NAME", "split": "train", "sentences": [{"raw": "A."}]}]}'),
    "coco": ("captions_train.json", json.dumps({"images": listed(1, name="NAME"), "annotations": captioned(1)})),
    "flickr": ("F.token", "NAME#0\tA dog .\n"),
    "table": ("captions.csv", 'image,caption,split\n"NAME",A.,train\n'),
    "jsonl": ("train.jsonl", '{"image": "NAME", "caption": "A."}\n'),
}


def test_names_that_lead_outside(tmp_path: Path) -> None:
    names = ["../secret.jpg", "a/../../secret.jpg", "{absolute}", "..\\secret.jpg", "C:\\secret.jpg"]
    for folder, (reader, name) in in_folders(tmp_path, itertools.product(FILES, names)):
        write_photo(folder / "secret.jpg")
        name = name.replace("{absolute}", str(folder / "secret.jpg"))
        folder = folder / "data"
        write_photo(folder / "a" / "secret.jpg")  # by its bare name it would be found
        file, form = FILES[reader]
        (folder / file).write_text(form.replace('"NAME"', json.dumps(name)).replace("NAME", name))
        dataset = read_dataset(folder)
        assert dataset.format == reader and dataset.records == ()
        (problem,) = [problem for problem in dataset.problems if "outside its folder" in problem]
        assert problem.startswith(f"1 image file named in {file} outside its folder: ")
        assert problem.endswith("secret.jpg; put them into the folder and name them from there.")


def test_names_that_stay_inside(tmp_path: Path) -> None:
    for folder, name in in_folders(tmp_path, ["a/../b.jpg", "..b.jpg", "a..jpg", "./b.jpg", "a/b/../../b.jpg"]):
        assert ImageFiles([folder]).find([name]) == Path(folder, name)
