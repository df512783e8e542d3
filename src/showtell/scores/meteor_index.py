"""METEOR's word lists and paraphrase table, read from the installed pycocoevalcap, as a compact index on disk.

The wheel holds METEOR 1.5 with its English resources: a jar (a zip) with synonyms, their irregular forms and the
function words, and a gzipped table of five million paraphrases. Read whole, the table takes seconds and gigabytes;
as sorted integers it takes 60 MB, of which only what is looked at is ever in memory. The index is built once, in the
user's cache folder (`SHOWTELL_CACHE`, else the system's), under a lock: when several processes start at once, one
builds and the others wait for it.

A phrase is a path in a trie of words. A node's number stands for its phrase; the key of a node is (parent, word), and
a level's keys are sorted, so all phrases of many captions are found by binary search, one level at a time.
"""

from __future__ import annotations

import gzip
import importlib.util
import os
import zipfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from showtell.errors import DataError, MissingDependencyError, notify
from showtell.files import cache_folder, recover_folder, write_folder
from showtell.scores.ngrams import Integers

LONGEST_PHRASE = 7  # words, in the table
_FORMAT = 1  # of the index: a change makes a new one
_JAR, _TABLE = "meteor-1.5.jar", "data/paraphrase-en.gz"
_WORD_BITS = 16
_NO_WORD = (1 << _WORD_BITS) - 1
_RECORDS_AT_ONCE = 200_000
Words = npt.NDArray[np.uint16]
_INSTALL = 'install it with pip install "showtell[meteor]".'


