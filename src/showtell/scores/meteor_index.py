"""METEOR's word lists and paraphrase table, read from the installed pycocoevalcap, the table as an index on disk.

The wheel holds METEOR 1.5 with its English resources: a jar (a zip) with synonyms, their irregular forms and the
function words, and a gzipped table of five million paraphrases. Read whole, the table takes seconds and gigabytes; the
index of sorted integers is mapped into memory. It is built once, in the user's cache folder (`SHOWTELL_CACHE`, else the
system's), under a lock: of several processes that start at once, one builds and the others wait.

A phrase is known by 64 bits of a hash that grows word by word. The index has the phrases of the table and all their
beginnings, sorted; so all phrases of many captions are found by binary search, and a caption is followed no further
than the table has a beginning of what stands there.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from showtell.errors import DataError, MissingDependencyError, install_command, notify
from showtell.files import cache_folder, locked, recover_folder, write_folder

LONGEST_PHRASE = 7  # words, in the table
_FORMAT = 2  # of the index: a change makes a new one
_JAR, _TABLE = "meteor-1.5.jar", "data/paraphrase-en.gz"
_ARRAYS = ("keys", "list_starts", "paraphrases")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # any large odd number
_RECORDS_AT_ONCE = 200_000
Hashes = npt.NDArray[np.uint64]
_INSTALL = f"{install_command('meteor')}."


@dataclass(frozen=True)
class MeteorIndex:
    """METEOR's English resources. A phrase is known by the index of its hash, its node."""

    synonyms: dict[str, str]  # of a word, the numbers of its sets of synonyms
    irregular: dict[str, tuple[str, ...]]  # "ran": "run"
    function_words: frozenset[str]
    keys: Hashes  # (nodes,) hashes of phrases and their beginnings, ascending
    list_starts: npt.NDArray[np.int32]  # (nodes + 1,) where each node's paraphrases start
    paraphrases: npt.NDArray[np.int32]  # nodes, list by list, in the table's order

    def synsets_of(self, word: str) -> tuple[int, ...]:
        """The synonym sets of a word exactly as it is listed."""
        return tuple(map(int, self.synonyms.get(word, "").split()))

    def paraphrases_of(self, node: int) -> list[int]:
        """The phrases that the table lists for a phrase, in its order."""
        nodes: list[int] = self.paraphrases[self.list_starts[node] : self.list_starts[node + 1]].tolist()
        return nodes

    def phrases(self, sentences: Sequence[Sequence[str]]) -> Iterator[list[tuple[int, int, int, bool]]]:
        """Per sentence, what begins a phrase of the table: (start, words, node, whether it has paraphrases)."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        hashes = np.fromiter(map(_hash, chain.from_iterable(sentences)), np.uint64)
        ends = np.repeat(np.cumsum(lengths), lengths)  # where the sentence of each word ends
        start = np.arange(len(hashes))
        key = np.zeros(len(hashes), dtype=np.uint64)
        matches = []
        for size in range(1, LONGEST_PHRASE + 1):
            fits = start + size <= ends[start]
            start = start[fits]
            different, where = np.unique(_longer(key[fits], hashes[start + size - 1]), return_inverse=True)
            node = np.searchsorted(self.keys, different)
            node[node == len(self.keys)] = 0
            is_node = (self.keys[node] == different)[where]
            start, key, node = start[is_node], different[where][is_node], node[where][is_node]
            matches.append((start, np.full_like(start, size), node))
        starts, sizes, nodes = (np.concatenate(column) for column in zip(*matches, strict=True))
        order = np.lexsort((sizes, starts))
        sentence = np.repeat(np.arange(len(lengths)), lengths)[starts[order]]
        has_paraphrases = self.list_starts[nodes[order]] < self.list_starts[nodes[order] + 1]
        firsts = (np.cumsum(lengths) - lengths)[sentence]
        columns = (starts[order] - firsts, sizes[order], nodes[order], has_paraphrases)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for count in np.bincount(sentence, minlength=len(lengths)).tolist():
            yield list(islice(rows, count))


def open_index(source: Path | None = None) -> MeteorIndex:
    """The index, built first if this machine has none, from METEOR's folder of the installed pycocoevalcap."""
    source = source or find_resources()
    folder = cache_folder() / f"meteor-{_FORMAT}-{_fingerprint(source)}"
    if not folder.exists():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with locked(folder.with_suffix(".lock"), wait=True):
                recover_folder(folder)
                if not folder.exists():
                    notify(f"Building METEOR's index in {folder}; once, it takes half a minute.")
                    write_folder(folder, lambda empty: _build(source / _TABLE, empty))
        except (OSError, DataError) as error:
            raise DataError(
                f"METEOR's index cannot be written to {folder.parent} ({error}); name another folder in SHOWTELL_CACHE."
            ) from error
    return _load(folder, source)


