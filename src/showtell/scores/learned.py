"""CLIPScore, PAC-S and BERTScore: how near a caption is to its photo, or to its references, for a trained model.

J. Hessel et al., CLIPScore: a reference-free evaluation metric for image captioning, EMNLP 2021; S. Sarto et al.,
Positive-augmented contrastive learning for image and video captioning evaluation, CVPR 2023:

    S(c, v) = w max(cos(c, v), 0)                                    w = 2.5, in PAC-S 2.0
    RefS(c, R, v) = H(S(c, v), max(max_r cos(c, r), 0))              H: harmonic mean

PAC-S is CLIPScore with other weights and another w. Where the published code lets a negative cosine of two texts into
the harmonic mean, the paper's maximum with 0 is taken.

T. Zhang et al., BERTScore: evaluating text generation with BERT, ICLR 2020, with x the tokens of a reference, y those
of a caption and w their weights:

    P = sum_y w(y) max_x cos(x, y) / sum_y w(y)        R = sum_x w(x) max_y cos(x, y) / sum_x w(x)        F = H(P, R)

Weights are 1, or with idf log((N + 1) / (n + 1)) for a token that n of N references have; the special tokens around a
text weigh nothing, but can be nearest. Of several references the best P, R and F count, each on its own. Rescaled,
each becomes (P - b) / (1 - b), b being its mean over unrelated texts. A text without a word scores 0 before that.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from showtell import __version__
from showtell.errors import DataError
from showtell.files import read_text
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber
from showtell.scores.facts import Need
from showtell.scores.model_settings import ModelName, ScoreModels

if TYPE_CHECKING:
    from showtell.scores.encoders import BertEncoder

Rows = npt.NDArray[np.float32]


class LearnedScore(Score):
    """A score that compares with a model. Statistics: its numbers for each image."""

    reads_references: ClassVar[bool] = True

    def from_sums(self, sums: Floats, images: int) -> Floats:
        """The means."""
        return sums / images

    def models(self, corpus: Corpus) -> ScoreModels:
        """Those that a person named; `measure` has seen to it that there are some."""
        assert corpus.models is not None
        return corpus.models

    def encoder(self, corpus: Corpus) -> Any:
        """The model that it compares with, a `ClipEncoder` or `BertEncoder`."""
        return getattr(self.models(corpus), str(self.weights).removesuffix("_model"))

    def warning(self, corpus: Corpus) -> str | None:
        """Texts beyond the context of the model."""
        texts = [*corpus.predictions, *(chain.from_iterable(corpus.references) if self.reads_references else ())]
        title = self.numbers[0].title.removesuffix(" P")
        warning: str | None = self.encoder(corpus).truncation_warning(title, texts)
        return warning


class ClipScore(LearnedScore):
    """CLIPScore."""

    numbers = (ScoreNumber("clip_score", "CLIPScore", maximum=2.5, explanation_rank=7),)
    summary = "CLIPScore: how near caption and photo are for a CLIP"
    needs: ClassVar[tuple[Need, ...]] = ("images", "weights")
    weights: ClassVar[ModelName | None] = "clip_model"
    scale: ClassVar[float] = 2.5  # w
    reads_references = False

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 1)."""
        return self.of_photos(corpus)[:, None]

    def of_photos(self, corpus: Corpus) -> Floats:
        """w max(cos(c, v), 0): (images,)."""
        photos = self.encoder(corpus).embed_photos([facts.path for facts in corpus.facts if facts.path is not None])
        cosines: Floats = (photos * self.encoder(corpus).embed_texts(corpus.predictions)).sum(axis=1, dtype=np.float64)
        return self.scale * np.maximum(cosines, 0)

    def signature(self, corpus: Corpus) -> str:
        """The CLIP with everything that its vectors depend on, w, version."""
        references = f"{corpus.reference_counts}|" if self.reads_references else ""
        return f"{references}{self.encoder(corpus).signature}|w:{self.scale}|version:{__version__}"


