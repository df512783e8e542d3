"""Arguments to parts: every photo in one part, in the order of the arguments, and a sentence for what is no input."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from showtell.bulk import plan_parts
from showtell.bulk.parts import FileList, ParquetRowGroup, TarShard
from showtell.errors import DataError, ImageError, MissingDependencyError, UsageError


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    for number in range(40):
        (tmp_path / "photos" / f"{number}.jpg").touch()
    return tmp_path / "photos"


def test_files_are_parted_into_whole_batches(photos):
    parts = plan_parts([str(photos)], 2)
    assert [part.photos for part in parts] == [2] * 20  # 20 batches are at least 16 parts
    assert [name for part in parts for name in part.names] == [str(photos / f"{number}.jpg") for number in range(40)]
    assert [part.photos for part in plan_parts([str(photos)], 1)] == [2] * 20
    assert [part.photos for part in plan_parts([str(photos)], 32)] == [32, 8]
    assert [part.photos for part in plan_parts([str(photos)], 2000)] == [40]


def test_a_part_has_about_a_thousand_photos_at_most(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    names = [str(tmp_path / f"{number}.jpg") for number in range(17_000)]
    assert [part.photos for part in plan_parts(names, 10)] == [1020] * 16 + [680]


def test_a_photo_that_is_named_twice_is_there_once(photos, monkeypatch):
    monkeypatch.chdir(photos)
    (part,) = plan_parts(["3.jpg", "./3.jpg", str(photos / "3.jpg"), "memory://a.jpg", "memory://a.jpg"], 32)
    assert part == FileList(("3.jpg", "memory://a.jpg"))


def test_shards_stand_between_the_files_that_are_named_before_and_behind(photos, monkeypatch):
    for name in ("b.tar", "a.tar", "c.tgz"):
        (photos / name).touch()
    monkeypatch.chdir(photos)
    parts = plan_parts(["0.jpg", "1.jpg", "*.tar", "2.jpg", "c.tgz", "memory://x/y.tar.gz"], 32)
    assert parts == [
        FileList(("0.jpg", "1.jpg")),
        *(TarShard("a.tar"), TarShard("b.tar")),
        FileList(("2.jpg",)),
        *(TarShard("c.tgz"), TarShard("memory://x/y.tar.gz")),
    ]


def test_folders_and_patterns_of_an_object_store():
    import fsspec

    files = fsspec.filesystem("memory")
    for name in ("b/2.jpg", "b/1.PNG", "b/deep/3.webp", "b/notes.txt", "b/s.tar", "b/.hidden.jpg"):
        files.pipe(f"/planning/{name}", b"")
    photos = [f"memory:///planning/b/{name}" for name in ("1.PNG", "2.jpg", "deep/3.webp")]
    assert plan_parts(["memory://planning/b"], 32) == [FileList(tuple(photos))]
    assert plan_parts(["memory://planning/b/"], 32) == [FileList(tuple(photos))]
    assert plan_parts(["memory://planning/b/*"], 32) == [
        FileList(tuple(photos[:2])),
        TarShard("memory:///planning/b/s.tar"),
    ]
    assert plan_parts(["memory://planning/b/**/3.webp"], 32) == [FileList((photos[2],))]
    assert plan_parts(["memory://planning/none.jpg"], 32) == [FileList(("memory://planning/none.jpg",))]


def test_a_url_that_names_nothing_or_is_of_no_known_kind_is_refused(monkeypatch):
    with pytest.raises(DataError, match=r"No image, \.tar or \.parquet matches memory://planning/none/\*\.jpg\."):
        plan_parts(["memory://planning/none/*.jpg"], 32)
    with pytest.raises(
        UsageError, match=r"^nonsense://a is of a kind that is not known \(Protocol not known: nonsense\)"
    ):
        plan_parts(["nonsense://a"], 32)
    import fsspec

    fsspec.filesystem("memory").pipe("/planning/text/a.txt", b"")
    with pytest.raises(
        DataError, match=r"text holds no image; name shards by a pattern, such as memory://planning/text/"
    ):
        plan_parts(["memory://planning/text"], 32)
    from fsspec.registry import known_implementations

    lacking = {"class": "no_such_module.Far", "err": "Install farfs to access Far"}
    monkeypatch.setitem(known_implementations, "far", lacking)
    with pytest.raises(MissingDependencyError, match=r"^far://a cannot be opened yet: Install farfs to access Far\.$"):
        plan_parts(["far://a"], 32)


def test_a_folder_without_images_and_a_pattern_without_shards_are_refused(tmp_path):
    with pytest.raises(ImageError, match="holds no image"):
        plan_parts([str(tmp_path)], 32)
    with pytest.raises(DataError, match=re.escape(f"No file matches {tmp_path}/*.tar.")):
        plan_parts([f"{tmp_path}/*.tar"], 32)


class TestParquet:
    @pytest.fixture
    def write(self, tmp_path):
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        def write(columns: dict[str, list[object]], name: str = "a.parquet") -> str:
            parquet.write_table(pyarrow.table(columns), tmp_path / name, row_group_size=2)
            return str(tmp_path / name)

        return write

    def test_a_row_group_is_a_part(self, write):
        table = write({"caption": ["a"] * 5, "jpg": [b""] * 5})
        assert plan_parts([table], 32) == [
            ParquetRowGroup(table, 0, 0, 2, "jpg"),
            ParquetRowGroup(table, 1, 2, 2, "jpg"),
            ParquetRowGroup(table, 2, 4, 1, "jpg"),
        ]

    def test_the_column_can_be_named(self, write):
        table = write({"jpg": [b""], "thumbnail": [{"bytes": b"", "path": ""}]})
        assert plan_parts([table], 32, column="thumbnail") == [ParquetRowGroup(table, 0, 0, 1, "thumbnail")]

    def test_a_column_that_is_not_there_is_refused(self, write):
        table = write({"a": [b""], "b": [1]})
        with pytest.raises(UsageError, match=r'has no column "c"; it has a, b: name one with --column\.$'):
            plan_parts([table], 32, column="c")
        with pytest.raises(UsageError, match=r"has no column of photos \(image, jpg, .*\); it has a, b: name one"):
            plan_parts([table], 32)

    def test_a_column_of_numbers_is_refused(self, write):
        table = write({"image": [1]})
        with pytest.raises(UsageError, match=r'The column "image" of .* is int64; it should hold bytes or paths'):
            plan_parts([table], 32)

    def test_what_is_no_parquet_is_refused_before_anything_begins(self, tmp_path):
        pytest.importorskip("pyarrow")
        (tmp_path / "a.parquet").write_bytes(b"text")
        with pytest.raises(DataError, match=r"a\.parquet cannot be read as parquet: "):
            plan_parts([str(tmp_path / "a.parquet")], 32)
        with pytest.raises(DataError, match=r"There is no file .*b\.parquet\.$"):
            plan_parts([str(tmp_path / "b.parquet")], 32)
