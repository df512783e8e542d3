"""Tables, entries and folders as the world has them: the same captions whatever the layout, by file and by folder."""

import csv
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from showtell.datasets import read_dataset
from tests.datasets.makers import in_folders, sentences, write_files

Records = list[tuple[str, str, tuple[str, ...]]]  # image id, split, captions


def records_of(path: Path) -> Records:
    dataset = read_dataset(path)
    assert dataset.problems == ()
    return sorted((record.image_id, record.split, record.captions) for record in dataset.records)


def metadata(*rows: str) -> str:
    return "\n".join(["file_name,text", *rows])


def entry(image: str, *captions: str, **more: object) -> str:
    return json.dumps({"image": image, "caption": list(captions), **more})


TRAIN_AND_TEST = [("test/1.jpg", "test", ("B.",)), ("train/1.jpg", "train", ("A.",))]
BY_NAME = [(f"{x}.jpg", "train" if x in "ab" else "val", (f"{x.upper()}.",)) for x in "abcd"]
KARPATHY = [("c_a", "train", ("A.",)), ("c_b", "test", ("B.",)), ("c_c", "val", ("C.",))]
# Files, photos, and the records of the folder.
LAYOUTS: list[tuple[dict[str, str], str, Records]] = [
    # the image folder of Hugging Face, with data/ or not
    ({"train/metadata.csv": metadata("1.jpg,A."), "test/metadata.csv": metadata("1.jpg,B.")}, "train/1.jpg test/1.jpg",
     TRAIN_AND_TEST),
    ({f"data/{split}/metadata.jsonl": entry("1.jpg", text) for split, text in (("train", "A."), ("test", "B."))},
     "data/train/1.jpg data/test/1.jpg", TRAIN_AND_TEST),
    ({"metadata.csv": metadata("train/1.jpg,A.", "test/1.jpg,B.")}, "train/1.jpg test/1.jpg", TRAIN_AND_TEST),
    # BLIP's files of COCO, and anybody's that differ in the split alone
    ({f"coco_karpathy_{split}.json": f"[{entry(f'{x}.jpg', f'{x.upper()}.', image_id=f'c_{x}')}]"
      for x, split in (("a", "train"), ("b", "test"), ("c", "val"))}, "a.jpg b.jpg c.jpg", KARPATHY),
    ({"my_train_set1.csv": "id,image,caption\nc_a,a.jpg,A.\n", "my_test_set1.csv": "id,image,caption\nc_b,b.jpg,B.\n",
      "my_val_set1.csv": "id,image,caption\nc_c,c.jpg,C.\n"}, "a.jpg b.jpg c.jpg", KARPATHY),
    # ids that number the rows of each file
    ({"train.csv": "id,image,caption\n0,a.jpg,A.\n1,b.jpg,B.\n",
      "val.csv": "id,image,caption\n0,c.jpg,C.\n1,d.jpg,D.\n"}, "a.jpg b.jpg c.jpg d.jpg", BY_NAME),
    # trainers of image generators, img2dataset, and sidecars of both suffixes in subfolders
    ({"train/10_dog/1.txt": "A.", "test/5_cat/1.caption": "B."}, "train/10_dog/1.jpg test/5_cat/1.jpg",
     [("test/5_cat/1.jpg", "test", ("B.",)), ("train/10_dog/1.jpg", "train", ("A.",))]),
    ({"00000/000000000.txt": "A.", "00000/000000000.json": "{}", "00000_stats.json": "{}", "train.txt": "000000000"},
     "00000/000000000.jpg", [("00000/000000000.jpg", "train", ("A.",))]),
    ({"1.txt": "A.", "2.txt": " \n", "train.txt": "1"}, "1.jpg 2.jpg", [("1.jpg", "train", ("A.",))]),
    # tables by bars, with Excel's line, with lists printed into cells by Python, NumPy and JSON, and with restval
    ({"f30k_captions.csv": "image_name| comment_number| comment\n1.jpg| 0| A dog , B .\n", "train.txt": "1"}, "1.jpg",
     [("1.jpg", "train", ("A dog , B .",))]),
    ({"a.csv": "image|caption|split\n1.jpg|A \"dog\", B|val\n"}, "1.jpg", [("1.jpg", "val", ('A "dog", B',))]),
    ({"a.csv": "sep=;\r\nimage;caption;split\r\n1.jpg;A, B;val\r\n"}, "1.jpg", [("1.jpg", "val", ("A, B",))]),
    ({"a.csv": "image,caption,split\n1.jpg,\"['A.', \"\"It's B.\"\"]\",restval\n2.jpg,\"['C.'\n 'D.']\",val\n"
               '3.jpg,"[""E \\u00e9""]",test\n'},
     "1.jpg 2.jpg 3.jpg",
     [("1.jpg", "train", ("A.", "It's B.")), ("2.jpg", "val", ("C.", "D.")), ("3.jpg", "test", ("E é",))]),
    ({"a.jsonl": entry("1.jpg", "A.", split="restval")}, "1.jpg", [("1.jpg", "train", ("A.",))]),
    # folders of systems are left alone, those of people whose names look like them are not
    ({"#dogs/a.csv": "image,caption,split\n1.jpg,A.,val\n", "@eaDir/a.CSV": "image,caption\n1.jpg,B.\n"},
     "#dogs/1.jpg @eaDir/1.jpg", [("1.jpg", "val", ("A.",))]),
    ({"a.csv": "image,caption,split\n1.jpg,A.,val\n"}, "#dogs/1.jpg @eaDir/1.jpg", [("1.jpg", "val", ("A.",))]),
    ({"#dogs/1.txt": "A.", "@eaDir/1.txt": "B.", "train.txt": "1"}, "#dogs/1.jpg @eaDir/1.jpg",
     [("#dogs/1.jpg", "train", ("A.",))]),
    # translations of Flickr8k
    ({"f8k.txt": "1.jpg#zhc#0 A .\n1.jpg#zhc#1 B .\n", "train.txt": "1.jpg"}, "1.jpg",
     [("1.jpg", "train", ("A .", "B ."))]),
]  # fmt: skip