def pycocoevalcap_folder(metric: str) -> Path:
    """The folder of the installed pycocoevalcap, which a metric needs; or a MissingDependencyError."""
    package = importlib.util.find_spec("pycocoevalcap")
    if package is None or not package.submodule_search_locations:
        raise MissingDependencyError(f"{metric} needs files of pycocoevalcap, which is not installed; {_INSTALL}")
    return Path(package.submodule_search_locations[0])


def find_resources() -> Path:
    """The folder of METEOR in the installed pycocoevalcap."""
    folder = pycocoevalcap_folder("METEOR") / "meteor"
    if not ((folder / _JAR).is_file() and (folder / _TABLE).is_file()):
        raise MissingDependencyError(f"{folder} lacks METEOR's word lists; {_INSTALL}")
    if importlib.util.find_spec("snowballstemmer") is None:
        raise MissingDependencyError(f"METEOR needs snowballstemmer, which is not installed; {_INSTALL}")
    return folder


def stem(word: str) -> str:
    """Snowball's English stem, by the rules up to version 2.2 of its Python package."""
    return str(_stemmer().stemWord(word))


@cache
def _stemmer() -> Any:
    # the class, not the factory: the factory prefers PyStemmer, whose rules may be another version's
    from snowballstemmer.english_stemmer import EnglishStemmer

    return EnglishStemmer()


def _fingerprint(source: Path) -> str:
    """The fingerprint of the table: its checksum and length, the last eight bytes of a gzip."""
    with (source / _TABLE).open("rb") as stream:
        stream.seek(-8, os.SEEK_END)
        return stream.read().hex()


@lru_cache(maxsize=1 << 18)
def _hash(word: str) -> int:
    """64 bits."""
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _longer(phrases: Hashes, words: Hashes) -> Hashes:
    """The hashes of phrases with one word more; the empty phrase has 0."""
    return phrases * _MULTIPLIER + words


def _build(table: Path, folder: Path) -> None:
    """Write the index of a table into an empty folder."""
    sides: tuple[list[Hashes], list[Hashes]] = ([], [])
    beginnings = [np.zeros(0, dtype=np.uint64)]
    with gzip.open(table, "rt", encoding="utf-8", newline="\n") as stream:
        while lines := list(islice(stream, 3 * _RECORDS_AT_ONCE)):
            for side, phrases in zip(sides, (lines[1::3], lines[2::3]), strict=True):
                words = list(map(str.split, phrases))
                lengths = np.fromiter(map(len, words), np.int64, len(words))
                hashes = np.zeros((len(words), LONGEST_PHRASE), dtype=np.uint64)
                single = np.fromiter(map(_hash, chain.from_iterable(words)), np.uint64)
                hashes[np.arange(LONGEST_PHRASE) < lengths[:, None]] = single
                key = np.zeros(len(words), dtype=np.uint64)
                for size in range(1, lengths.max() + 1):
                    key = np.where(lengths >= size, _longer(key, hashes[:, size - 1]), key)
                    beginnings.append(np.unique(key))
                side.append(key)
    keys = np.unique(np.concatenate(beginnings))
    left, right = (np.searchsorted(keys, np.concatenate(side)) for side in sides)
    order = np.argsort(left, kind="stable")  # the table's order within each list
    starts = np.concatenate([[0], np.cumsum(np.bincount(left, minlength=len(keys)))])
    arrays: tuple[Any, ...] = (keys, starts.astype(np.int32), right[order].astype(np.int32))
    for name, array in zip(_ARRAYS, arrays, strict=True):
        np.save(folder / f"{name}.npy", array)


@lru_cache(maxsize=1)
def _load(folder: Path, source: Path) -> MeteorIndex:
    with zipfile.ZipFile(source / _JAR) as jar:
        names = ("synonym/english.synsets", "synonym/english.exceptions", "function/english.words")
        synonyms, exceptions, function_words = (jar.read(name).decode("utf-8").split("\n") for name in names)
    irregular: dict[str, tuple[str, ...]] = {}
    for base, forms in zip(exceptions[0::2], exceptions[1::2], strict=False):
        for form in forms.split():
            irregular[form] = (*irregular.get(form, ()), base)
    return MeteorIndex(
        synonyms={word: sets for word, sets in zip(synonyms[0::2], synonyms[1::2], strict=False) if "_" not in word},
        irregular=irregular,
        function_words=frozenset(function_words) - {""},
        # still on disk, but without memmap's slow indexing
        **{name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r")) for name in _ARRAYS},
    )
