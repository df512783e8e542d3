import csv
import itertools
import tempfile
from io import StringIO
from pathlib import Path

from hypothesis import assume, given
from hypothesis import strategies as st

from showtell.datasets import read_dataset, table
from tests.datasets.makers import in_folders, sentences, write_table

SPLIT = "image,caption,split\n"


def captions_of(path: Path) -> dict[str, tuple[str, ...]]:
    return {record.image_id: record.captions for record in read_dataset(path).records}


def test_captions_in_columns(tmp_path: Path) -> None:
    text = "Split,Caption 1,caption_2,CAPTION3,filename\nTrain,One.,,Three.,a.jpg\nVALID,One.,Two.,,b.jpg\n"
    write_table(tmp_path, text, "a.jpg b.jpg")
    assert captions_of(tmp_path) == {"a.jpg": ("One.", "Three."), "b.jpg": ("One.", "Two.")}
    assert read_dataset(tmp_path).splits == {"train": 1, "val": 1}
    assert sentences(tmp_path) == ([], [])


COLUMNS = [
    *(("image", "caption"), ("File", "Text"), ("FileName", "Description"), ("image path", "sentence")),
    *(("path", "captions"), ("image_id", "caption"), ("file_name", "text")),  # the last: Hugging Face's image folder
]


def test_column_names_delimiters_and_line_ends(tmp_path: Path) -> None:
    cases = itertools.product([(",", "\n"), (";", "\r\n"), ("\t", "\r")], COLUMNS)
    for folder, ((delimiter, end), (image, caption)) in in_folders(tmp_path, cases):
        rows = [[image, caption, "split"], ["a.jpg", "One, two; three", "test"]]
        text = end.join(delimiter.join(f'"{cell}"' for cell in row) for row in rows) + end
        file = write_table(folder, text, "a.jpg", name="Captions.TSV")
        for path in (folder, file):
            assert captions_of(path) == {"a.jpg": ("One, two; three",)}
            assert sentences(path) == ([], [])


def test_photos_in_images_in_a_folder_of_their_own_and_by_bare_name(tmp_path: Path) -> None:
    rows = "./a.jpg,A.,train\nsea\\b.jpg,B.,train\nc.jpg,C.,train\n"
    write_table(tmp_path, SPLIT + rows, "images/a.jpg sea/b.jpg photos/c.jpg")
    dataset = read_dataset(tmp_path)
    paths = [record.path.relative_to(tmp_path).as_posix() for record in dataset.records]
    assert paths == ["images/a.jpg", "sea/b.jpg", "photos/c.jpg"]
    assert (dataset.problems, dataset.warnings) == ((), ())


def test_ids_of_images_and_of_captions(tmp_path: Path) -> None:
    write_table(tmp_path, "id,image,caption,split\n7,a.jpg,A.,train\n8,b.jpg,B.,val\n", "a.jpg b.jpg")
    assert list(captions_of(tmp_path)) == ["7", "8"]
    write_table(tmp_path, "id,image,caption,split\n7,a.jpg,A.,train\n8,a.jpg,B.,train\n9,b.jpg,B.,val\n")
    assert list(captions_of(tmp_path)) == ["a.jpg", "b.jpg"]
    expected = "The ids in captions.csv number captions rather than images, so the images go by their file names."
    assert sentences(tmp_path) == ([], [expected])


def test_a_table_for_each_split(tmp_path: Path) -> None:
    for name in ("train", "validation", "captions_test"):
        write_table(tmp_path, f"image,caption\n{name}.jpg,A.\n", f"{name}.jpg", name=f"{name}.csv")
    dataset = read_dataset(tmp_path)
    assert dataset.splits == {"train": 1, "val": 1, "test": 1}
    assert dataset.problems == ()
    assert read_dataset(tmp_path / "validation.csv").splits == {"val": 1}