class RefClipScore(ClipScore):
    """RefCLIPScore."""

    numbers = (ScoreNumber("ref_clip_score", "RefCLIPScore", maximum=10 / 7, explanation_rank=8),)
    summary = "RefCLIPScore: harmonic mean of CLIPScore and the cosine with the nearest reference"
    needs = ("references", "images", "weights")
    reads_references = True

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 1)."""
        of_photos, clip = self.of_photos(corpus), self.encoder(corpus)
        references = clip.embed_texts(list(chain.from_iterable(corpus.references)))
        counts = [len(texts) for texts in corpus.references]
        captions = np.repeat(clip.embed_texts(corpus.predictions), counts, axis=0)
        cosines = (captions * references).sum(axis=1, dtype=np.float64)
        nearest = np.maximum(np.maximum.reduceat(cosines, np.cumsum([0, *counts[:-1]])), 0)
        return _share(2 * of_photos * nearest, of_photos + nearest)[:, None]


class PacScore(ClipScore):
    """PAC-S."""

    numbers = (ScoreNumber("pac_s", "PAC-S", maximum=2.0, explanation_rank=9),)
    summary = "PAC-S: CLIPScore with the weights that its authors trained"
    weights = "pac_model"
    scale = 2.0


class RefPacScore(RefClipScore):
    """RefPAC-S."""

    numbers = (ScoreNumber("ref_pac_s", "RefPAC-S", maximum=4 / 3, explanation_rank=10),)
    summary = "RefPAC-S: harmonic mean of PAC-S and the cosine with the nearest reference"
    weights = "pac_model"
    scale = 2.0


class BertScore(LearnedScore):
    """P, R and F of BERTScore."""

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
        models = self.models(corpus)
        baseline, encoder = models.baseline, models.bert
        weights = token_weights(encoder, corpus.references if models.settings.bert_idf else None)
        rows: list[Floats] = []
        images, step = len(corpus.ids), encoder.batch_size
        with encoder.reporting(f"captions with {encoder.name}") as report:
            for first in range(0, images, step):
                captions, references = corpus.predictions[first : first + step], corpus.references[first : first + step]
                vectors = encoder.encode([*captions, *chain.from_iterable(references)])
                rows += [
                    _best_match(vectors[caption], [vectors[text] for text in texts], weights, encoder.special_tokens)
                    for caption, texts in zip(captions, references, strict=True)
                ]
                report(len(captions), images)
        best = np.stack(rows)
        return best if baseline is None else (best - baseline) / (1 - baseline)

    def signature(self, corpus: Corpus) -> str:
        """References, the encoder with everything that its vectors depend on, weights, rescaling, version."""
        settings = self.models(corpus).settings
        idf = f"references:{sum(map(len, corpus.references))}" if settings.bert_idf else "no"
        rescaled = "no" if settings.bert_baseline is None else Path(settings.bert_baseline).name
        encoder = self.models(corpus).bert.signature
        return f"{corpus.reference_counts}|{encoder}|idf:{idf}|rescaled:{rescaled}|version:{__version__}"


def token_weights(encoder: BertEncoder, references: Sequence[Sequence[str]] | None) -> Floats:
    """How each token of the vocabulary weighs: 1 and special ones 0, or with idf by how few references have it.

    Args:
        encoder: of the texts.
        references: that idf is counted in, however often they occur; None: no idf.

    Returns:
        (tokens,)
    """
    if references is None:
        weights = np.ones(len(encoder.tokenizer))
        weights[[encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id]] = 0
        return weights
    texts = list(chain.from_iterable(references))
    counts = np.zeros(len(encoder.tokenizer))
    for token, count in Counter(chain.from_iterable(map(set, encoder.token_ids(texts)))).items():
        counts[token] = count
    return np.log((len(texts) + 1) / (counts + 1))


Text = tuple[Sequence[int], Rows]  # tokens and their unit vectors: (tokens, D)


def _best_match(caption: Text, references: Sequence[Text], weights: Floats, special: int) -> Floats:
    """The best P, R and F of a caption with its references, before rescaling: (3,)."""
    own, rows = weights[list(caption[0])], []
    for tokens, vectors in references:
        cosines = caption[1] @ vectors.T
        precision = _share(np.sum(cosines.max(axis=1) * own), own.sum())
        recall = _share(np.sum(cosines.max(axis=0) * weights[list(tokens)]), weights[list(tokens)].sum())
        has_words = min(len(tokens), len(caption[0])) > special
        rows.append(np.array([precision, recall, _share(2 * precision * recall, precision + recall)]) * has_words)
    best: Floats = np.stack(rows).max(axis=0)
    return best


def _share(part: Floats, whole: Floats) -> Floats:
    """0 where the whole is."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole != 0)


def read_baseline(path: Path, layer: int) -> Floats:
    """P, R and F of unrelated texts at a layer of an encoder, from a file of bert_score: (3,).

    Raises:
        DataError: the file is missing, has another form, or lacks the layer.
    """
    try:
        rows = {int(row["LAYER"]): row for row in csv.DictReader(read_text(path, "CSV").splitlines())}
        baseline = np.array([float(rows[layer][name]) for name in "PRF"])
        if not (baseline < 1).all():
            raise ValueError("a baseline is below 1")
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} has no baseline of layer {layer} ({error}): it should have a line LAYER,P,R,F and one for each "
            "layer, as bert_score has them in rescale_baseline; is it of this model?"
        ) from error
    return baseline
