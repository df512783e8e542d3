"""Public datasets, fetched: from which addresses, with which checksums, and where the files go.

A file comes to `NAME.part` and is renamed when its size and checksum are right; what is unpacked gets its name when all
of it is there. Whatever is interrupted is gone on with by the same call: finished parts are left alone, a `.part` file
is continued where the server allows it, and a `NAME` that a person has put into the folder is taken as it is.
"""

from __future__ import annotations

import hashlib
import http.client
import shutil
import ssl
import stat
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from filelock import FileLock, Timeout

from showtell.errors import DataError
from showtell.progress import counting

Part = Literal["captions", "images"]

TIMEOUT = 30.0  # seconds without a byte after which a server counts as gone
ATTEMPTS = 5  # at one address, each going on where the last one stopped; one that brought nothing is the last
_CHUNK = 2**20  # bytes that are read at a time, and the unit of the bar


@dataclass(frozen=True)
class Archive:
    """A zip file that is fetched, of which one file or folder is kept."""

    name: str
    holds: Part
    urls: tuple[str, ...]  # mirrors, tried in turn
    megabytes: int  # about, for people and for the room on the disk
    size: int | None  # bytes, exactly; None: nobody could be found who says
    digest: str | None  # "md5:..." or "sha256:..."; None: none could be confirmed, the sums within the zip must do
    inside: str  # the file in the archive that is kept, or the folder, with a slash at its end
    target: str  # what it is called in the dataset's folder


@dataclass(frozen=True)
class Source:
    """A public dataset."""

    title: str
    licence: str
    archives: tuple[Archive, ...]
    by_hand: str = ""  # what nobody may fetch for a person, and how they get it


def _karpathy(name: str) -> Archive:
    return Archive(
        "caption_datasets.zip",
        "captions",
        (
            "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip",
            "https://huggingface.co/datasets/gpantaz/karpathy_split/resolve/main/caption_datasets.zip",
        ),
        35,
        36_745_453,
        "sha256:4cfd70132527b80933105e5829dc9034eaab9573482e2e680abbab6130244817",
        f"dataset_{name}.json",
        f"dataset_{name}.json",
    )


def _coco_images(name: str, megabytes: int, size: int, md5: str) -> Archive:
    # The two addresses are one bucket; the certificate is Amazon's and does not fit the other name.
    return Archive(
        f"{name}.zip",
        "images",
        (
            f"https://s3.amazonaws.com/images.cocodataset.org/zips/{name}.zip",
            f"http://images.cocodataset.org/zips/{name}.zip",
        ),
        megabytes,
        size,
        f"md5:{md5}",
        f"{name}/",
        name,
    )


# The addresses, sizes and sums are those that several independent programs fetch from and check against (November
# 2026); nothing was fetched to write this table. Where they contradict each other stands the one that most agree on.
SOURCES: dict[str, Source] = {
    "flickr8k": Source(
        "Flickr8k, 8,000 photos with 5 captions each, in Karpathy's splits",
        "The photos belong to those who put them on Flickr, and the collection is for non-commercial research and "
        "education: M. Hodosh, P. Young, J. Hockenmaier, JAIR 47, 2013.",
        (
            _karpathy("flickr8k"),
            Archive(
                "Flickr8k_Dataset.zip",
                "images",
                (
                    "https://github.com/jbrownlee/Datasets/releases/download/Flickr8k/Flickr8k_Dataset.zip",
                    "http://nlp.cs.illinois.edu/HockenmaierGroup/Framing_Image_Description/Flickr8k_Dataset.zip",
                ),
                1_064,
                None,
                "md5:f18a1e2920de5bd84dae7cf08ec78978",
                "Flicker8k_Dataset/",  # so spelt
                "images",
            ),
        ),
    ),
    "flickr30k": Source(
        "Flickr30k, 31,014 photos with 5 captions each, in Karpathy's splits",
        "The photos belong to those who put them on Flickr, and the collection is for non-commercial research and "
        "education: P. Young, A. Lai, M. Hodosh, J. Hockenmaier, TACL 2, 2014.",
        (_karpathy("flickr30k"),),
        "The photos of Flickr30k are given out on request: fill in the form at https://forms.illinois.edu/sec/229675 "
        "and unpack what you get into the folder images/ of the dataset",
    ),
    "coco": Source(
        "COCO 2014, 123,287 photos with 5 captions each, in Karpathy's splits",
        "The captions are under CC BY 4.0, the photos under the terms of Flickr and of those who put them there: "
        "https://cocodataset.org/#termsofuse",
        (
            _karpathy("coco"),
            _coco_images("train2014", 12_885, 13_510_573_713, "0da8c0bd3d6becc4dcb32757491aca88"),
            _coco_images("val2014", 6_337, 6_645_013_297, "a3d79f5ed8d289b7a7554ce06a5782b3"),
        ),
    ),
}