@dataclass(frozen=True)
class MeteorIndex:
    """METEOR's English resources."""

    words: dict[str, int]  # number of each word of the table or of the synonyms
    stems: list[str]  # of each word
    synset_starts: Integers  # (words + 1,) where each word's synsets start
    synsets: Integers  # numbers of sets of synonyms, word by word
    table_words: int  # words numbered below this are in the table of paraphrases
    irregular: dict[str, tuple[str, ...]]  # "ran": "run"
    function_words: frozenset[str]
    levels: list[npt.NDArray[np.int64]]  # of the trie: sorted keys (parent << 16 | word)
    level_starts: list[int]  # the number of each level's first node
    list_starts: npt.NDArray[np.int64]  # (nodes + 1,) where each node's paraphrases start
    paraphrases: npt.NDArray[np.int32]  # nodes, list by list, in the table's order

    def synsets_of(self, word: str) -> tuple[int, ...]:
        """The synonym sets of a word exactly as it is listed."""
        number = self.words.get(word)
        if number is None:
            return ()
        return tuple(self.synsets[self.synset_starts[number] : self.synset_starts[number + 1]].tolist())

    def has_synsets(self, word: str) -> bool:
        """Whether the word is listed with synonyms."""
        number = self.words.get(word)
        return number is not None and self.synset_starts[number] < self.synset_starts[number + 1]

    def paraphrases_of(self, node: int) -> list[int]:
        """The phrases that the table lists for a phrase, in its order."""
        nodes: list[int] = self.paraphrases[self.list_starts[node] : self.list_starts[node + 1]].tolist()
        return nodes

    def phrases(self, sentences: Sequence[Sequence[str]]) -> Iterator[list[tuple[int, int, int, bool]]]:
        """Per sentence, what begins a phrase of the table: (start, words, node, whether it has paraphrases)."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        get = self.words.get
        flat = chain.from_iterable(sentences)
        numbers = np.fromiter((get(word, -1) for word in flat), np.int64, int(lengths.sum()))
        numbers[numbers >= self.table_words] = -1
        ends = np.repeat(np.cumsum(lengths), lengths)  # where the sentence of each word ends
        start = np.flatnonzero(numbers >= 0)
        node = numbers[start]  # a phrase of one word: the first level's nodes are the words
        matches = [(start, np.ones_like(start), node)]
        for size in range(2, LONGEST_PHRASE + 1):
            fits = start + size <= ends[start]
            start, node = start[fits], node[fits]
            word = numbers[start + size - 1]
            known = word >= 0
            start, key = start[known], node[known] << _WORD_BITS | word[known]
            level = self.levels[size - 1]
            node_index = np.searchsorted(level, key)
            node_index[node_index == len(level)] = 0
            is_node = level[node_index] == key
            start, node = start[is_node], node_index[is_node] + self.level_starts[size - 1]
            matches.append((start, np.full_like(start, size), node))
        starts, sizes, nodes = (np.concatenate(column) for column in zip(*matches, strict=True))
        order = np.lexsort((sizes, starts))
        firsts = np.cumsum(lengths) - lengths
        sentence = np.repeat(np.arange(len(lengths)), lengths)[starts[order]]
        has_paraphrases = self.list_starts[nodes[order]] < self.list_starts[nodes[order] + 1]
        columns = (starts[order] - firsts[sentence], sizes[order], nodes[order], has_paraphrases)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for count in np.bincount(sentence, minlength=len(lengths)).tolist():
            yield list(islice(rows, count))


def open_index(source: Path | None = None, report: Callable[[str], None] | None = None) -> MeteorIndex:
    """The index, built first if this machine has none.

    Args:
        source: METEOR's folder; None is that of the installed pycocoevalcap.
        report: told what takes long; None is a line on stderr.

    Raises:
        MissingDependencyError: pycocoevalcap or snowballstemmer is not installed.
        DataError: the cache folder cannot be written to.
    """
    from filelock import FileLock

    source = source or find_resources()
    folder = cache_folder() / f"meteor-{_FORMAT}-{_fingerprint(source)}"
    if not (folder / "words.txt").exists():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(folder.with_suffix(".lock")):
                recover_folder(folder)
                if not (folder / "words.txt").exists():
                    (report or notify)(f"Building METEOR's index in {folder}; once, it takes half a minute.")
                    write_folder(folder, lambda empty: _build(source, empty))
        except (OSError, DataError) as error:
            raise DataError(
                f"METEOR's index cannot be written to {folder.parent} ({error}); name another folder in SHOWTELL_CACHE."
            ) from error
    return _load(folder, source)


def find_resources() -> Path:
    """The folder of METEOR in the installed pycocoevalcap.

    Raises:
        MissingDependencyError: it is not installed, or another metric's stemmer.
    """
    package = importlib.util.find_spec("pycocoevalcap")
    if package is None or not package.submodule_search_locations:
        raise MissingDependencyError(
            f"METEOR reads its word lists from pycocoevalcap, which is not installed; {_INSTALL}"
        )
    folder = Path(package.submodule_search_locations[0]) / "meteor"
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
    """Of the resources: the table's checksum (the last eight bytes of a gzip) and the jar's size."""
    with (source / _TABLE).open("rb") as stream:
        stream.seek(-8, os.SEEK_END)
        return f"{stream.read().hex()}-{(source / _JAR).stat().st_size:x}"


# ---- building


def _build(source: Path, folder: Path) -> None:
    """Write the index into an empty folder."""
    table, left, right = _read_table(source / _TABLE)
    with zipfile.ZipFile(source / _JAR) as jar:
        listed = _pairs_of_lines(jar, "synonym/english.synsets")
        synonyms = {word: numbers.split() for word, numbers in listed if "_" not in word}
    words = [*table, *sorted(synonyms.keys() - table.keys())]
    (folder / "stems.txt").write_text("\n".join(map(stem, words)), encoding="utf-8")
    sets = [synonyms.get(word, []) for word in words]
    np.save(folder / "synset_starts.npy", np.cumsum([0, *map(len, sets)], dtype=np.int64))
    np.save(folder / "synsets.npy", np.array(list(map(int, chain.from_iterable(sets))), dtype=np.int32))
    _build_trie(folder, len(table), left, right)
    np.save(folder / "table_words.npy", np.int64(len(table)))
    (folder / "words.txt").write_text("\n".join(words), encoding="utf-8")


def _read_table(path: Path) -> tuple[dict[str, int], Words, Words]:
    """The table as numbers: words, and for each record the left and the right phrase, (records, 7) each."""
    words: dict[str, int] = {}
    sides: tuple[list[Words], ...] = ([], [])
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as stream:
        while lines := list(islice(stream, 3 * _RECORDS_AT_ONCE)):
            for side, phrases in zip(sides, (lines[1::3], lines[2::3]), strict=True):
                side.append(_numbered([phrase.split() for phrase in phrases], words))
    return words, np.concatenate(sides[0]), np.concatenate(sides[1])


def _numbered(phrases: list[list[str]], words: dict[str, int]) -> Words:
    """Phrases as rows of word numbers, new words numbered as they come: (phrases, 7), `_NO_WORD` behind the last."""
    lengths = np.fromiter(map(len, phrases), np.int64, len(phrases))
    flat = array("H", (words.setdefault(word, len(words)) for word in chain.from_iterable(phrases)))
    rows = np.full((len(phrases), LONGEST_PHRASE), _NO_WORD, dtype=np.uint16)
    rows[np.arange(LONGEST_PHRASE) < lengths[:, None]] = np.frombuffer(flat, dtype=np.uint16)
    return rows


def _build_trie(folder: Path, words: int, left: Words, right: Words) -> None:
    """Number all phrases of the table as nodes of a trie, and write each one's list of paraphrases."""
    nodes = [rows[:, 0].astype(np.int64) for rows in (left, right)]  # the first level: node = word
    first = words
    for size in range(2, LONGEST_PHRASE + 1):
        longer = [np.flatnonzero(rows[:, size - 1] != _NO_WORD) for rows in (left, right)]
        keys = [
            node[at] << _WORD_BITS | rows[at, size - 1]
            for node, at, rows in zip(nodes, longer, (left, right), strict=True)
        ]
        level = np.unique(np.concatenate(keys))
        for node, at, key in zip(nodes, longer, keys, strict=True):
            node[at] = np.searchsorted(level, key) + first
        np.save(folder / f"level_{size}.npy", level)
        first += len(level)
    order = np.argsort(nodes[0], kind="stable")  # the table's order within each list
    np.save(folder / "paraphrases.npy", nodes[1][order].astype(np.int32))
    counts = np.bincount(nodes[0], minlength=first)
    np.save(folder / "list_starts.npy", np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))


