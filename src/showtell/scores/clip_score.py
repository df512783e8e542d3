"""CLIPScore and PAC-S: how near a caption is to its photo for a CLIP; and both with references.

J. Hessel et al., CLIPScore: a reference-free evaluation metric for image captioning, EMNLP 2021; S. Sarto et al.,
Positive-augmented contrastive learning for image and video captioning evaluation, CVPR 2023:

    S(c, v) = w max(cos(c, v), 0)                                    w = 2.5, in PAC-S 2.0
    RefS(c, R, v) = H(S(c, v), max(max_r cos(c, r), 0))              H: harmonic mean

PAC-S is CLIPScore with other weights and another w. Where the published code lets a negative cosine of two texts into
the harmonic mean, the paper's maximum with 0 is taken.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from showtell import __version__
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber
from showtell.scores.facts import Need
from showtell.scores.model_settings import ModelName

if TYPE_CHECKING:
    from showtell.scores.clip_encoder import ClipEncoder


class ClipScore(Score):
    """CLIPScore. Statistics: that of each image."""

    numbers = (ScoreNumber("clip_score", "CLIPScore", maximum=2.5, explanation_rank=7),)
    summary = "CLIPScore: how near caption and photo are for a CLIP"
    needs: ClassVar[tuple[Need, ...]] = ("images", "weights")
    weights: ClassVar[ModelName | None] = "clip_model"
    scale: ClassVar[float] = 2.5  # w

    def encoder(self, corpus: Corpus) -> ClipEncoder:
        """The CLIP whose vectors are compared."""
        assert corpus.models is not None  # `measure` sees to what a score needs
        return corpus.models.clip if self.weights == "clip_model" else corpus.models.pac

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 1)."""
        return self._of_photos(corpus)[:, None]

    def _of_photos(self, corpus: Corpus) -> Floats:
        """w max(cos(c, v), 0): (images,)."""
        encoder = self.encoder(corpus)
        photos = encoder.embed_photos([facts.path for facts in corpus.facts if facts.path is not None])
        captions = encoder.embed_texts(corpus.predictions)
        cosines: Floats = (photos * captions).sum(axis=1, dtype=np.float64)
        return self.scale * np.maximum(cosines, 0)

    def from_sums(self, sums: Floats, images: int) -> Floats:
        """The mean."""
        return sums / images

    def signature(self, corpus: Corpus) -> str:
        """The CLIP with everything that its vectors depend on, w, version."""
        return f"{self.encoder(corpus).signature}|w:{self.scale}|version:{__version__}"

    def warning(self, corpus: Corpus) -> str | None:
        """Captions beyond the context of the CLIP."""
        return self.encoder(corpus).truncation_warning(self.numbers[0].title, corpus.predictions)


class RefClipScore(ClipScore):
    """RefCLIPScore. Statistics: that of each image."""

    numbers = (ScoreNumber("ref_clip_score", "RefCLIPScore", maximum=10 / 7, explanation_rank=8),)
    summary = "RefCLIPScore: harmonic mean of CLIPScore and the cosine with the nearest reference"
    needs = ("references", "images", "weights")

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 1)."""
        of_photos = self._of_photos(corpus)
        encoder = self.encoder(corpus)
        references = encoder.embed_texts(list(chain.from_iterable(corpus.references)))
        counts = [len(texts) for texts in corpus.references]
        captions = np.repeat(encoder.embed_texts(corpus.predictions), counts, axis=0)
        cosines = (captions * references).sum(axis=1, dtype=np.float64)
        nearest = np.maximum(np.maximum.reduceat(cosines, np.cumsum([0, *counts[:-1]])), 0)
        total = of_photos + nearest
        return np.divide(2 * of_photos * nearest, total, out=np.zeros_like(total), where=total > 0)[:, None]

    def signature(self, corpus: Corpus) -> str:
        """That of CLIPScore, and the number of references."""
        return f"{corpus.reference_counts}|{super().signature(corpus)}"

    def warning(self, corpus: Corpus) -> str | None:
        """Captions and references beyond the context of the CLIP."""
        texts = [*corpus.predictions, *chain.from_iterable(corpus.references)]
        return self.encoder(corpus).truncation_warning(self.numbers[0].title, texts)


class PacScore(ClipScore):
    """PAC-S. Statistics: that of each image."""

    numbers = (ScoreNumber("pac_s", "PAC-S", maximum=2.0, explanation_rank=9),)
    summary = "PAC-S: CLIPScore with the weights that its authors trained"
    weights = "pac_model"
    scale = 2.0


class RefPacScore(RefClipScore):
    """RefPAC-S. Statistics: that of each image."""

    numbers = (ScoreNumber("ref_pac_s", "RefPAC-S", maximum=4 / 3, explanation_rank=10),)
    summary = "RefPAC-S: harmonic mean of PAC-S and the cosine with the nearest reference"
    weights = "pac_model"
    scale = 2.0
