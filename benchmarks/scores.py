"""How fast captions are scored: against coco-caption (pycocoevalcap and its two Java programs).

    python benchmarks/scores.py [--images 5000] [--json]

Real captions of Flickr8k from SHOWTELL_SHARED (default ../shared): one of each image's five is the prediction, the
others are the references; beyond its 8,091 images predictions and references are paired anew. Both sides start from
text, and both start from nothing: ours with an empty memory of words and METEOR's index on disk, the reference with
its Java programs not yet running. Both are measured in turn, medians of three. Without Java the rows of the reference
are left out.

The reward is that of 250 samples (5 of each of 50 images) with 5 references each, with all of Flickr8k's document
frequencies, on one thread.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import random
import shutil
import sys
from collections import defaultdict
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import _threads  # noqa: F401  (first)
from rows import seconds, show
from showtell.scores import ImageFacts
from showtell.scores.base import Corpus
from showtell.scores.bleu import Bleu
from showtell.scores.cider import Cider
from showtell.scores.meteor import Meteor
from showtell.scores.meteor_index import open_index
from showtell.scores.report import measure
from showtell.scores.reward import Reward
from showtell.scores.rouge import RougeL
from showtell.text import tokenizer

import torch

ROOT = Path(__file__).resolve().parents[1]
REPEATS = 3
ALONE = {"against": "itself", "ratio": 1.0}  # where there is no Java
REWARDED, SAMPLES = 50, 5  # images, samples of each


def flickr8k() -> list[list[str]]:
    """The five captions of each image."""
    path = Path(os.environ.get("SHOWTELL_SHARED", ROOT.parent / "shared")) / "data" / "flickr8k" / "captions.txt"
    if not path.is_file():
        sys.exit(f"There are no captions at {path}; set SHOWTELL_SHARED to the folder that holds data/flickr8k.")
    captions: dict[str, list[str]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.reader(stream):
            if row:
                captions[row[0]].append(row[1])
    return list(captions.values())


def corpus_of(captions: list[list[str]], images: int) -> Corpus:
    """So many images; each round through Flickr8k pairs predictions with the references of another image."""
    rounds = [(index % len(captions), index // len(captions)) for index in range(images)]
    return Corpus(
        ids=tuple(map(str, range(images))),
        predictions=tuple(captions[(index + 17 * round_) % len(captions)][round_ % 5] for index, round_ in rounds),
        facts=tuple(
            ImageFacts(tuple(captions[index][1:] if round_ == 0 else captions[index][:5])) for index, round_ in rounds
        ),
    )


def fresh(corpus: Corpus) -> Corpus:
    """The same texts with nothing known of them yet."""
    tokenizer._PIECES.clear()
    return Corpus(corpus.ids, corpus.predictions, corpus.facts)


OURS = {"bleu": Bleu, "rouge_l": RougeL, "cider": Cider}


def ours(corpus: Corpus, *, meteor: bool) -> None:
    """Score from text."""
    chosen: dict[str, Any] = {name: build() for name, build in OURS.items()}
    measure(fresh(corpus), {**chosen, "meteor": Meteor()} if meteor else chosen)


def theirs(corpus: Corpus, *, meteor: bool) -> None:
    """Score from text as coco-caption does."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    predictions = {image: [{"caption": text}] for image, text in zip(corpus.ids, corpus.predictions, strict=True)}
    pairs = zip(corpus.ids, corpus.references, strict=True)
    references = {image: [{"caption": text} for text in texts] for image, texts in pairs}
    tokenized = [PTBTokenizer().tokenize(captions) for captions in (references, predictions)]
    for build in (Bleu, Rouge, Cider, *([Meteor] if meteor else [])):
        with redirect_stdout(io.StringIO()):
            build().compute_score(*tokenized)


def reward_seconds(captions: list[list[str]]) -> float:
    """Seconds for the reward of 50 x 5 samples with 5 references each."""
    rng = random.Random(0)
    words = [[tokenizer.tokenize(text) for text in texts] for texts in captions]
    known = {word: number for number, word in enumerate(sorted({w for ts in words for t in ts for w in t}), start=1)}
    ids = [[[*(known[word] for word in text), 0] for text in texts] for texts in words]  # 0 ends a caption
    images = rng.sample(range(len(ids)), REWARDED)
    references = {str(image): texts for image, texts in enumerate(ids)}
    # a sample: a caption of the image, one of another image, or words in disorder
    hypotheses = [
        [rng.choice([ids[image][0], ids[rng.randrange(len(ids))][0], ids[image][1][::-1]]) for _ in range(SAMPLES)]
        for image in images
    ]
    reward = Reward(references, vocabulary_size=len(known) + 1)
    words = torch.zeros(REWARDED, SAMPLES, max(len(one) for own in hypotheses for one in own), dtype=torch.long)
    is_word = torch.zeros_like(words, dtype=torch.bool)
    for index, own in enumerate(hypotheses):
        for number, hypothesis in enumerate(own):
            words[index, number, : len(hypothesis)] = torch.tensor(hypothesis)
            is_word[index, number, : len(hypothesis)] = True
    of = list(map(str, images))
    return seconds(50, lambda: reward(words, is_word, of))[0]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    captions = flickr8k()
    name, milliseconds = f"reward_{REWARDED}x{SAMPLES}", round(reward_seconds(captions) * 1000, 2)
    rows: list[dict[str, object]] = [{"name": name, "value": milliseconds, "unit": "ms", **ALONE}]
    corpus = corpus_of(captions, arguments.images)
    open_index()  # built if need be
    for name, meteor in (("all_but_meteor", False), ("all_with_meteor", True)):
        sides = (ours, theirs) if shutil.which("java") else (ours,)
        own, *other = seconds(REPEATS, *(partial(side, corpus, meteor=meteor) for side in sides))
        rows.append({"name": f"{name}_{arguments.images}", "value": round(own, 3), "unit": "s", **ALONE})
        for slower in other:
            rows[-1] |= {"against": f"coco-caption, {slower:.2f} s", "ratio": round(slower / own, 2)}
    show(rows, arguments.json)


if __name__ == "__main__":
    main()
