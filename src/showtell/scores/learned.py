"""CLIPScore, PAC-S and BERTScore: how near a caption is to its photo, or to its references, for a trained model.

J. Hessel et al., CLIPScore: a reference-free evaluation metric for image captioning, EMNLP 2021; S. Sarto et al.,
Positive-augmented contrastive learning for image and video captioning evaluation, CVPR 2023:

    S(c, v) = w max(cos(c, v), 0)                                    w = 2.5, in PAC-S 2.0
    RefS(c, R, v) = H(S(c, v), max(max_r cos(c, r), 0))              H: harmonic mean

PAC-S is CLIPScore with other weights and another w. Where the published code lets a negative cosine of two texts into
the harmonic mean, the paper's maximum with 0 is taken.

T. Zhang et al., BERTScore: evaluating text generation with BERT, ICLR 2020, with x the tokens of a reference and y
those of a caption:

    P = mean_y max_x cos(x, y)        R = mean_x max_y cos(x, y)        F = H(P, R)

The special tokens around a text are not counted, but can be nearest. Of several references the best P, R and F count,
each on its own. A text without a word scores 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from showtell import __version__
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber, ratio
from showtell.scores.facts import Need
from showtell.scores.model_settings import ModelName

Rows = npt.NDArray[np.float32]


class LearnedScore(Score):
    """A score that compares with a model. Statistics: its numbers for each image."""

    formula: ClassVar[str]  # in its signature

    def encoder(self, corpus: Corpus) -> Any:
        """The model that it compares with, a `ClipEncoder` or `BertEncoder`."""
        assert corpus.models is not None and self.weights is not None  # or it would not run
        return corpus.models.encoder(self.weights)

    def signature(self, corpus: Corpus) -> str:
        """References, the model with everything that its vectors depend on, the formula, version."""
        references = f"{corpus.reference_counts}|" if "references" in self.needs else ""
        return f"{references}{self.encoder(corpus).signature}|{self.formula}|version:{__version__}"

    def warning(self, corpus: Corpus) -> str | None:
        """Texts beyond the context of the model."""
        encoder = self.encoder(corpus)
        texts = [*corpus.predictions, *(chain.from_iterable(corpus.references) if "references" in self.needs else ())]
        count = sum(len(ids) > encoder.context for ids in encoder.token_ids(texts, whole=True))
        if not count:
            return None
        return (
            f"{self.numbers[0].title.removesuffix(' P')}: {count} of {len(texts)} texts have more than the "
            f"{encoder.context} tokens that {encoder.name} reads; what is behind them counted nothing."
        )


class ClipScore(LearnedScore):
    """CLIPScore."""

    numbers = (ScoreNumber("clip_score", "CLIPScore", maximum=2.5, explanation_rank=7),)
    summary = "CLIPScore: how near caption and photo are for a CLIP"
    needs: ClassVar[tuple[Need, ...]] = ("images", "weights")
    weights: ClassVar[ModelName | None] = "clip_model"
    scale, formula = 2.5, "w:2.5"

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 1)."""
        return self.of_photos(corpus)[:, None]

    def of_photos(self, corpus: Corpus) -> Floats:
        """w max(cos(c, v), 0): (images,)."""
        clip = self.encoder(corpus)
        photos = clip.embed([facts.path for facts in corpus.facts if facts.path is not None])
        cosines: Floats = (photos * clip.embed(corpus.predictions)).sum(axis=1, dtype=np.float64)
        return self.scale * np.maximum(cosines, 0)


class RefClipScore(ClipScore):
    """RefCLIPScore."""

    numbers = (ScoreNumber("ref_clip_score", "RefCLIPScore", maximum=10 / 7, explanation_rank=8),)
    summary = "RefCLIPScore: harmonic mean of CLIPScore and the cosine with the nearest reference"
    needs = ("references", "images", "weights")

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 1)."""
        of_photos, clip = self.of_photos(corpus), self.encoder(corpus)
        references = clip.embed(list(chain.from_iterable(corpus.references)))
        counts = [len(texts) for texts in corpus.references]
        captions = np.repeat(clip.embed(corpus.predictions), counts, axis=0)
        cosines = (captions * references).sum(axis=1, dtype=np.float64)
        nearest = np.maximum(np.maximum.reduceat(cosines, np.cumsum([0, *counts[:-1]])), 0)
        return ratio(2 * of_photos * nearest, of_photos + nearest)[:, None]


class PacScore(ClipScore):
    """PAC-S."""

    numbers = (ScoreNumber("pac_s", "PAC-S", maximum=2.0, explanation_rank=9),)
    summary = "PAC-S: CLIPScore with the weights that its authors trained"
    weights = "pac_model"
    scale, formula = 2.0, "w:2.0"


class RefPacScore(RefClipScore):
    """RefPAC-S."""

    numbers = (ScoreNumber("ref_pac_s", "RefPAC-S", maximum=4 / 3, explanation_rank=10),)
    summary = "RefPAC-S: harmonic mean of PAC-S and the cosine with the nearest reference"
    weights = "pac_model"
    scale, formula = 2.0, "w:2.0"


class BertScore(LearnedScore):
    """P, R and F of BERTScore."""

    numbers = (
        ScoreNumber("bert_score_p", "BERTScore P", in_table=False),
        ScoreNumber("bert_score_r", "BERTScore R", in_table=False),
        ScoreNumber("bert_score_f1", "BERTScore F1", explanation_rank=11),
    )
    summary = "BERTScore: how near the tokens of caption and reference are for an encoder of texts"
    needs = ("references", "weights")
    weights = "bert_model"
    formula = "idf:no|rescaled:no"

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 3)."""
        from showtell.progress import counting

        encoder = self.encoder(corpus)
        rows: list[Floats] = []
        with counting(f"captions with {encoder.name}", len(corpus.ids)) as progress:
            for first in range(0, len(corpus.ids), encoder.batch_size):
                part = slice(first, first + encoder.batch_size)
                captions, references = corpus.predictions[part], corpus.references[part]
                vectors = encoder.encode([*captions, *chain.from_iterable(references)])
                for caption, texts in zip(captions, references, strict=True):
                    rows.append(_best_match(vectors[caption], [vectors[text] for text in texts]))
                progress(len(captions))
        return np.stack(rows)


Text = tuple[npt.NDArray[np.bool_], Rows]  # which tokens are counted, and the unit vectors of all: (tokens, D)


def _best_match(caption: Text, references: Sequence[Text]) -> Floats:
    """The best P, R and F of a caption with its references: (3,)."""
    own, vectors = caption
    rows = []
    for theirs, others in references:
        row: list[Any] = [0.0, 0.0, 0.0]
        if own.any() and theirs.any():
            cosines = vectors @ others.T
            precision = cosines.max(axis=1)[own].mean(dtype=np.float64)
            recall = cosines.max(axis=0)[theirs].mean(dtype=np.float64)
            row = [precision, recall, ratio(2 * precision * recall, precision + recall)]
        rows.append(row)
    best: Floats = np.array(rows, dtype=np.float64).max(axis=0)
    return best