def test_layouts(tmp_path: Path) -> None:
    for folder, (files, photos, expected) in in_folders(tmp_path, LAYOUTS):
        write_files(folder, files, photos)
        assert records_of(folder) == sorted(expected)
        tables = [folder / name for name in files if name.endswith((".csv", ".jsonl")) or "karpathy" in name]
        if tables and expected is not BY_NAME:  # of one file alone nobody knows whether its ids number rows
            assert sorted(one for file in tables for one in records_of(file)) == sorted(expected)


WORDS = st.text(st.sampled_from("ab \"',;|"), min_size=1, max_size=12).map(str.strip).filter(bool)


@given(captions=st.lists(WORDS, min_size=1, max_size=6), delimiter=st.sampled_from(",;\t|"))
def test_a_row_is_never_cut_nor_joined_in_silence(captions: list[str], delimiter: str) -> None:
    """Rows that nobody quoted are read as they stand, or refused by their lines; those of tabs are all read."""
    lines = [f"{number}.jpg{delimiter}{caption}" for number, caption in enumerate(captions)]
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary, "a.tsv")
        file.write_text("\n".join([f"image{delimiter}caption", *lines]))
        dataset = read_dataset(file, with_photos=False)
    read = {record.image_id: record.captions for record in dataset.records}
    plain = {f"{number}.jpg": (caption,) for number, caption in enumerate(captions)}
    if not dataset.problems:
        ends = delimiter + " "  # of a row: empty cells, which say nothing
        for name, (own,) in plain.items():
            cell, *others = next(csv.reader([own], delimiter=delimiter))
            assert read[name][0].strip(ends) in (own.strip(ends), cell.strip(ends))
            assert not any(map(str.strip, others))
    if delimiter == "\t" and not any(caption.startswith('"') for caption in captions):
        assert dataset.problems == () and read == plain


SWALLOWED = [
    'image,caption\n1.jpg,"the best day ever\n2.jpg,A dog.\n3.jpg,so what"\n',
    'caption,image\n"the best day ever,1.jpg\nA dog.,2.jpg\nso what",3.jpg\n',
    'image_id;caption\n1;"the best day ever\n2;A dog.\n3;so what"\n',
    'image_id,caption\ncoco_1,"the best day ever\ncoco_2,A dog.\ncoco_3,so what"\n',
]


@pytest.mark.parametrize("text", SWALLOWED)
def test_a_quotation_mark_that_encloses_other_rows_is_a_problem(tmp_path: Path, text: str) -> None:
    write_files(tmp_path, {"a.csv": text})
    assert "line 2: a quotation mark encloses the rows that follow it" in sentences(tmp_path)[0][0]


def test_a_name_that_is_no_utf_8_is_read_and_a_caption_refused(tmp_path: Path) -> None:
    row = b"image,caption,split\nd\xf6g.jpg,A dog.,train\n"
    write_files(tmp_path, {"a.csv": row, b"d\xf6g.jpg".decode("utf-8", "surrogateescape"): ""})
    assert records_of(tmp_path) == [("d\\xf6g.jpg", "train", ("A dog.",))]
    write_files(tmp_path, {"a.csv": row + b"1.jpg,\xf6.,train\n"})
    assert sentences(tmp_path)[0][0].endswith("a.csv is not in UTF-8: line 3 cannot be read; save it as CSV in UTF-8.")


TOLD = [
    ({"a.txt": "A.\nA.\nA.\nA.\nB.\n"}, "1 image has the same caption again and again: train/a.jpg;"),
    *(({"a.txt": text}, "1 text has paragraphs or lines parted by empty ones: train/a.txt;")
      for text in ("A first paragraph.\n\nA second one.\n", "A.\n" + "word " * 70)),
    ({"a.txt": "A.", "a.caption": "B."}, "1 photo has more than one text, whose captions are joined: "),
    *(({"a.txt": text}, "Captions are written without spaces between words, as in Chinese")
      for text in ("一个男人在骑自行车", "ผู้ชายกำลังขี่จักรยาน")),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "warning"), TOLD)
def test_captions_that_are_likely_mistaken_are_told(tmp_path: Path, texts: dict[str, str], warning: str) -> None:
    write_files(tmp_path / "train", texts, "a.jpg")
    problems, warnings = sentences(tmp_path)
    assert problems == [] and len(warnings) == 1 and warnings[0].startswith(warning)


def test_splits_of_photos_beside_folders_of_splits_are_drawn(tmp_path: Path) -> None:
    write_files(tmp_path, {"val/a.txt": "A.", "more/x.txt": "B.", "y.txt": "C."}, "val/a.jpg more/x.jpg y.jpg")
    splits = [(name, split) for name, split, _ in records_of(tmp_path)]
    assert splits == [("more/x.jpg", "train"), ("val/a.jpg", "val"), ("y.jpg", "train")]
    assert "*.txt has no splits, so they were drawn by the images' names: 2 train," in sentences(tmp_path)[1][0]
