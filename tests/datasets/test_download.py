"""Downloads, from a server on this machine that misbehaves as configured."""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from huggingface_hub import constants

from showtell.datasets import read_dataset
from showtell.datasets.check import check_dataset
from showtell.datasets.download import SOURCES, Archive, Source, download_dataset
from showtell.errors import DataError
from tests.datasets.makers import in_folders, write_photo
from tests.toys import http_server


def zipped(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return stream.getvalue()


PHOTOS = {f"Photos/{name}.jpg": os.urandom(40_000) for name in "abc"} | {"__MACOSX/._a.jpg": b"x"}
ZIP = zipped(PHOTOS)


@dataclass
class Server:
    """Files by path, and how each is to be sent."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    stops_after: dict[str, list[int]] = field(default_factory=dict)  # bytes after which a connection ends, in turn
    without_range: set[str] = field(default_factory=set)
    forgets: set[str] = field(default_factory=set)  # files that are gone after the first request
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # path and Range of each request


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 10_000)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers["Range"]
            state.asked.append((self.path, wanted))
            if self.path not in state.files:
                self.send_error(404)
                return
            content, start = state.files[self.path], 0
            if self.path in state.forgets:
                del state.files[self.path]
            if wanted and self.path not in state.without_range:
                start = int(wanted.removeprefix("bytes=").rstrip("-"))
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            stops = state.stops_after.get(self.path, [])
            self.wfile.write(content[start : start + stops.pop(0)] if stops else content[start:])

    with http_server(Handler) as address:
        state = Server(address)
        yield state


def archive(server: Server, *paths: str, content: bytes = ZIP) -> Archive:
    """The archive of three photos, at these paths of the server."""
    urls = tuple(server.url + path for path in paths)
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    return Archive("photos.zip", "images", urls, 1, digest, "Photos/", "images")


def source(*archives: Archive) -> Source:
    return Source("Three photos", "Free", archives)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_whole(folder: Path) -> None:
    """The three photos and nothing else."""
    assert names(folder) == ["images"]
    assert {path.name: path.read_bytes() for path in (folder / "images").iterdir()} == {
        Path(name).name: content for name, content in PHOTOS.items() if name.startswith("Photos/")
    }


def test_a_broken_connection_is_gone_on_with(server: Server, tmp_path: Path) -> None:
    server.files["/a.zip"] = ZIP
    server.stops_after["/a.zip"] = [50_000]
    download_dataset(source(archive(server, "/a.zip")), tmp_path)
    assert_whole(tmp_path)
    assert [wanted for _, wanted in server.asked] == [None, "bytes=50000-"]


def test_a_later_call_continues_what_an_earlier_one_left(server: Server, tmp_path: Path) -> None:
    server.files["/a.zip"] = server.files["/whole.zip"] = ZIP
    server.without_range.add("/whole.zip")
    known = archive(server, "/a.zip")
    cases = [
        (known, ZIP[:70_000], ["bytes=70000-"]),
        (archive(server, "/whole.zip"), ZIP[:70_000], ["bytes=70000-"]),  # the server sends all of it again
        (known, ZIP, [f"bytes={len(ZIP)}-"]),
        (known, b"another file" * 1000, ["bytes=12000-", None]),
        (known, ZIP + b"and more", [f"bytes={len(ZIP) + 8}-", None]),
    ]
    for folder, (wanted, part, asked) in in_folders(tmp_path, cases):
        (folder / "photos.zip.part").write_bytes(part)
        server.asked.clear()
        download_dataset(source(wanted), folder)
        assert_whole(folder)
        assert [wanted for _, wanted in server.asked] == asked


def test_mirrors_are_tried_in_turn(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = ZIP[:50_000] + b"X" + ZIP[50_001:]
    server.files |= {"/damaged.zip": damaged, "/short.zip": ZIP[:-1], "/page.zip": b"<html>moved</html>", "/a.zip": ZIP}
    mirrors = ("/gone.zip", "/short.zip", "/page.zip", "/damaged.zip", "/a.zip")
    download_dataset(source(archive(server, *mirrors)), tmp_path)
    assert_whole(tmp_path)
    messages = [line.removeprefix(f"showtell: {server.url}") for line in capsys.readouterr().err.splitlines()]
    reasons = [message for message in messages if message.startswith("/")]
    assert "404" in reasons[0]
    for reason, name in zip(reasons[1:], ("short", "page", "damaged"), strict=True):
        assert reason.startswith(f"/{name}.zip: its sha256 is ")


def test_what_came_before_the_server_failed_is_kept(server: Server, tmp_path: Path) -> None:
    server.files["/a.zip"] = ZIP
    server.stops_after["/a.zip"] = [50_000]
    server.forgets.add("/a.zip")
    with pytest.raises(DataError, match=r"a\.zip: .*404"):
        download_dataset(source(archive(server, "/a.zip")), tmp_path)
    assert (tmp_path / "photos.zip.part").read_bytes() == ZIP[:50_000]


def test_a_damaged_zip_leaves_nothing_half_unpacked(server: Server, tmp_path: Path) -> None:
    start = ZIP.index(PHOTOS["Photos/b.jpg"][:100])
    server.files["/a.zip"] = content = ZIP[: start + 9] + b"XXX" + ZIP[start + 12 :]
    with pytest.raises(DataError, match=r"photos\.zip is damaged: Bad CRC-32 for file 'Photos/b\.jpg'; download it"):
        download_dataset(source(archive(server, "/a.zip", content=content)), tmp_path)
    assert names(tmp_path) == []


def test_a_file_that_a_person_put_there_is_taken_and_left(server: Server, tmp_path: Path) -> None:
    (tmp_path / "photos.zip").write_bytes(ZIP)
    download_dataset(source(archive(server, "/a.zip")), tmp_path)
    assert server.asked == [] and names(tmp_path) == ["images", "photos.zip"]
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong/photos.zip").write_bytes(ZIP[:-5])
    with pytest.raises(DataError, match=r"photos\.zip is not the file that it should be: its sha256 is"):
        download_dataset(source(archive(server, "/a.zip")), tmp_path / "wrong")
    assert (tmp_path / "wrong/photos.zip").exists()


def test_members_that_point_outside_stay_inside(server: Server, tmp_path: Path) -> None:
    server.files["/a.zip"] = content = zipped(PHOTOS | {"Photos/../../../out.jpg": b"out", "/etc/out.jpg": b"out"})
    download_dataset(source(archive(server, "/a.zip", content=content)), tmp_path / "new")
    assert names(tmp_path) == ["new"] and names(tmp_path / "new") == ["images"]


def test_what_was_fetched_is_a_dataset(server: Server, tmp_path: Path) -> None:
    """The layout of COCO, small: the captions of Karpathy's zip beside the photos of two others."""
    entries, photos = [], {"train2014": {}, "val2014": {}}
    for number, (folder, split) in enumerate((("train2014", "train"), ("val2014", "restval"), ("val2014", "test"))):
        entry = {"filename": f"{number}.png", "filepath": folder, "cocoid": number, "split": split}
        entries.append({**entry, "sentences": [{"raw": "A dog runs."}]})
        write_photo(tmp_path / f"{number}.png", shade=80 * number)
        photos[folder][f"{folder}/{number}.png"] = (tmp_path / f"{number}.png").read_bytes()
    captions = json.dumps({"images": entries, "dataset": "small"}).encode()
    wanted = []
    for described in SOURCES["coco"].archives:
        content = zipped({"dataset_coco.json": captions} if described.holds == "captions" else photos[described.target])
        server.files[f"/{described.name}"] = content
        urls, digest = (f"{server.url}/{described.name}",), "md5:" + hashlib.md5(content).hexdigest()
        wanted.append(replace(described, urls=urls, megabytes=1, digest=digest))
    folder = tmp_path / "coco"
    download_dataset(source(*wanted), folder)
    assert names(folder) == ["dataset_coco.json", "train2014", "val2014"]
    report = check_dataset(read_dataset(folder))
    assert report.images == report.captions == {"train": 2, "test": 1}
    assert (report.problems, report.warnings) == ((), ())
