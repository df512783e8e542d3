from pathlib import Path

from showtell.datasets import read_dataset
from tests.datasets.makers import in_folders, sentences, write_files, write_photo


def test_a_caption_a_line(tmp_path: Path) -> None:
    texts = {"a.txt": "A dog.\n A dog, running. \r\n\n", "b.TXT": "\ufeffEin Hund", "c.d.txt": "A cat."}
    write_files(tmp_path, {**texts, "notes.txt": "!"}, "a.jpg b.png c.d.jpeg")
    dataset = read_dataset(tmp_path)
    assert (dataset.format, dataset.problems) == ("text_files", ())
    captions = [(record.path.name, record.captions) for record in dataset.records]
    assert captions == [("a.jpg", ("A dog.", "A dog, running.")), ("b.png", ("Ein Hund",)), ("c.d.jpeg", ("A cat.",))]
    assert set(dataset.splits) == {"train", "val", "test"}
    (warning,) = dataset.warnings
    assert warning.endswith("train.txt, val.txt and test.txt, would choose them.")


def test_folders_of_splits(tmp_path: Path) -> None:
    write_files(tmp_path, {"train/a.txt": "A.", "validation/a.txt": "B."}, "train/a.jpg validation/a.jpg")
    dataset = read_dataset(tmp_path)
    records = [(record.image_id, record.split, record.captions) for record in dataset.records]
    assert records == [("train/a.jpg", "train", ("A.",)), ("validation/a.jpg", "val", ("B.",))]
    assert dataset.problems == dataset.warnings == ()


def test_lists_choose_splits_unless_a_photo_has_their_name(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": "A.", "b.txt": "B.", "val.txt": "a\n", "test.txt": "b.jpg\n"}, "a.jpg b.jpg")
    assert [record.split for record in read_dataset(tmp_path).records] == ["val", "test"]
    write_photo(tmp_path / "val.jpg")  # now val.txt has its captions
    assert [record.image_id for record in read_dataset(tmp_path).records] == ["b.jpg"]


NO_ROW = "1 image has no captions, unlike others in the folder, left out"
MISTAKES = [
    ({"a.txt": "A."}, "a.jpg b.jpg", [], [f"{NO_ROW}: train/b.jpg."]),
    ({"a.txt": "A."}, "a.jpg a.png",
     ["1 text file belongs to more than one photo: a.jpg and a.png; give each photo a name of its own."],
     []),
    ({"a.txt": " \n"}, "a.jpg", ["… holds no image with captions."], [f"{NO_ROW}: train/a.jpg."]),
]  # fmt: skip


def test_mistakes(tmp_path: Path) -> None:
    for folder, (texts, photos, problems, warnings) in in_folders(tmp_path, MISTAKES):
        write_files(folder / "train", texts, photos)
        assert sentences(folder) == (problems, warnings)


def test_texts_that_cannot_be_read_are_named_together(tmp_path: Path) -> None:
    texts: dict[str, str | bytes] = {"b.txt": "garçon".encode("latin-1"), "c.txt": b"A\0"}
    write_files(tmp_path / "train", {"a.txt": "A.", **texts}, "a.jpg b.jpg c.jpg")
    (problem,), _ = sentences(tmp_path)
    assert problem.startswith("2 text files cannot be read: …/train/b.txt is not in UTF-8: line 1 ")
