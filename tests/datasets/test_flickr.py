import itertools
from pathlib import Path

import pytest

from showtell.datasets import read_dataset
from tests.datasets.makers import in_folders, sentences, write_files

PHOTOS = "a.jpg b.jpg"
TOKEN = "a.jpg#0\tA dog , running .\na.jpg#1\tA dog .\nb.jpg#0\tA cat .\n"
COMMA = "image,caption\na.jpg,A dog , running .\na.jpg,A dog .\nb.jpg,A cat .\n"
BAR = "image_name| comment_number| comment\na.jpg| 0| A dog , running .\na.jpg| 1   A dog .\nb.jpg| 0| A cat .\n"
LISTS = {"Flickr_8k.trainImages.txt": "a.jpg\n", "Flickr_8k.devImages.txt": "b.jpg\n"}
RECORDS = [("a.jpg", "train", ("A dog , running .", "A dog .")), ("b.jpg", "val", ("A cat .",))]
FORMS = [
    *(("Flickr8k.token.txt", TOKEN), ("Flickr8k_text/Flickr8k.token.txt", TOKEN), ("Flickr8k.lemma.token.txt", TOKEN)),
    *(("results_20130124.token", TOKEN.replace("\n", "\r\n")), ("results.csv", BAR), ("captions.txt", COMMA)),
    ("captions.txt", "\n" + COMMA.partition("\n")[2]),
    ("captions.txt", COMMA.replace("A dog , running .", '"A dog , running ."')),
]


def test_forms_and_layouts(tmp_path: Path) -> None:
    cases = itertools.product(["Flicker8k_Dataset", "Images", "flickr30k-images", "images", "."], FORMS)
    for folder, (photos, (name, text)) in in_folders(tmp_path, cases):
        lists = {str(Path(name).parent / file): content for file, content in LISTS.items()}
        write_files(folder, {name: text, **lists}, f"{photos}/a.jpg {photos}/b.jpg")
        for path in (folder, folder / name):
            dataset = read_dataset(path)
            assert (dataset.format, dataset.problems, dataset.warnings) == ("flickr", (), ())
            assert [(record.image_id, record.split, record.captions) for record in dataset.records] == RECORDS
            assert dataset.records[0].path == folder / photos / "a.jpg"


def test_plain_captions_are_preferred_and_the_lemmatised_read_when_named(tmp_path: Path) -> None:
    write_files(tmp_path, {"F.token.txt": TOKEN, "F.lemma.token.txt": TOKEN.replace("running", "run"), **LISTS}, PHOTOS)
    assert read_dataset(tmp_path).records[0].captions[0] == "A dog , running ."
    assert read_dataset(tmp_path / "F.lemma.token.txt").records[0].captions[0] == "A dog , run ."


def test_images_in_no_list_are_left_out_and_unknown_ones_said(tmp_path: Path) -> None:
    text = TOKEN + "a.jpg.1#0\tA dog .\n"
    write_files(tmp_path, {"Flickr8k.token.txt": text, "Flickr_8k.testImages.txt": "b.jpg\nc.jpg\n"}, PHOTOS)
    assert read_dataset(tmp_path).splits == {"test": 1}
    problems, warnings = sentences(tmp_path)
    assert problems == [] and warnings == [
        "1 name in Flickr8k.token.txt that no image can have, left out: a.jpg.1.",
        "1 image in Flickr_8k.testImages.txt without a caption in Flickr8k.token.txt: c.jpg.",
        "1 image of Flickr8k.token.txt left out, being in none of Flickr_8k.testImages.txt: a.jpg.",
    ]


MISTAKES = [
    (TOKEN + "b.jpg A cat .\n", "1 line of captions.token cannot be used: 4; each is like dog.jpg#0<TAB>A dog runs."),
    (TOKEN + "b.jpg#1\tA\0\n", "…/captions.token has null bytes; save it as text in UTF-8."),
]


def test_mistakes(tmp_path: Path) -> None:
    for folder, (content, problem) in in_folders(tmp_path, MISTAKES):
        write_files(folder, {"captions.token": content, **LISTS}, PHOTOS)
        assert sentences(folder)[0] == [problem]


@pytest.mark.shared
def test_all_of_flickr8k(shared_data: Path) -> None:
    dataset = read_dataset(shared_data / "flickr8k")
    assert (len(dataset.records), sum(len(record.captions) for record in dataset.records)) == (8091, 40455)
    assert dataset.problems[0].startswith("8,091 image files are missing: 1000268201_693b08cb0e.jpg,")
    assert "1012212859_01547e3f17.jpg" in {record.image_id for record in dataset.records}
    quoted = next(record for record in dataset.records if record.image_id == "1012212859_01547e3f17.jpg")
    assert "A dog shakes its head near the shore , a red ball next to it ." in quoted.captions
