"""Photos of files, tars and row groups: all of them, in order, with a reason where there are none."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from pathlib import Path

import pytest

from showtell.bulk import part_from_json, part_to_json, read_part
from showtell.bulk.parts import FileList, ParquetRowGroup, Part, TarShard
from showtell.errors import ImageError


def contents(part: Part, batch_size: int = 2) -> list[tuple[str, object]]:
    """What a part holds, errors as their sentences."""
    return [
        (name, str(source) if isinstance(source, ImageError) else source)
        for name, source in read_part(part, batch_size)
    ]


def write_tar(file: Path, members: dict[str, bytes], mode: str = "w") -> None:
    with tarfile.open(file, mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))


@pytest.mark.parametrize(
    "part", [FileList(("a.jpg", "s3://b/c.png")), TarShard("a.tar"), ParquetRowGroup("a.parquet", 1, 5, 3, "image")]
)
def test_a_part_survives_json(part):
    assert part_from_json(json.loads(json.dumps(part_to_json(part)))) == part


def test_paths_stay_paths_for_the_readers_of_the_captioner():
    assert contents(FileList(("a.jpg", "b/c.png", "d"))) == [(name, Path(name)) for name in ("a.jpg", "b/c.png", "d")]


def test_urls_are_fetched_in_order_and_what_is_missing_is_said(tmp_path):
    import fsspec

    files = fsspec.filesystem("memory")
    for number in range(7):
        files.pipe(f"/parts/{number}.jpg", bytes([number]))
    (tmp_path / "x.png").write_bytes(b"x")
    names = [
        *(f"memory://parts/{number}.jpg" for number in range(7)),
        "memory://parts/no.jpg",
        f"file://{tmp_path}/x.png",
    ]
    assert contents(FileList(tuple(names)), 3) == [
        *((f"memory://parts/{number}.jpg", bytes([number])) for number in range(7)),
        ("memory://parts/no.jpg", "There is no file memory://parts/no.jpg."),
        (f"file://{tmp_path}/x.png", b"x"),
    ]


@pytest.mark.parametrize(("name", "mode"), [("a.tar", "w"), ("a.tar.gz", "w:gz")])
def test_the_images_of_a_tar_in_its_order(tmp_path, name, mode):
    members = {"000/b.jpg": b"B", "000/b.json": b"{}", "000/a.png": b"A", "._b.jpg": b"mac", "c.cls": b"3"}
    write_tar(tmp_path / name, members, mode)
    tar = f"{tmp_path}/{name}"
    assert contents(TarShard(tar), 1) == [(f"{tar}/000/b.jpg", b"B"), (f"{tar}/000/a.png", b"A")]


def test_a_tar_that_was_cut_off_gives_what_is_before(tmp_path):
    write_tar(tmp_path / "a.tar", {f"{number}.jpg": bytes(2000) for number in range(5)})
    content = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(content[: 2 * (512 + 2048) + 512 + 700])  # in the midst of the third
    names, sources = zip(*contents(TarShard(f"{tmp_path}/a.tar")), strict=True)
    assert names[:2] == (f"{tmp_path}/a.tar/0.jpg", f"{tmp_path}/a.tar/1.jpg")
    assert names[2:] == (f"{tmp_path}/a.tar",)
    assert sources[2].startswith(f"{tmp_path}/a.tar cannot be read after 2 photos: ")


def test_a_tar_that_is_none_or_has_no_image_is_said(tmp_path):
    write_tar(tmp_path / "a.tar", {"a.txt": b"text"})
    assert contents(TarShard(f"{tmp_path}/a.tar")) == [(f"{tmp_path}/a.tar", f"{tmp_path}/a.tar holds no image.")]
    tar = f"{tmp_path}/none.tar"
    assert contents(TarShard(tar)) == [(tar, f"{tar} cannot be read after 0 photos: No such file or directory.")]


@pytest.fixture
def parquet(tmp_path):
    """Writes a table of one column in row groups of two."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    def write(values: list[object]) -> str:
        parquet.write_table(pyarrow.table({"image": values}), tmp_path / "a.parquet", row_group_size=2)
        return f"{tmp_path}/a.parquet"

    return write


def test_rows_of_bytes_and_their_numbers(parquet):
    table = parquet([b"0", b"1", b"2", None, b"4"])
    assert contents(ParquetRowGroup(table, 1, 2, 2, "image")) == [
        (f"{table}#2", b"2"),
        (f"{table}#3", f"{table}#3 has no photo in the column image."),
    ]
    assert contents(ParquetRowGroup(table, 2, 4, 1, "image")) == [(f"{table}#4", b"4")]


def test_rows_of_paths_are_named_from_the_folder_of_the_table(parquet, tmp_path):
    table = parquet(["a.jpg", "/abs/b.jpg"])
    paths = [str(tmp_path / "a.jpg"), "/abs/b.jpg"]
    assert contents(ParquetRowGroup(table, 0, 0, 2, "image")) == [(path, Path(path)) for path in paths]


def test_rows_as_hugging_face_writes_them(parquet, tmp_path):
    table = parquet([{"bytes": b"0", "path": "x.jpg"}, {"bytes": None, "path": "y.jpg"}])
    path = str(tmp_path / "y.jpg")
    assert contents(ParquetRowGroup(table, 0, 0, 2, "image")) == [(f"{table}#0", b"0"), (path, Path(path))]


def test_a_row_group_that_went_is_said(parquet):
    table = parquet([b"0"])
    Path(table).write_bytes(b"PAR1")
    ((name, sentence),) = contents(ParquetRowGroup(table, 0, 0, 1, "image"))
    assert (name, sentence[: len(table) + 31]) == (table, f"{table} cannot be read from row 0 on: ")


def test_no_more_than_two_batches_are_in_memory(tmp_path, monkeypatch):
    """A tar is read a batch ahead, and not further while nobody asks."""
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for number in range(100):
            archive.addfile(tarfile.TarInfo(f"{number:02}.jpg"), io.BytesIO())
    drawn = []
    enough = threading.Event()

    def content(archive, member):
        drawn.append(member.name)
        if len(drawn) == 8:
            enough.set()
        return b""

    monkeypatch.setattr("showtell.bulk.parts._content", content)
    remaining = read_part(TarShard(str(tmp_path / "a.tar")), 4)
    assert next(remaining)[0].endswith("00.jpg")
    assert enough.wait(10)  # the second batch comes by itself
    assert next(remaining)[0].endswith("01.jpg")
    assert len(drawn) == 8
    assert [name[-6:] for name, _ in remaining] == [f"{number:02}.jpg" for number in range(2, 100)]
