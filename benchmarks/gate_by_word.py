"""For which words does the gate beta of papers/003 open? A table for docs/show_attend_tell.md.

    python benchmarks/gate_by_word.py --out runs/classic [--split test] [--images 200] [--captions 2] [--rows sat_soft]
        [--least 50] [--docs docs/show_attend_tell.md] [--json]

--out is what `classic_models.py --out` (or `old_papers.py --out`) wrote: its pictures and its finished runs, which are
only read. The model is fed the references; the gate of a word is beta_t of the step that scores it, and of a word the
mean is taken over its occurrences, then over the seeds. The table has the words that occur often enough.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from documents import Lines, markers_of, measure_rows, publish, reader, table
from showtell.captioners import Captioner
from showtell.datasets import open_dataset
from showtell.datasets.records import CaptionRecord
from showtell.decoding.rollout import forced_outputs
from showtell.errors import DataError
from showtell.grounding.teacher_forcing import captions_to_follow, encode_records
from showtell.models.contract import eval_mode
from showtell.text.vocabulary import Vocabulary
from study import mean_and_spread

import torch

SHOWN_AS = {"<end>": "(end)"}  # as in the figures; Markdown takes the other for HTML
BIN = 0.1  # of beta, in the table
AGREE = 0.1  # the largest deviation between seeds of words that are shown with their mean


def gates(captioner: Captioner, records: Sequence[CaptionRecord], batch_size: int = 16) -> dict[str, list[float]]:
    """beta_t of every occurrence of each word of the references, the end included.

    Raises:
        DataError: the model has no gate.
    """
    by_word: dict[str, list[float]] = defaultdict(list)
    with torch.no_grad(), eval_mode(captioner.decoder):
        for batch, encoded in encode_records(captioner, records, batch_size):
            decoder, _, ids = captions_to_follow(captioner, batch, encoded.features, "references", captioner.decoding)
            gate = forced_outputs(decoder, encoded.features, ids[:, :, :-1]).diagnostics().get("gate")
            if gate is None:
                raise DataError("The gate beta is that of the model sat with gate: true; this checkpoint has none.")
            for value, word in zip(gate.flatten().tolist(), ids[:, :, 1:].flatten().tolist(), strict=True):
                if word != Vocabulary.pad:
                    by_word[captioner.vocabulary.words[word]].append(value)
    return by_word


def measure_row(name: str, folders: Sequence[Path], records: Sequence[CaptionRecord]) -> dict[str, Any]:
    """The gate of each word: how often it occurs, and the mean of each seed."""
    seeds = [gates(Captioner.from_pretrained(folder / "best", device="cpu"), records) for folder in folders]
    words = {
        word: {"count": len(values), **mean_and_spread([sum(seed[word]) / len(values) for seed in seeds])}
        for word, values in seeds[0].items()
    }
    return {"name": name, "words": words}


def tables(lines: Lines, least: int) -> str:
    """The words by their gate, from high to low, in Markdown; apart from them those on which the seeds disagree."""
    parts = []
    for line in lines:
        often = {word: of for word, of in line["words"].items() if of["count"] >= least}
        rows: dict[str, list[str]] = {}
        for word in sorted(often, key=lambda word: -often[word]["mean"]):
            low = math.floor(often[word]["mean"] / BIN) * BIN
            agree = (often[word]["spread"] or 0) <= AGREE
            rows.setdefault(f"{low:.1f} to {low + BIN:.1f}" if agree else "seeds disagree", []).append(
                SHOWN_AS.get(word, word)
            )
        disagree = rows.pop("seeds disagree", None)
        rows |= {"seeds disagree": disagree} if disagree else {}
        parts.append(table(["beta", "words"], [[beta, ", ".join(words)] for beta, words in rows.items()]))
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the table where it is wanted."""
    parser = reader(__doc__, images=200, rows="sat_soft")
    parser.add_argument("--split", default="test")
    parser.add_argument("--captions", type=int, default=2, help="references of each image")
    parser.add_argument("--least", type=int, default=50, help="least occurrences of a word")
    given = parser.parse_args(arguments)

    def find() -> Lines:
        records = open_dataset(given.out / "scenes").limited(given.images, given.captions).split(given.split)
        return measure_rows(given.out, given.rows.split(","), lambda *row: measure_row(*row, records))

    return publish(
        "gate_by_word", given, markers_of("gate"), find, lambda lines: tables(lines, given.least), lambda lines: lines
    )


if __name__ == "__main__":
    sys.exit(main())
