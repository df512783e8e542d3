"""Agreement of several captions of one photo: what a captioner says again when it is asked again.

P. Manakul, A. Liusie, M. Gales, SelfCheckGPT: zero-resource black-box hallucination detection for generative large
language models, EMNLP 2023: what a model knows, its other samples say, too; what it makes up, they do not. Here the
statements are objects: of each object that the first caption names, the share of the other captions that name it.
J. Devlin et al., Exploring nearest neighbor approaches for image captioning, 2015: the consensus of a caption is its
mean CIDEr-D with the other captions; document frequencies are those of the references.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from showtell import __version__
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber, tokenize
from showtell.scores.chair import categories_shown, mentioned, names_of
from showtell.scores.cider import Cider
from showtell.scores.facts import ImageFacts
from showtell.scores.ngrams import DocumentFrequency


class Consistency(Score):
    """Consensus, and agreement on objects that are there and that are not.

    Statistics: consensus; for objects of the first caption that are there, not there, or not judged: the sum of the
    shares of other captions that name them, and their number.
    """

    numbers = (
        ScoreNumber("consensus", "consensus", maximum=10.0),
        ScoreNumber("object_agreement", "object agreement"),
        ScoreNumber("agreement_on_present", "agreement on present objects"),
        ScoreNumber("agreement_on_absent", "agreement on absent objects"),
    )
    summary = "of several captions of a photo: CIDEr-D of the first with the others; share that names its objects"
    needs = ("references", "samples", "document_frequency")

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 5)."""
        frequency = corpus.document_frequency or DocumentFrequency.of(corpus.reference_words, "references")
        others = replace(
            corpus,
            facts=tuple(ImageFacts(facts.samples) for facts in corpus.facts),
            document_frequency=frequency,
        )
        names = names_of(corpus.facts)
        rows = []
        for facts, words, references, consensus in zip(
            corpus.facts, corpus.predicted_words, corpus.reference_words, Cider().statistics(others)[:, 0], strict=True
        ):
            samples = [set(mentioned(tokenize(sample), names)) for sample in facts.samples]
            shares = {
                category: sum(category in sample for sample in samples) / len(samples)
                for category in mentioned(words, names)
            }
            shown = None if facts.objects is None else categories_shown(facts.objects, references, names)
            present = [share for category, share in shares.items() if shown is None or category in shown]
            absent = [share for category, share in shares.items() if shown is not None and category not in shown]
            rows.append([consensus, sum(present), len(present), sum(absent), len(absent)])
        return np.array(rows, dtype=np.float64).reshape(-1, 5)

    def from_sums(self, sums: Floats, images: int) -> Floats:
        """The mean consensus over images; shares over objects, nan where none is named."""
        consensus, present, of_present, absent, of_absent = np.moveaxis(sums, -1, 0)
        return np.stack(
            [
                consensus / images,
                _share(present + absent, of_present + of_absent),
                _share(present, of_present),
                _share(absent, of_absent),
            ],
            axis=-1,
        )

    def signature(self, corpus: Corpus) -> str:
        """That of CIDEr, the number of captions, the categories."""
        counts = [len(facts.samples) + 1 for facts in corpus.facts]
        span = f"{min(counts)}-{max(counts)}" if min(counts) < max(counts) else str(counts[0])
        categories = len(set(names_of(corpus.facts).values()))
        return f"{corpus.signature}|captions:{span}|categories:{categories}|version:{__version__}"


def _share(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.full_like(part, np.nan), where=whole > 0)
