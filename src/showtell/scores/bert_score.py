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
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from showtell import __version__
from showtell.errors import DataError
from showtell.files import read_text
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber

if TYPE_CHECKING:
    from showtell.scores.bert_encoder import BertEncoder
    from showtell.scores.model_settings import ScoreModels

Rows = npt.NDArray[np.float32]
Weigh = Callable[[Sequence[int]], Rows]  # the weights of the tokens of a text: (tokens,)


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
        baseline, encoder = models.baseline, models.bert
        idf_texts = list(chain.from_iterable(corpus.references)) if models.settings.bert_idf else None
        weigh = token_weights(encoder, idf_texts)
        rows: list[Rows] = []
        images = len(corpus.ids)
        with encoder.reporting(f"captions with {encoder.name}") as report:
            for first in range(0, images, encoder.batch_size):
                part = slice(first, first + encoder.batch_size)
                rows += _best_matches(encoder, corpus.predictions[part], corpus.references[part], weigh)
                report(len(corpus.ids[part]), images)
        best = np.stack(rows).astype(np.float64)
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
        texts = [*corpus.predictions, *chain.from_iterable(corpus.references)]
        return _models(corpus).bert.truncation_warning("BERTScore", texts)


def _models(corpus: Corpus) -> ScoreModels:
    assert corpus.models is not None  # `measure` sees to what a score needs
    return corpus.models


def token_weights(encoder: BertEncoder, references: Sequence[str] | None) -> Weigh:
    """How tokens weigh: 1 and special ones 0, or with idf by how few references have them.

    Args:
        encoder: of the texts.
        references: that idf is counted in, however often they occur; None: no idf.
    """
    if references is None:
        special = {encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id}
        return lambda ids: np.array([token not in special for token in ids], np.float32)
    counts = Counter(chain.from_iterable(map(set, encoder.token_ids(references))))
    total = len(references) + 1
    return lambda ids: np.array([math.log(total / (counts[token] + 1)) for token in ids], np.float32)


def _best_matches(
    encoder: BertEncoder, captions: Sequence[str], references: Sequence[Sequence[str]], weigh: Weigh
) -> list[Rows]:
    """The best P, R and F of each caption with its references, before rescaling: (3,) each."""
    texts = list(dict.fromkeys([*captions, *chain.from_iterable(references)]))
    ids = dict(zip(texts, encoder.token_ids(texts), strict=True))
    vectors = dict(zip(texts, encoder.encode([ids[text] for text in texts]), strict=True))
    rows = []
    for caption, others in zip(captions, references, strict=True):
        starts = np.cumsum([0, *(len(ids[text]) for text in others[:-1])])
        cosines = vectors[caption] @ np.concatenate([vectors[text] for text in others]).T
        own = weigh(ids[caption])
        theirs = np.concatenate([weigh(ids[text]) for text in others])
        precisions = _share((np.maximum.reduceat(cosines, starts, axis=1) * own[:, None]).sum(axis=0), own.sum())
        recalls = _share(np.add.reduceat(cosines.max(axis=0) * theirs, starts), np.add.reduceat(theirs, starts))
        f1 = _share(2 * precisions * recalls, precisions + recalls)
        has_words = np.array([min(len(ids[text]), len(ids[caption])) > encoder.special_tokens for text in others])
        rows.append((np.stack([precisions, recalls, f1], axis=1) * has_words[:, None]).max(axis=0))
    return rows


def _share(part: Rows, whole: Rows) -> Rows:
    """0 where the whole is."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole != 0)


def read_baseline(path: Path, layer: int) -> Floats:
    """P, R and F of unrelated texts at a layer of an encoder, from a file of bert_score: (3,).

    Raises:
        DataError: the file is missing, has another form, or lacks the layer.
    """
    lines = list(csv.reader(read_text(path, "CSV").splitlines()))
    try:
        if [cell.strip() for cell in lines[0]] != ["LAYER", "P", "R", "F"]:
            raise ValueError("no header LAYER,P,R,F")
        baselines = {int(own): (float(p), float(r), float(f)) for own, p, r, f in lines[1:]}
    except (ValueError, IndexError) as error:
        raise DataError(
            f"{path} holds no baselines ({error}): it should have a line LAYER,P,R,F and one for each layer, as "
            "bert_score has them in rescale_baseline."
        ) from error
    if layer not in baselines or not all(-1 <= value < 1 for value in baselines[layer]):
        raise DataError(
            f"{path} has no baseline of layer {layer}, three numbers from -1 to below 1, but of {len(baselines)} "
            "layers; is it of this model?"
        )
    return np.array(baselines[layer], np.float64)
