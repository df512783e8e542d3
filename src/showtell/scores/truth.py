"""Truth rate: which share of what a caption says of a drawn scene holds. Only where the scenes are known.

The judging is `showtell.scenes.truth`'s; here it becomes a score like the others.
"""

from __future__ import annotations

import math

import numpy as np

from showtell import __version__
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber


class Truth(Score):
    """Truth, statements, wholly true captions, true relations; statistics of `showtell.scenes.truth.STATISTICS`."""

    numbers = (
        ScoreNumber("truth", "truth", explanation_rank=1),
        ScoreNumber("truth_statements", "statements", maximum=math.inf),
        ScoreNumber("truth_whole", "whole", explanation_rank=2),
        ScoreNumber("truth_relations", "relations"),
    )
    summary = "on drawn scenes, see `truth.md`"
    needs = ("scenes",)

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 6)."""
        from showtell.scenes.truth import STATISTICS, statistics

        scenes = [facts.scene for facts in corpus.facts if facts.scene is not None]
        rows = [statistics(text, scene) for text, scene in zip(corpus.predictions, scenes, strict=True)]
        return np.array(rows, dtype=np.float64).reshape(-1, len(STATISTICS))

    def from_sums(self, sums: Floats, images: int) -> Floats:
        """Means over captions; relations over relations, nan where none is named."""
        share, statements, whole, held, relations, _ = np.moveaxis(sums, -1, 0)
        of_relations = np.divide(held, relations, out=np.full_like(held, np.nan), where=relations > 0)
        return np.stack([share / images, statements / images, whole / images, of_relations], axis=-1)

    def signature(self, corpus: Corpus) -> str:
        """Version of the scenes language, version."""
        from showtell.scenes.lexicon import LANGUAGE_VERSION

        return f"scenes-language:{LANGUAGE_VERSION}|version:{__version__}"
