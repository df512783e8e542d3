"""Downloading public datasets: their addresses and checksums, resumable downloads, and unpacking.

A file is downloaded to `NAME.part` and renamed when its checksum is right; what is unpacked gets its name when it is
complete. The same call resumes an interrupted one: finished parts are skipped, a `.part` file is continued if the
server allows it, and a `NAME` that a person has put into the folder is used as it is.
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from huggingface_hub.file_download import http_get

from showtell.errors import DataError, first_line, notify
from showtell.processes import lock_folder
from showtell.progress import counting

Part = Literal["captions", "images"]


@dataclass(frozen=True)
class Archive:
    """A zip file to download, of which one file or folder is kept."""

    name: str
    holds: Part
    urls: tuple[str, ...]  # mirrors, tried in turn
    megabytes: int  # roughly
    digest: str  # "md5:..." or "sha256:..."
    inside: str  # the file in the archive that is kept, or the folder, with a slash at its end
    target: str  # its name in the dataset's folder


@dataclass(frozen=True)
class Source:
    """A public dataset."""

    title: str
    licence: str
    archives: tuple[Archive, ...]
    by_hand: str = ""  # what cannot be downloaded automatically, and how to get it


def _karpathy(name: str) -> Archive:
    urls = (
        "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip",
        "https://huggingface.co/datasets/gpantaz/karpathy_split/resolve/main/caption_datasets.zip",
    )
    digest, file = "sha256:4cfd70132527b80933105e5829dc9034eaab9573482e2e680abbab6130244817", f"dataset_{name}.json"
    return Archive("caption_datasets.zip", "captions", urls, 35, digest, file, file)


def _coco_images(name: str, megabytes: int, md5: str) -> Archive:
    # The two addresses are one bucket; the certificate is Amazon's and does not fit the other name.
    urls = (
        f"https://s3.amazonaws.com/images.cocodataset.org/zips/{name}.zip",
        f"http://images.cocodataset.org/zips/{name}.zip",
    )
    return Archive(f"{name}.zip", "images", urls, megabytes, f"md5:{md5}", f"{name}/", name)


# Addresses and checksums are those that several independent programs use (November 2026), by majority where they
# differ; nothing was downloaded to write this table.
_FLICKR = "The photos belong to those who put them on Flickr, and are for non-commercial research and education"
SOURCES: dict[str, Source] = {
    "flickr8k": Source(
        "Flickr8k, 8,000 photos with 5 captions each, in Karpathy's splits",
        f"{_FLICKR}: M. Hodosh, P. Young, J. Hockenmaier, JAIR 47, 2013.",
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
                "md5:f18a1e2920de5bd84dae7cf08ec78978",
                "Flicker8k_Dataset/",  # so spelt
                "images",
            ),
        ),
    ),
    "flickr30k": Source(
        "Flickr30k, 31,014 photos with 5 captions each, in Karpathy's splits",
        f"{_FLICKR}: P. Young, A. Lai, M. Hodosh, J. Hockenmaier, TACL 2, 2014.",
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
            _coco_images("train2014", 12_885, "0da8c0bd3d6becc4dcb32757491aca88"),
            _coco_images("val2014", 6_337, "a3d79f5ed8d289b7a7554ce06a5782b3"),
        ),
    ),
}


def download_dataset(source: Source, folder: Path, only: Part | None = None) -> None:
    """Download a dataset, or one part of it; existing files are skipped, and an error keeps what is there so far."""
    if not (wanted := [archive for archive in source.archives if only in (None, archive.holds)]):
        raise DataError(f"{source.by_hand}.")
    with lock_folder(folder, "downloading into", "another --to"):
        try:
            for archive in wanted:
                if (folder / archive.target).exists():
                    notify(f"{folder / archive.target} exists already and is skipped.")
                else:
                    _fetch(archive, folder)
        except OSError as error:
            raise DataError(f"Cannot write into {folder}: {error.strerror or error}.") from error


def _fetch(archive: Archive, folder: Path) -> None:
    """Download an archive, unless a person put it into the folder, and unpack what is kept of it."""
    file = folder / archive.name
    if is_own := not file.exists():
        _download(archive, file)
    elif wrong := _mismatch(file, archive):
        raise DataError(f"{file} is not the file that it should be: {wrong}; remove it.")
    try:
        _unpack(file, archive, folder / archive.target)
    finally:
        if is_own:
            file.unlink()


def _download(archive: Archive, file: Path) -> None:
    """Bring the whole archive from the first mirror that has it."""
    part, failures = file.with_name(f"{file.name}.part"), []
    for url in archive.urls:
        notify(f"downloading {url} ({archive.megabytes:,} MB)")
        failure = _complete(url, part, archive)
        if failure is None:
            part.rename(file)
            return
        failures.append(f"{url}: {failure}")
        notify(failures[-1])
    raise DataError(
        f"{archive.name} could not be downloaded ({'; '.join(failures)}); run the same command again to resume, or put "
        f"the file into {file.parent} yourself."
    )


def _complete(url: str, part: Path, archive: Archive) -> str | None:
    """Complete the `.part` file from one address; why not, if that fails."""
    size = part.stat().st_size if part.exists() else 0
    try:
        with part.open("ab") as stream:
            http_get(url, stream, resume_size=size, displayed_filename=archive.name)
    except Exception as error:  # noqa: BLE001  (of whatever library for HTTP the hub's has)
        if getattr(getattr(error, "response", None), "status_code", None) != 416:  # the file has no more bytes
            return first_line(error)
    if (failure := _mismatch(part, archive)) is not None:
        part.unlink()
        return _complete(url, part, archive) if size else failure  # what was there may have been of another file
    return None


def _mismatch(file: Path, archive: Archive) -> str | None:
    """How a file differs from what it should be; None if it does not."""
    algorithm, expected = archive.digest.split(":")
    with file.open("rb") as stream:
        actual = hashlib.file_digest(stream, algorithm).hexdigest()
    return None if actual == expected else f"its {algorithm} is {actual} and should be {expected}"


def _unpack(file: Path, archive: Archive, target: Path) -> None:
    """Unpack the kept part of an archive, whole or not at all. `ZipFile.extract` leads no name out of the folder."""
    temporary = target.with_name(f".{target.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with zipfile.ZipFile(file) as opened:
            members = [name for name in opened.namelist() if name.startswith(archive.inside) and not name.endswith("/")]
            if not members:
                raise DataError(f"{file} holds no {archive.inside}: it is not the file that it should be.")
            with counting(f"unpacking {archive.name}", len(members)) as progress:
                for member in members:
                    opened.extract(member, temporary)
                    progress(1)
        (temporary / archive.inside).rename(target)
    except (zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{file} is damaged: {error}; download it again.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