UNUSABLE = '2 lines of captions.csv cannot be used: 2, 4; each is like dog.jpg,"A dog, running.".'
QUOTES = (
    '; a caption with quotation marks stands in quotation marks itself, with those inside doubled: "A ""stop"" sign."'
)
NO_ROW = "2 images have no captions, unlike others in the folder, left out"
OWN_ID = "give every image of the dataset an id of its own, across all splits."
# The text of a table beside a.jpg, b.jpg and c.jpg; its problems; its warnings.
MISTAKES = [
    (SPLIT + "a.jpg,A dog, running,train\nb.jpg,B.,val\nc.jpg,C, c,train\n", [UNUSABLE], [f"{NO_ROW}: a.jpg, c.jpg."]),
    (SPLIT + ' ,"A\nb.",train\n,B.,train\na.jpg,A.,train\nb.jpg,A.,train\nc.jpg,A.,train\n', [UNUSABLE], []),
    (SPLIT + "a.jpg,A.,train\na.jpg, ,train\nb.jpg,,train\nc.jpg\n", [
        "1 image has no split in captions.csv, though others have: c.jpg.",
        "2 images have no caption: b.jpg, c.jpg; write captions or take the images out, for nothing can be learned or "
        "scored from them.",
    ], []),
    (SPLIT + "a.jpg,A.,train\na.jpg,One.,test\nb.jpg,B.,dev\nb.jpg,Two.,val\nc.jpg,C.,train\n",
     ["1 image is in more than one split in captions.csv: a.jpg (train, test)."], []),
    ("image,caption,split,id\na.jpg,A.,train,1\nb.jpg,B.,val,1\nc.jpg,C.,val,\n", [
        "1 image has no id in captions.csv, though others have: c.jpg.",
        f"1 id stands for different images: 1; {OWN_ID}",
    ], []),
    (SPLIT + "a.jpg,A.,train\nd.jpg,A.,train\ne.jpg,A.,train\n",
     ["2 image files are missing: d.jpg, e.jpg; put the files there or take their captions out."],
     [f"{NO_ROW}: b.jpg, c.jpg."]),
    (SPLIT, ["… holds no image with captions."], []),
    (SPLIT + 'a.jpg,A.,train\nb.jpg,"B.,train\nc.jpg,C.,train\n',
     [f"…/captions.csv cannot be read from line 3 on (unexpected end of data){QUOTES}"], []),
    (SPLIT + 'a.jpg,"A "stop" sign",train\n',
     [f"…/captions.csv cannot be read from line 2 on (',' expected after '\"'){QUOTES}"], []),
]  # fmt: skip


def test_mistakes(tmp_path: Path) -> None:
    for folder, (text, problems, warnings) in in_folders(tmp_path, MISTAKES):
        write_table(folder, text, "a.jpg b.jpg c.jpg")
        assert sentences(folder) == (problems, warnings)


CELL = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20).filter(str.strip)
CELL = CELL.filter(lambda text: not text.startswith("'"))  # which spreadsheets take for the mark of a text
ROWS = st.lists(st.tuples(st.sampled_from(["a.jpg", "b.jpg", "ünï côde.png"]), CELL), min_size=1, max_size=8)


@given(
    rows=ROWS, delimiter=st.sampled_from(",;\t"), end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), mark=st.sampled_from(["utf-8", "utf-8-sig"]),
)  # fmt: skip
def test_what_the_csv_module_writes_is_read_back(rows, delimiter, end, quoting, mark):
    # the module itself leaves "\r" without quotation marks where lines end in "\n"
    assume(quoting == csv.QUOTE_ALL or end == "\r\n" or not any("\r" in caption for _, caption in rows))
    assume(delimiter != "\t" or not any(end in caption for _, caption in rows for end in "\r\n"))  # which ends its row
    stream = StringIO(newline="")
    writer = csv.writer(stream, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerows([("image", "caption"), *rows])
    expected: dict[str, tuple[str, ...]] = {}
    for name, caption in rows:
        expected[name] = (*expected.get(name, ()), caption)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "captions.csv")
        file.write_bytes(stream.getvalue().encode(mark))
        assert {record.image_id: record.captions for record in table.read(file).records} == expected


def test_corrections_beside_the_captions_are_left_out_unless_they_are_named(tmp_path: Path) -> None:
    """What `showtell caption --format corrections` writes must not spoil the dataset that it lies in."""
    write_table(tmp_path, "image,caption\na.jpg,One.\n")
    (tmp_path / "corrections.csv").write_text("\ufeffimage,caption,confidence,split\na.jpg,A one.,0.5,train\n", "utf-8")
    dataset = read_dataset(tmp_path)
    assert [record.captions for record in dataset.records] == [("One.",)]
    told = "1 table left out, for it holds corrections; name the file to train on it: corrections.csv."
    assert told in dataset.warnings
    alone = read_dataset(tmp_path / "corrections.csv")
    assert [(record.captions, record.split) for record in alone.records] == [(("A one.",), "train")]