def fetch(
    source: Source,
    folder: Path,
    only: Part | None = None,
    *,
    say: Callable[[str], None] = lambda sentence: None,
    timeout: float = TIMEOUT,
) -> list[str]:
    """Fetch a dataset into a folder, or what is missing of it.

    Args:
        source: what to fetch.
        folder: made if it is not there.
        only: this part and not the other.
        say: called with a sentence at each step.
        timeout: seconds without a byte after which a server counts as gone.

    Returns:
        The names of what was put into the folder, fewer than all if some was there.

    Raises:
        DataError: no address gave the right file, the disk has no room, an archive is not what it should be, or
            another process is at it; what was fetched so far is kept.
    """
    wanted = [archive for archive in source.archives if only in (None, archive.holds)]
    if not wanted:
        raise DataError(f"{source.by_hand}.")
    with _alone(folder):
        missing = [archive for archive in wanted if not (folder / archive.target).exists()]
        for archive in wanted:
            if archive not in missing:
                say(f"{folder / archive.target} is there already.")
        for archive in missing:
            _need_room(folder, archive)
        for archive in missing:
            fetched = _fetch_archive(archive, folder, say, timeout)
            say(f"unpacking {archive.name}")
            _unpack(folder / archive.name, archive, folder, fetched)
            if fetched:
                (folder / archive.name).unlink()
    return [archive.target for archive in missing]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep a second process out of the folder."""
    lock = FileLock(folder / ".fetching.lock", timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with lock:
            yield
    except Timeout as error:
        raise DataError(f"Another showtell is fetching into {folder}; wait for it, or stop it.") from error
    except OSError as error:
        raise DataError(f"Cannot write into {folder}: {error.strerror or error}.") from error


def _need_room(folder: Path, archive: Archive) -> None:
    """Raise if the disk has no room for an archive and for what is in it, photos being as large unpacked."""
    whole = archive.megabytes * 2**20
    here = sum(path.stat().st_size for path in (_part(folder, archive), folder / archive.name) if path.exists())
    needed, free = max(whole - here, 0) + whole, shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"{archive.name} needs {needed / 2**30:.1f} GB in {folder} until it is unpacked, and {free / 2**30:.1f} GB "
            "are free; make room, or choose another folder with --to."
        )


# --- fetching ---

# Not OSError itself: a full disk is not the server's fault.
_CONNECTION_ERRORS = (urllib.error.URLError, ConnectionError, TimeoutError, ssl.SSLError, http.client.HTTPException)


class _FetchError(Exception):
    """An address that did not give the file; the message is the end of a sentence."""


def _part(folder: Path, archive: Archive) -> Path:
    return folder / f"{archive.name}.part"


def _fetch_archive(archive: Archive, folder: Path, say: Callable[[str], None], timeout: float) -> bool:
    """See to it that the archive lies in the folder, whole. False if a person had put it there."""
    file, part = folder / archive.name, _part(folder, archive)
    if file.exists():
        say(f"using {file}, which is there already")
        try:
            _verify(file, archive)
        except _FetchError as failure:
            raise DataError(f"{file} is not the file that it should be: {failure}; remove it.") from failure
        return False
    failures = []
    for url in archive.urls:
        say(f"fetching {url} ({archive.megabytes:,} MB)")
        try:
            _fetch_from(url, archive, part, timeout)
        except _FetchError as failure:
            failures.append(f"{url}: {failure}")
            say(f"{url}: {failure}")
        else:
            part.rename(file)
            return True
    raise DataError(
        f"{archive.name} could not be fetched ({'; '.join(failures)}); try again, which goes on where this stopped, or "
        f"put the file into {folder} yourself."
    )


def _fetch_from(url: str, archive: Archive, part: Path, timeout: float) -> None:
    """Bring the `.part` file to its end from one address, and verify it.

    Raises:
        _FetchError: the address does not have it, or has another file.
    """
    continued = part.exists()
    _complete(url, archive, part, timeout)
    try:
        _verify(part, archive)
    except _FetchError:
        part.unlink()
        if not continued:
            raise
        # What lay there may have been the beginning of another file: once more from the start.
        _complete(url, archive, part, timeout)
        try:
            _verify(part, archive)
        except _FetchError:
            part.unlink()
            raise


def _complete(url: str, archive: Archive, part: Path, timeout: float) -> None:
    """Bring the `.part` file to the length that the server or the table says."""
    with counting(f"{archive.name}, MB", archive.megabytes) as progress:
        for attempt in range(ATTEMPTS):
            before = part.stat().st_size if part.exists() else 0
            if attempt == 0:
                progress(before // _CHUNK)
            try:
                if _receive(url, part, archive.size, timeout, progress):
                    return
                reason = "the connection ended early"
            except urllib.error.HTTPError as error:
                raise _FetchError(f"the server answers {error.code} {error.reason}") from error
            except _CONNECTION_ERRORS as error:
                reason = str(getattr(error, "reason", error)) or type(error).__name__
            if part.exists() and part.stat().st_size == before:
                break
    raise _FetchError(reason)


def _receive(url: str, part: Path, size: int | None, timeout: float, progress: Callable[[int], None]) -> bool:
    """Add to the `.part` file what one request brings; whether it is complete then."""
    start = part.stat().st_size if part.exists() else 0
    if start == size:
        return True
    headers = {"User-Agent": "showtell", **({"Range": f"bytes={start}-"} if start else {})}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        return True  # there is no more of it; whether it is right is seen later
    with response:
        goes_on = response.status == http.HTTPStatus.PARTIAL_CONTENT and _begins_at(response, start)
        if not goes_on:
            start = 0
        length = response.headers.get("Content-Length")
        expected = size if length is None else start + int(length)
        if None not in (size, expected) and expected != size:
            raise _FetchError(f"the file there has {expected:,} bytes and should have {size:,}")
        with part.open("ab" if goes_on else "wb") as stream:
            while chunk := response.read(_CHUNK):
                stream.write(chunk)
                progress(1)
    return expected is None or part.stat().st_size == expected


def _begins_at(response: http.client.HTTPResponse, start: int) -> bool:
    return response.headers.get("Content-Range", "").startswith(f"bytes {start}-")


def _verify(file: Path, archive: Archive) -> None:
    """Raise if a file has not the size, the checksum or the kind that it should have."""
    size = file.stat().st_size
    if archive.size is not None and size != archive.size:
        raise _FetchError(f"it has {size:,} bytes and should have {archive.size:,}")
    if archive.digest is not None:
        algorithm, expected = archive.digest.split(":")
        with file.open("rb") as stream:
            found = hashlib.file_digest(stream, algorithm).hexdigest()
        if found != expected:
            raise _FetchError(f"its {algorithm} is {found} and should be {expected}")
    if not zipfile.is_zipfile(file):
        raise _FetchError("it is not a zip file")


# --- unpacking ---


def _unpack(file: Path, archive: Archive, folder: Path, fetched: bool) -> None:
    """Unpack what is kept of an archive, whole or not at all. The sums of the zip are checked on the way."""
    temporary = folder / f".{archive.target}.part"
    _remove(temporary)
    try:
        with zipfile.ZipFile(file) as opened:
            members = _members(opened, file, archive)
            room, free = sum(member.file_size for member, _ in members), shutil.disk_usage(folder).free
            if room > free:
                raise DataError(
                    f"{file} unpacks to {room / 2**30:.1f} GB, and {free / 2**30:.1f} GB are free; make room."
                )
            with counting(f"unpacking {archive.name}", len(members)) as progress:
                for member, path in members:
                    written = temporary.joinpath(*path.parts)
                    written.parent.mkdir(parents=True, exist_ok=True)
                    with opened.open(member) as content, written.open("wb") as stream:
                        shutil.copyfileobj(content, stream)
                    progress(1)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        if fetched:
            file.unlink()
        raise DataError(f"{file} is damaged: {error}; fetch it again.") from error
    else:
        temporary.rename(folder / archive.target)
    finally:
        _remove(temporary)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _members(opened: zipfile.ZipFile, file: Path, archive: Archive) -> list[tuple[zipfile.ZipInfo, PurePosixPath]]:
    """What is kept of an archive, with the path of each file below the target; "." for a target that is a file.

    Raises:
        DataError: there is nothing of it, or a member points outside or elsewhere.
    """
    kept = []
    for member in opened.infolist():
        path = PurePosixPath(member.filename.replace("\\", "/"))
        is_link = stat.S_ISLNK(member.external_attr >> 16)
        if path.is_absolute() or ".." in path.parts or ":" in member.filename or is_link:
            raise DataError(
                f'{file} holds "{member.filename}", which points outside its folder: it is not the file that it '
                "should be, and nothing of it was unpacked."
            )
        if not member.is_dir() and member.filename.startswith(archive.inside):
            kept.append((member, path.relative_to(PurePosixPath(archive.inside))))
    if not kept:
        raise DataError(f"{file} holds no {archive.inside}: it is not the file that it should be.")
    return kept
