"""Words and their ids. `pad`, `begin`, `end` and `unknown` are four different ids."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

from showtell.errors import CheckpointError, UsageError, printable, shorten
from showtell.text.tokenizer import TOKENIZER_VERSION, tokenize

MAX_WORD_LENGTH = 1000  # characters; a longer one is no word, and would fill every table and picture that shows it
# Unicode categories of characters that are in no word.
_FORBIDDEN = {"Cc": "a control character", "Cs": "a lone surrogate", "Zl": "a line end", "Zp": "a line end"}
SPECIAL = ("<pad>", "<begin>", "<end>", "<unknown>")


class Vocabulary:
    """An ordered list of words. The four special ids come first; a word's id is its index."""

    pad = 0
    begin = 1
    end = 2
    unknown = 3
    unit = "words"  # what ids stand for

    def __init__(self, words: Sequence[str]) -> None:
        self.words = (*SPECIAL, *words)
        self._ids = {word: index for index, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            repeated = next(word for word, count in Counter(self.words).items() if count > 1)
            raise UsageError(f'The vocabulary holds "{repeated}" twice; every word needs one id.')

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __repr__(self) -> str:
        return f"Vocabulary({len(self) - len(SPECIAL)} words, fingerprint {self.fingerprint})"

    @classmethod
    def build(cls, captions: Iterable[Sequence[str]], min_count: int = 1, max_size: int | None = None) -> Vocabulary:
        """The words of training captions, the most frequent first, equal counts by alphabet.

        Words with fewer than `min_count` occurrences or with control characters are unknown; `max_size` does not
        count the special ones.
        """
        counts = Counter(word for caption in captions for word in caption)
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        kept = [word for word, count in ordered if count >= min_count and word not in SPECIAL and not word_fault(word)]
        return cls(kept[:max_size])

    def split(self, text: str) -> list[str]:
        """The words of a text: what stands between spaces if all of it is known, else those of the tokenizer."""
        words = text.split()
        return words if all(word in self for word in words) else tokenize(text)

    def encode(self, words: Iterable[str], max_length: int | None = None) -> list[int]:
        """begin, the ids of the words (at most `max_length` of them), end."""
        ids = [max(self._ids.get(word, self.unknown), self.unknown) for word in words][:max_length]
        return [self.begin, *ids, self.end]

    def encode_text(self, text: str, max_length: int | None = None) -> list[int]:
        """The same of the text of a caption."""
        return self.encode(tokenize(text), max_length)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words up to the first `end`; `pad` and `begin` are left out."""
        before_end = takewhile(lambda index: index != self.end, ids)
        return [self.words[index] for index in before_end if index not in (self.pad, self.begin)]

    def unknown_rate(self, captions: Iterable[Sequence[str]]) -> float:
        """The share of the words of some captions that are not in the vocabulary; 0 where there are no words."""
        words = [word for caption in captions for word in caption]
        return sum(word not in self._ids for word in words) / len(words) if words else 0.0

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change with any word, any order and the tokenizer."""
        content = json.dumps([TOKENIZER_VERSION, *self.words], ensure_ascii=False)
        return hashlib.sha256(content.encode("utf-8")).hexdigest()[:12]

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"words": self.words[len(SPECIAL) :], "tokenizer": TOKENIZER_VERSION, "fingerprint": self.fingerprint}

    @classmethod
    def from_json(cls, content: dict[str, Any], source: object) -> Vocabulary:
        """The vocabulary of a checkpoint; a CheckpointError if its words were changed since that was written."""
        words = content["words"]
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise CheckpointError(f"The vocabulary in {source} is damaged: its words should be a list of texts.")
        ids: dict[str, int] = {word: index for index, word in enumerate(SPECIAL)}
        for index, word in enumerate(words, start=len(SPECIAL)):
            if fault := word_fault(word) or (f"is that of id {ids[word]} too" if word in ids else None):
                shown = printable(shorten(word, 40))
                raise CheckpointError(
                    f'The vocabulary in {source} is damaged: the word of id {index}, "{shown}", {fault}.'
                )
            ids[word] = index
        vocabulary = cls(words)
        if content["tokenizer"] == TOKENIZER_VERSION and content["fingerprint"] != vocabulary.fingerprint:
            raise CheckpointError(
                f"The vocabulary in {source} has fingerprint {vocabulary.fingerprint}, but the checkpoint was trained "
                f"with {content['fingerprint']}: its words were changed; restore the file that was saved."
            )
        return vocabulary


def word_fault(word: str) -> str | None:
    """The reason why a text cannot be a word of a vocabulary, as the end of a sentence; None if it can."""
    if not word:
        return "is empty"
    if len(word) > MAX_WORD_LENGTH:
        return f"has {len(word):,} characters; at most {MAX_WORD_LENGTH} are allowed"
    for position, character in enumerate(word, start=1):
        if unicodedata.category(character) in _FORBIDDEN:
            return f"has {_FORBIDDEN[unicodedata.category(character)]} at character {position}"
    return None
