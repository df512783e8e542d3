"""Arguments to parts; the photos of files, tars and tables, in order, with a reason where one lacks."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

import pytest

from showtell.bulk.parts import Part, fetch, plan_parts, read_part
from showtell.errors import DataError, ImageError


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    for number in range(40):
        (tmp_path / "photos" / f"{number}.jpg").touch()
    return tmp_path / "photos"


def contents(part: Part, column: str | None = None) -> list[tuple[str, object]]:
    """What a part holds, errors as their sentences."""
    read = []
    for name, source in read_part(part, column):
        try:
            read.append((name, fetch((name, source))))
        except ImageError as error:
            read.append((name, str(error)))
    return read


def write_tar(file: Path, members: dict[str, bytes], mode: str = "w") -> None:
    with tarfile.open(file, mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))


# --- planning ---


def test_files_are_parted_into_whole_batches_each_photo_once(photos, monkeypatch):
    parts = plan_parts([str(photos)], 2)
    assert [len(part) for part in parts] == [2] * 20  # 20 batches are at least 16 parts
    assert [name for part in parts for name in part] == [str(photos / f"{number}.jpg") for number in range(40)]
    assert [len(part) for part in plan_parts([str(photos)], 32)] == [32, 8]
    monkeypatch.setattr("sys.stdin", None)
    names = [str(photos / f"{number}.jpg") for number in range(17_000)]
    assert [len(part) for part in plan_parts(names, 10)] == [1020] * 16 + [680]
    monkeypatch.chdir(photos)
    twice = ["3.jpg", "./3.jpg", str(photos / "3.jpg"), "memory://a.jpg", "memory://a.jpg"]
    assert plan_parts(twice, 32) == [("3.jpg", "memory://a.jpg")]


def test_a_shard_is_a_part_behind_the_files(photos, monkeypatch):
    for name in ("b.tar", "a.tar", "c.tgz", "d.parquet"):
        (photos / name).touch()
    monkeypatch.chdir(photos)
    parts = plan_parts(["0.jpg", "*.tar", "2.jpg", "c.tgz", "d.parquet", "memory://x/y.tar.gz"], 32)
    shards = [("a.tar",), ("b.tar",), ("c.tgz",), ("d.parquet",), ("memory://x/y.tar.gz",)]
    assert parts == [("0.jpg", "2.jpg"), *shards]


def test_folders_and_patterns_of_an_object_store():
    import fsspec

    files = fsspec.filesystem("memory")
    for name in ("b/2.jpg", "b/1.PNG", "b/deep/3.webp", "b/notes.txt", "b/s.tar", "b/.hidden.jpg"):
        files.pipe(f"/planning/{name}", b"")
    photos = tuple(f"memory:///planning/b/{name}" for name in ("1.PNG", "2.jpg", "deep/3.webp"))
    assert plan_parts(["memory://planning/b/"], 32) == [photos]
    assert plan_parts(["memory://planning/b/*"], 32) == [photos[:2], ("memory:///planning/b/s.tar",)]
    assert plan_parts(["memory://planning/none.jpg"], 32) == [("memory://planning/none.jpg",)]


def test_arguments_that_name_nothing_are_refused(tmp_path):
    for argument, kind, sentence in (
        ("memory://planning/none/*.jpg", DataError, "memory://planning/none/*.jpg holds no image; name shards by a"),
        ("nonsense://a", DataError, "Cannot list nonsense://a: Protocol not known: nonsense"),
        (str(tmp_path), ImageError, "holds no image"),
        (f"{tmp_path}/*.tar", DataError, f"No file matches {tmp_path}/*.tar."),
    ):
        with pytest.raises(kind, match=re.escape(sentence)):
            plan_parts([argument], 32)


# --- reading ---


def test_paths_stay_paths_and_urls_are_fetched_or_named(tmp_path):
    import fsspec

    fsspec.filesystem("memory").pipe("/parts/1.jpg", b"1")
    (tmp_path / "x.png").write_bytes(b"x")
    assert contents(("a.jpg", "memory://parts/1.jpg", "memory://parts/no.jpg", f"file://{tmp_path}/x.png")) == [
        ("a.jpg", Path("a.jpg")),
        ("memory://parts/1.jpg", b"1"),
        ("memory://parts/no.jpg", "Cannot read memory://parts/no.jpg: /parts/no.jpg."),
        (f"file://{tmp_path}/x.png", b"x"),
    ]


@pytest.mark.parametrize(("name", "mode"), [("a.tar", "w"), ("a.tar.gz", "w:gz")])
def test_the_images_of_a_tar_in_its_order(tmp_path, name, mode):
    members = {"000/b.jpg": b"B", "000/b.json": b"{}", "000/a.png": b"A", "._b.jpg": b"mac", "c.cls": b"3"}
    write_tar(tmp_path / name, members, mode)
    tar = f"{tmp_path}/{name}"
    assert contents((tar,)) == [(f"{tar}/000/b.jpg", b"B"), (f"{tar}/000/a.png", b"A")]


def test_a_damaged_shard_gives_what_is_before_the_damage(tmp_path):
    tar = f"{tmp_path}/a.tar"
    write_tar(Path(tar), {f"{number}.jpg": bytes(2000) for number in range(5)})
    whole = Path(tar).read_bytes()
    Path(tar).write_bytes(whole[: 2 * (512 + 2048) + 512 + 700])  # in the midst of the third
    names, sources = zip(*contents((tar,)), strict=True)
    assert names == (f"{tar}/0.jpg", f"{tar}/1.jpg", tar)
    assert sources[2].startswith(f"{tar} cannot be read after 2 photos: ")
    write_tar(Path(tar), {"a.txt": b"text"})
    assert contents((tar,)) == [(tar, f"{tar} holds no image.")]
    for name in ("none.tar", "text.parquet"):
        (tmp_path / "text.parquet").write_bytes(b"PAR1")
        ((shard, sentence),) = contents((f"{tmp_path}/{name}",))
        assert sentence.startswith(f"{shard} cannot be read after 0 photos: ")


def test_the_rows_of_a_table(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = f"{tmp_path}/a.parquet"
    beside = f"{tmp_path}/y.jpg"

    def read(column: str | None = None, **columns: list[object]) -> list[tuple[str, object]]:
        parquet.write_table(pyarrow.table(columns), table, row_group_size=2)
        return contents((table,), column)

    assert read(caption=["a"] * 3, jpg=[b"0", None, b"2"]) == [
        (f"{table}#0", b"0"),
        (f"{table}#1", f"{table}#1 holds no photo and no path of one."),
        (f"{table}#2", b"2"),
    ]
    assert read(path=["y.jpg", "/abs/b.jpg"]) == [(beside, Path(beside)), ("/abs/b.jpg", Path("/abs/b.jpg"))]
    as_hugging_face = [{"bytes": b"0", "path": "x.jpg"}, {"bytes": None, "path": "y.jpg"}]
    assert read(image=as_hugging_face) == [(f"{table}#0", b"0"), (beside, Path(beside))]
    assert read("thumbnail", jpg=[b"0"], thumbnail=[b"1"]) == [(f"{table}#0", b"1")]
    ((_, sentence),) = read("c", a=[b""], b=[1])
    assert sentence.endswith("after 0 photos: it has no column c but a, b; name one with --column.")
    ((_, sentence),) = read(a=[b""])
    assert sentence.endswith("after 0 photos: it has no column of photos but a; name one with --column.")
