"""CLIPScore: how near a caption is to its photo, or to its references, for a CLIP.

J. Hessel et al., CLIPScore: a reference-free evaluation metric for image captioning, EMNLP 2021:

    S(c, v) = w max(cos(c, v), 0)                                    w = 2.5
    RefS(c, R, v) = H(S(c, v), max(max_r cos(c, r), 0))              H: harmonic mean

Where the published code lets a negative cosine of two texts into the harmonic mean, the paper's maximum with 0 is
taken.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from showtell import __version__
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber, ratio
from showtell.scores.facts import Need

if TYPE_CHECKING:
    from showtell.scores.encoders import ClipEncoder

SCALE = 2.5  # w


class ClipScore(Score):
    """CLIPScore. Statistics: the number of each image."""

    numbers = (ScoreNumber("clip_score", "CLIPScore", maximum=2.5, explanation_rank=7),)
    summary = "CLIPScore: how near caption and photo are for a CLIP"
    needs: ClassVar[tuple[Need, ...]] = ("images", "clip")

    def encoder(self, corpus: Corpus) -> ClipEncoder:
        """The model that it compares with."""
        assert corpus.clip is not None  # or it would not run
        return corpus.clip

    def signature(self, corpus: Corpus) -> str:
        """References, the model with everything that its vectors depend on, the formula, version."""
        references = f"{corpus.reference_counts}|" if "references" in self.needs else ""
        return f"{references}{self.encoder(corpus).signature}|w:{SCALE}|version:{__version__}"

    def warning(self, corpus: Corpus) -> str | None:
        """Texts beyond the context of the model."""
        encoder = self.encoder(corpus)
        texts = [*corpus.predictions, *(chain.from_iterable(corpus.references) if "references" in self.needs else ())]
        count = sum(len(ids) > encoder.context for ids in encoder.token_ids(texts, whole=True))
        if not count:
            return None
        return (
            f"{self.numbers[0].title}: {count} of {len(texts)} texts have more than the "
            f"{encoder.context} tokens that {encoder.name} reads; what is behind them counted nothing."
        )

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 1)."""
        return self.of_photos(corpus)[:, None]

    def of_photos(self, corpus: Corpus) -> Floats:
        """w max(cos(c, v), 0): (images,)."""
        clip = self.encoder(corpus)
        photos = clip.embed([facts.path for facts in corpus.facts if facts.path is not None])
        cosines: Floats = (photos * clip.embed(corpus.predictions)).sum(axis=1, dtype=np.float64)
        return SCALE * np.maximum(cosines, 0)


class RefClipScore(ClipScore):
    """RefCLIPScore."""

    numbers = (ScoreNumber("ref_clip_score", "RefCLIPScore", maximum=10 / 7, explanation_rank=8),)
    summary = "RefCLIPScore: harmonic mean of CLIPScore and the cosine with the nearest reference"
    needs = ("references", "images", "clip")

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 1)."""
        of_photos, clip = self.of_photos(corpus), self.encoder(corpus)
        references = clip.embed(list(chain.from_iterable(corpus.references)))
        counts = [len(texts) for texts in corpus.references]
        captions = np.repeat(clip.embed(corpus.predictions), counts, axis=0)
        cosines = (captions * references).sum(axis=1, dtype=np.float64)
        nearest = np.maximum(np.maximum.reduceat(cosines, np.cumsum([0, *counts[:-1]])), 0)
        return ratio(2 * of_photos * nearest, of_photos + nearest)[:, None]
