"""The words of a source in the ids of ours, and tables of its rows in our order.

Sources mark begin, end and padding by ids of their own, or all three by one. Ours are four different ids, unknown among
them. A logit of the source stands in exactly one row of ours; a row that the source has not gets no weights and a bias
so low that its probability is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from showtell.errors import DataError, printable, shorten, summarise
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import SPECIAL, Vocabulary, word_fault

NEVER = -1e4  # bias of words that have no row in the source: e to that is 0


@dataclass(frozen=True)
class SourceWords:
    """The rows of a source that our vocabulary is made of."""

    vocabulary: Vocabulary
    embedded: tuple[int | None, ...]  # for each of our ids, the row whose vector is fed for it; None: zeros
    predicted: tuple[int | None, ...]  # for each of our ids, the row with its logit; None: it never occurs
    never_typed: tuple[str, ...]  # words that no tokenized text has

    def embedding(self, table: Tensor) -> Tensor:
        """Word embeddings, (rows of the source, E) to (V, E)."""
        return _rows(table, self.embedded)

    def output_weight(self, weight: Tensor) -> Tensor:
        """The output layer, (rows of the source, H) to (V, H)."""
        return _rows(weight, self.predicted)

    def output_bias(self, bias: Tensor) -> Tensor:
        """Its bias, (rows of the source,) to (V,)."""
        rows = _rows(bias, self.predicted)
        rows[torch.tensor([row is None for row in self.predicted])] = NEVER
        return rows

    def describe(self) -> str:
        """The vocabulary in a sentence."""
        sentence = f"{len(self.vocabulary) - len(SPECIAL):,} words"
        sentence += " and one for unknown words" if self.predicted[Vocabulary.unknown] is not None else ""
        if self.never_typed:
            sentence += (
                f"; {len(self.never_typed):,} of them are words that the tokenizer never makes of a text "
                f"({summarise(self.never_typed, 5)}): a text has them only where all of its words are in the vocabulary"
            )
        return sentence


def _rows(table: Tensor, rows: tuple[int | None, ...]) -> Tensor:
    made = table.new_zeros(len(rows), *table.shape[1:])
    present = torch.tensor([index for index, row in enumerate(rows) if row is not None])
    made[present] = table[torch.tensor([row for row in rows if row is not None])]
    return made


def map_words(
    words: Mapping[int, str],
    *,
    rows: int,
    begin: int,
    end: int,
    pad: int,
    unknown: int | None,
    source: str,
    weights: str,
) -> SourceWords:
    """Map the rows of a source to a vocabulary.

    Args:
        words: of the source by their ids; marks may be among them.
        rows: of its embedding table.
        begin: id of the mark.
        end: likewise; may be the same id.
        pad: likewise.
        unknown: id of the word for unknown words, if it has one.
        source: what messages call the file of the words.
        weights: what messages call the file of the tensors.

    Raises:
        DataError: ids are missing or beyond the table, or a word occurs twice or is none.
    """
    marks = {"begin": begin, "end": end, "pad": pad, **({} if unknown is None else {"unknown": unknown})}
    for name, index in marks.items():
        if not 0 <= index < rows:
            raise DataError(
                f"The id of {name} in {source} is {index}, and {weights} has the words 0 to {rows - 1}: the two files "
                "do not belong together."
            )
    special = set(marks.values())
    beyond = sorted(index for index in words if not 0 <= index < rows)
    missing = [index for index in range(rows) if index not in words and index not in special]
    if beyond or missing:
        reason = (
            f"no word has id {summarise(missing, 3)}" if missing else f"there are words of id {summarise(beyond, 3)}"
        )
        raise DataError(
            f"{source} has {len(words):,} words and {weights} rows for {rows:,}, {len(special)} of them marks: "
            f"{reason}. The two files do not belong together; give those that were saved by one run."
        )
    ordinary = {index: words[index] for index in sorted(words) if index not in special}
    if not ordinary:
        raise DataError(f"{source} has no words; a captioner needs some.")
    first: dict[str, int] = {}
    for index, word in ordinary.items():
        shown = printable(shorten(word, 40))
        if word in SPECIAL:
            raise DataError(f'The word of id {index} in {source} is "{shown}", which marks something else here.')
        if fault := word_fault(word):
            raise DataError(f'The word of id {index} in {source}, "{shown}", {fault}; no vocabulary has such a word.')
        if word in first:
            raise DataError(f'{source} has the word "{shown}" twice, with ids {first[word]} and {index}.')
        first[word] = index
    embedded: list[int | None] = [pad, begin, end, unknown]  # in the order of our ids
    predicted: list[int | None] = [None] * len(SPECIAL)
    for ours in (Vocabulary.end, Vocabulary.unknown, Vocabulary.begin, Vocabulary.pad):  # what a shared row stands for
        if embedded[ours] not in predicted:
            predicted[ours] = embedded[ours]
    return SourceWords(
        Vocabulary(list(ordinary.values())),
        (*embedded, *ordinary),
        (*predicted, *ordinary),
        tuple(word for word in first if tokenize(word) != [word]),
    )