# ---- loading


@lru_cache(maxsize=1)
def _load(folder: Path, source: Path) -> MeteorIndex:
    with zipfile.ZipFile(source / _JAR) as jar:
        irregular: dict[str, list[str]] = {}
        for base, forms in _pairs_of_lines(jar, "synonym/english.exceptions"):
            for form in forms.split():
                irregular.setdefault(form, []).append(base)
        function_words = frozenset(jar.read("function/english.words").decode("utf-8").split("\n")) - {""}
    words = (folder / "words.txt").read_text(encoding="utf-8").split("\n")
    levels = [_mapped(folder / f"level_{size}.npy") for size in range(2, LONGEST_PHRASE + 1)]
    table_words = int(np.load(folder / "table_words.npy"))
    starts = np.cumsum([table_words, *map(len, levels)]).tolist()
    return MeteorIndex(
        words={word: number for number, word in enumerate(words)},
        stems=(folder / "stems.txt").read_text(encoding="utf-8").split("\n"),
        synset_starts=_mapped(folder / "synset_starts.npy"),
        synsets=_mapped(folder / "synsets.npy"),
        table_words=table_words,
        irregular={form: tuple(bases) for form, bases in irregular.items()},
        function_words=function_words,
        levels=[np.arange(table_words), *levels],
        level_starts=[0, *starts[:-1]],
        list_starts=_mapped(folder / "list_starts.npy"),
        paraphrases=_mapped(folder / "paraphrases.npy"),
    )


def _mapped(path: Path) -> Any:
    return np.asarray(np.load(path, mmap_mode="r"))  # still on disk, but without memmap's slow indexing


def _pairs_of_lines(jar: zipfile.ZipFile, name: str) -> Iterable[tuple[str, str]]:
    lines = jar.read(name).decode("utf-8").split("\n")
    return zip(lines[0::2], lines[1::2], strict=False)
