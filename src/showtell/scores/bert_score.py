"""BERTScore: how near each token of a caption is to one of a reference for an encoder of texts, and the reverse.

T. Zhang et al., BERTScore: evaluating text generation with BERT, ICLR 2020, with x the tokens of a reference, y those
of a caption and w their weights:

    P = sum_y w(y) max_x cos(x, y) / sum_y w(y)        R = sum_x w(x) max_y cos(x, y) / sum_x w(x)        F = H(P, R)

Weights are 1, or with idf log((N + 1) / (n + 1)) for a token that n of N references have; the special tokens around a
text weigh nothing, but can be nearest. Of several references the best P, R and F count, each on its own. Rescaled,
each becomes (P - b) / (1 - b), b being its mean over unrelated texts. A text without a word scores 0 before that.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from showtell import __version__
from showtell.errors import DataError
from showtell.files import read_text
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber
from showtell.scores.row_journal import RowJournal, Rows, key_of

if TYPE_CHECKING:
    from showtell.scores.bert_encoder import BertEncoder
    from showtell.scores.model_settings import ScoreModels

_VERSION = 1  # of how texts are compared: a change makes new journals
_TEXTS = 32  # batches of texts whose vectors are held at once, which are sorted by length


class BertScore(Score):
    """P, R and F of BERTScore. Statistics: those of each image."""

    numbers = (
        ScoreNumber("bert_score_p", "BERTScore P"),
        ScoreNumber("bert_score_r", "BERTScore R"),
        ScoreNumber("bert_score_f1", "BERTScore F1", explanation_rank=11),
    )
    summary = "BERTScore: how near the tokens of caption and reference are for an encoder of texts"
    needs = ("references", "weights")
    weights = "bert_model"

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 3).

        Raises:
            DataError: the file of baselines cannot be used.
        """
        models = _models(corpus)
        baseline = models.baseline
        counts = [len(texts) for texts in corpus.references]
        captions = list(chain.from_iterable([text] * n for text, n in zip(corpus.predictions, counts, strict=True)))
        references = list(chain.from_iterable(corpus.references))
        pairs = compare_texts(models.bert, captions, references, idf=models.settings.bert_idf).astype(np.float64)
        best = np.maximum.reduceat(pairs, np.cumsum([0, *counts[:-1]]), axis=0)
        return best if baseline is None else (best - baseline) / (1 - baseline)

    def from_sums(self, sums: Floats, images: int) -> Floats:
        """The means."""
        return sums / images

    def signature(self, corpus: Corpus) -> str:
        """References, the encoder with everything that its vectors depend on, weights, rescaling, version."""
        settings = _models(corpus).settings
        idf = f"references:{sum(map(len, corpus.references))}" if settings.bert_idf else "no"
        rescaled = "no" if settings.bert_baseline is None else Path(settings.bert_baseline).name
        return (
            f"{corpus.reference_counts}|{_models(corpus).bert.signature}|idf:{idf}|rescaled:{rescaled}|"
            f"version:{__version__}"
        )

    def warning(self, corpus: Corpus) -> str | None:
        """Texts beyond the context of the encoder."""
        encoder = _models(corpus).bert
        texts = [*corpus.predictions, *chain.from_iterable(corpus.references)]
        count = encoder.count_truncated(texts)
        if not count:
            return None
        return (
            f"BERTScore: {count} of {len(texts)} texts have more than the {encoder.context} tokens that {encoder.name} "
            "reads; what is behind them counted nothing."
        )


def _models(corpus: Corpus) -> ScoreModels:
    assert corpus.models is not None  # `measure` sees to what a score needs
    return corpus.models


def compare_texts(encoder: BertEncoder, captions: Sequence[str], references: Sequence[str], *, idf: bool) -> Rows:
    """P, R and F of each caption and reference, before rescaling: (pairs, 3).

    Args:
        encoder: of the texts.
        captions: one for each pair.
        references: one for each pair; with idf all of them are counted, however often they occur.
        idf: weight tokens by how few references have them.
    """
    texts = list(dict.fromkeys([*captions, *references]))
    ids = dict(zip(texts, encoder.token_ids(texts), strict=True))
    weights = _Weights(encoder, [ids[text] for text in references] if idf else None)
    journal = RowJournal(f"bert-{key_of(encoder.digest, str(_VERSION), weights.digest).hex()}", 3)
    keys = [key_of(caption, reference) for caption, reference in zip(captions, references, strict=True)]

    def make(missing: list[int]) -> Iterator[tuple[list[int], Rows]]:
        for pairs in _chunks(missing, captions, references, encoder.batch_size * _TEXTS):
            used = {text: ids[text] for number in pairs for text in (captions[number], references[number])}
            vectors = _vectors(encoder, used)
            yield pairs, _match(encoder, [(captions[one], references[one]) for one in pairs], vectors, ids, weights)

    return journal.rows(keys, make, f"pairs of texts with {encoder.name}", encoder.reporting)


