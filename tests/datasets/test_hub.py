"""hf: datasets, saved by `datasets` itself in its real formats. Nothing reaches for the network."""

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow

from showtell.datasets import hub, open_dataset, read_dataset
from showtell.errors import DataError, MissingDependencyError
from tests.datasets.makers import in_folders

datasets = pytest.importorskip("datasets")
parquet = pytest.importorskip("pyarrow.parquet")
datasets.disable_progress_bars()
IMAGE, TEXT = datasets.Image(), datasets.Value("string")


def png(shade: int) -> bytes:
    stream = io.BytesIO()
    Pillow.new("RGB", (4, 4), (shade, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


def rows(columns: dict[str, Sequence[Any]], **features: Any) -> Any:
    """A dataset with the images of some shades in its column "image"."""
    content = {**columns, "image": [{"bytes": png(shade), "path": None} for shade in columns["image"]]}
    return datasets.Dataset.from_dict(content, features=datasets.Features({"image": IMAGE, **features}))


def save(dataset: Any, folder: Path, split: str = "train") -> None:
    folder.mkdir(exist_ok=True)
    dataset.to_parquet(folder / f"{split}.parquet")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOWTELL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_CACHE_HOME", tmp_path / "hf")


def refusal(path: str) -> str:
    with pytest.raises(DataError) as caught:
        read_dataset(path)
    return str(caught.value)


def test_splits_and_images_once_and_undecoded(tmp_path: Path) -> None:
    save(rows({"image": [1, 2, 1], "caption": ["One.", "Two.", "Again."]}, caption=TEXT), tmp_path / "saved")
    save(rows({"image": [3], "caption": ["Three."]}, caption=TEXT), tmp_path / "saved", "validation")
    dataset = open_dataset(f"hf:{tmp_path / 'saved'}")
    assert (dataset.format, dataset.root, dataset.warnings) == ("hub", Path(f"hf:{tmp_path / 'saved'}"), ())
    assert [(record.split, record.captions) for record in dataset.records] == [
        ("train", ("One.", "Again.")),
        ("train", ("Two.",)),
        ("val", ("Three.",)),
    ]
    assert [record.path.read_bytes() for record in dataset.records] == [png(1), png(2), png(3)]
    assert all(record.path.is_relative_to(tmp_path / "cache") for record in dataset.records)


def test_a_second_opening_loads_nothing_unless_the_dataset_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("Before.", "Afterwards."):
        save(rows({"image": [1, 2, 3], "caption": [text] * 3}, caption=TEXT), tmp_path / "saved")
        first = read_dataset(f"hf:{tmp_path / 'saved'}")
        assert first.records[0].captions == (text,)
        with monkeypatch.context() as patch:
            patch.setattr(hub, "_load", None)
            assert read_dataset(f"hf:{tmp_path / 'saved'}") == first


def test_parquet_files(tmp_path: Path) -> None:
    (tmp_path / "saved/data").mkdir(parents=True)
    for shade, split in enumerate(("train", "test", "validation")):
        file = tmp_path / "saved/data" / f"{split}-00000-of-00001.parquet"
        rows({"image": [shade], "caption": ["A."]}, caption=TEXT).to_parquet(file)
    dataset = read_dataset(f"hf:{tmp_path / 'saved'}")
    assert dataset.problems == () and dataset.splits == {"test": 1, "train": 1, "val": 1}


def test_a_lone_train_split_says_nothing_of_splits(tmp_path: Path) -> None:
    save(rows({"image": range(20), "caption": ["A."] * 20}, caption=TEXT), tmp_path / "saved")
    dataset = read_dataset(f"hf:{tmp_path / 'saved'}")
    assert set(dataset.splits) == {"train", "val", "test"} and dataset.split_lists_folder is not None
    assert "has no splits, so they were drawn" in dataset.warnings[0]


TEXTS = datasets.Features({"x": [TEXT]})["x"]


CAPTIONS_BY_KIND_AND_NAME = [
    ("text", TEXT, "A dog.", ("A dog.",)),
    ("captions", TEXTS, ["A dog.", "A cat."], ("A dog.", "A cat.")),
    ("en", TEXTS, ["A dog."], ("A dog.",)),  # the only column with texts
    ("sentences", [{"raw": TEXT, "sentid": datasets.Value("int64")}], [{"raw": "A.", "sentid": 1}], ("A.",)),
    ("sentences", {"raw": TEXTS, "tokens": [TEXTS]}, {"raw": ["A.", "B."], "tokens": [["a"], ["b"]]}, ("A.", "B.")),
    ("caption", TEXTS, None, ()),
]


def test_numbered_captions_are_preferred_to_other_texts(tmp_path: Path) -> None:
    columns = {"image": [1], "url": ["x"], "caption_0": ["A dog."], "caption_1": ["Dogs."], "license": ["y"]}
    save(rows(columns, url=TEXT, caption_0=TEXT, caption_1=TEXT, license=TEXT), tmp_path / "saved")
    assert read_dataset(f"hf:{tmp_path / 'saved'}").records[0].captions == ("A dog.", "Dogs.")


def test_captions_by_kind_and_name(tmp_path: Path) -> None:
    for folder, (name, feature, value, captions) in in_folders(tmp_path, CAPTIONS_BY_KIND_AND_NAME):
        columns = {"image": [1], name: [value], "cocoid": [5], "image_id": [7]}
        number = datasets.Value("int64")
        save(rows(columns, **{name: feature}, cocoid=number, image_id=number), folder / "saved")
        (record,) = read_dataset(f"hf:{folder / 'saved'}").records
        assert (record.image_id, record.captions) == ("7", captions)


# --- what is refused ---


def test_columns_that_are_not_understood(tmp_path: Path) -> None:
    save(rows({"image": [1], "a": ["x"], "b": ["y"]}, a=TEXT, b=TEXT), tmp_path / "saved")
    name = f"hf:{tmp_path / 'saved'}"
    assert refusal(name) == (
        f"{name} does not say which of its columns (image, a, b) holds what is needed: rename one to caption."
    )
    assert not list((tmp_path / "cache").rglob("images"))  # nothing half written
    save(datasets.Dataset.from_dict({"label": [1]}), tmp_path / "other")
    name = f"hf:{tmp_path / 'other'}"
    expected = "(label) holds what is needed: rename one to image, of the kind Image."
    assert refusal(name) == f"{name} does not say which of its columns {expected}"


def test_a_row_without_an_image(tmp_path: Path) -> None:
    features = datasets.Features({"image": IMAGE, "caption": TEXT})
    save(datasets.Dataset.from_dict({"image": [None], "caption": ["A."]}, features=features), tmp_path / "saved")
    name = f"hf:{tmp_path / 'saved'}"
    assert refusal(name) == f"{name} has a row without an image; leave such rows out."


def test_images_are_only_read_in_the_dataset(tmp_path: Path) -> None:
    """A dataset cannot make files elsewhere be opened."""
    inside = tmp_path / "saved" / "a.png"
    inside.parent.mkdir()
    inside.write_bytes(b"photo")
    (tmp_path / "saved" / "link.png").symlink_to(tmp_path / "secret.png")
    assert hub._content({"bytes": None, "path": str(inside)}, str(inside.parent)) == b"photo"
    for path in (tmp_path / "secret.png", inside.parent / "link.png", inside.parent / "../secret.png"):
        with pytest.raises(DataError, match=r"names an image outside the dataset, .*secret\.png; save it with"):
            hub._content({"bytes": None, "path": str(path)}, str(inside.parent))


def test_what_is_no_dataset(tmp_path: Path) -> None:
    name = f"hf:{tmp_path}"
    for given in (name, "hf:../..", "hf:..", "hf:a/b/c", f"{name}/none"):
        assert refusal(given) == (
            f"{given} is not a dataset: give the NAME or OWNER/NAME of one on the Hugging Face hub, or a folder with "
            "parquet files, such as to_parquet of the package datasets writes."
        )
    (tmp_path / "p").mkdir()
    (tmp_path / "p/train.parquet").write_bytes(b"PAR1 but no more")
    assert refusal(f"hf:{tmp_path / 'p'}").endswith("; save it anew.")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDependencyError) as caught:
        read_dataset("hf:nobody/nothing")
    assert str(caught.value) == (
        'hf:nobody/nothing needs the package datasets, which is not installed: pip install "datasets>=3.0"'
    )


def test_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(name: str, config: str | None) -> None:
        raise ConnectionError(f"Couldn't reach '{name}' on the Hub (OfflineModeIsEnabled)")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    assert refusal("hf:nobody/nothing:en") == (
        "Cannot load hf:nobody/nothing:en from the Hugging Face hub (Couldn't reach 'nobody/nothing' on the Hub "
        "(OfflineModeIsEnabled)); check the name.\n  Where there is a network: hf download nobody/nothing --repo-type "
        "dataset --local-dir FOLDER; then give hf:FOLDER."
    )