class _Weights:
    """The weights of tokens: 1, or with idf how few references have them.

    Args:
        encoder: whose special tokens weigh nothing.
        references: the tokens of each reference that idf is counted in; None: no idf.
    """

    def __init__(self, encoder: BertEncoder, references: Sequence[Sequence[int]] | None) -> None:
        self._counts = None if references is None else Counter(chain.from_iterable(map(set, references)))
        self._references = 0 if references is None else len(references)
        self._weightless = encoder.weightless()
        self.digest = "1" if self._counts is None else repr((self._references, sorted(self._counts.items())))

    def of(self, ids: Sequence[int]) -> Rows:
        """Of the tokens of a text: (tokens,)."""
        if self._counts is None:
            return np.array([token not in self._weightless for token in ids], np.float32)
        shares = ((self._references + 1) / (self._counts[token] + 1) for token in ids)
        return np.array([math.log(share) for share in shares], np.float32)


def _chunks(
    pairs: Sequence[int], captions: Sequence[str], references: Sequence[str], most_texts: int
) -> Iterator[list[int]]:
    """Pairs in parts with at most so many different texts, one caption's pairs together."""
    ordered = sorted(pairs, key=lambda number: captions[number])
    chunk: list[int] = []
    texts: set[str] = set()
    for number in ordered:
        new = {captions[number], references[number]}
        if chunk and len(texts | new) > most_texts:
            yield chunk
            chunk, texts = [], set()
        chunk.append(number)
        texts |= new
    yield chunk


def _vectors(encoder: BertEncoder, ids: Mapping[str, Sequence[int]]) -> dict[str, Rows]:
    """Unit vectors of the tokens of each text: (tokens, D)."""
    ordered = sorted(ids, key=lambda text: len(ids[text]))
    vectors: dict[str, Rows] = {}
    for first in range(0, len(ordered), encoder.batch_size):
        batch = ordered[first : first + encoder.batch_size]
        of_batch = encoder.encode([ids[text] for text in batch]).cpu().numpy()
        vectors |= {text: row[: len(ids[text])] for text, row in zip(batch, of_batch, strict=True)}
    return vectors


def _match(
    encoder: BertEncoder,
    pairs: Sequence[tuple[str, str]],
    vectors: Mapping[str, Rows],
    ids: Mapping[str, Sequence[int]],
    weights: _Weights,
) -> Rows:
    """P, R and F of pairs of texts, (pairs, 3); those of one caption are compared in one product."""
    empty = encoder.num_special_tokens()
    rows = []
    for caption, group in groupby(pairs, key=itemgetter(0)):
        references = [reference for _, reference in group]
        starts = np.cumsum([0, *(len(ids[one]) for one in references[:-1])])
        cosines = vectors[caption] @ np.concatenate([vectors[one] for one in references]).T
        of_caption = weights.of(ids[caption])[:, None]
        of_references = np.concatenate([weights.of(ids[one]) for one in references])
        precisions = _share((np.maximum.reduceat(cosines, starts, axis=1) * of_caption).sum(axis=0), of_caption.sum())
        recalls = _share(
            np.add.reduceat(cosines.max(axis=0) * of_references, starts), np.add.reduceat(of_references, starts)
        )
        f1 = _share(2 * precisions * recalls, precisions + recalls)
        has_words = np.array([len(ids[one]) > empty for one in references]) & (len(ids[caption]) > empty)
        rows.append(np.stack([precisions, recalls, f1], axis=1) * has_words[:, None])
    return np.concatenate(rows).astype(np.float32)


def _share(part: Rows, whole: Rows) -> Rows:
    """0 where the whole is."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole != 0)


def read_baseline(path: Path, layer: int) -> Floats:
    """P, R and F of unrelated texts at a layer of an encoder, from a file of bert_score: (3,).

    Raises:
        DataError: the file is missing, has another form, or lacks the layer.
    """
    form = "a line LAYER,P,R,F and one for each layer, as bert_score has them in rescale_baseline"
    if not path.is_file():
        raise DataError(f"There is no file {path}; baselines are {form}.")
    lines = list(csv.reader(read_text(path, "CSV").splitlines()))
    if not lines or [cell.strip() for cell in lines[0]] != ["LAYER", "P", "R", "F"]:
        raise DataError(f"{path} holds no baselines: it should have {form}.")
    for number, line in enumerate(lines[1:], start=2):
        try:
            own, *values = [float(cell) for cell in line]
        except ValueError:
            own, values = math.nan, []
        if len(values) != 3 or not all(-1 <= value < 1 for value in values):
            raise DataError(
                f"Line {number} of {path} is no baseline: it should have a layer and three numbers from -1 to below 1."
            )
        if own == layer:
            return np.array(values, np.float64)
    raise DataError(f"{path} has no baseline of layer {layer}, but of {len(lines) - 1} others; is it of this model?")
