"""How well scores agree with people: the published rank correlations of Flickr8k-Expert and Flickr8k-CF, beside ours.

    python benchmarks/human_judgements.py FOLDER

The folder holds `flickr8k.json`, the experts' ratings, 1 to 4, in CLIPScore's form, as Yebin46/FLEUR has it;
`CrowdFlowerAnnotations.txt` (M. Hodosh et al., JAIR 2013), the share of people who say that a caption describes an
image, as nitishhrms/pokemon_classification has it (commit 99a82af); and `captions.txt`, the table image,caption of
Flickr8k, five captions of each image in their order.

As in the papers (P. Anderson et al., SPICE, ECCV 2016; J. Hessel et al., CLIPScore, EMNLP 2021) each rating counts on
its own. Expert: captions that are references of their image are left out, Kendall's tau-c. CF: judged captions are
taken from the references of their image, tau-b.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from showtell.scores import numbers, score
from showtell.scores.base import tokenize

from scipy.stats import kendalltau

METRICS = ("bleu", "meteor", "rouge_l", "cider")
PUBLISHED = {  # J. Hessel et al., tables 1 and 2; tau x 100
    "Flickr8k-Expert": {"bleu_1": 32.3, "bleu_4": 30.8, "meteor": 41.8, "rouge_l": 32.3, "cider": 43.9},
    "Flickr8k-CF": {"bleu_1": 17.9, "bleu_4": 16.9, "meteor": 22.2, "rouge_l": 19.9, "cider": 24.6},
}


class Judged(NamedTuple):
    """A caption of an image, what people gave it, and the references to score it by."""

    caption: str
    ratings: tuple[float, ...]
    references: tuple[str, ...]


def read_expert(path: Path) -> list[Judged]:
    """The captions of flickr8k.json that are no reference of their image."""
    judged = []
    for image in json.loads(path.read_text(encoding="utf-8")).values():
        references = tuple(" ".join(text.split()) for text in image["ground_truth"])
        ratings: dict[str, list[float]] = defaultdict(list)
        for judgement in image["human_judgement"]:
            if judgement["rating"] == judgement["rating"]:  # some are NaN
                ratings[" ".join(judgement["caption"].split())].append(float(judgement["rating"]))
        others = ((caption, values) for caption, values in ratings.items() if caption not in references)
        judged += [Judged(caption, tuple(values), references) for caption, values in others]
    return judged


def read_crowd(path: Path, table: Path) -> list[Judged]:
    """The captions of CrowdFlowerAnnotations.txt with the share of yes; damaged lines are left out and counted."""
    of_image: dict[str, list[str]] = defaultdict(list)
    with table.open(encoding="utf-8", newline="") as stream:
        for row in filter(None, csv.reader(stream)):
            of_image[_stem(row[0])].append(row[1])
    judgements, damaged = [], 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        cells = line.split("\t")
        try:
            image, (name, _, number), share = _stem(cells[0]), cells[1].partition("#"), float(cells[2])
            yes, no = float(cells[3]), float(cells[4])
            if abs(share - yes / (yes + no)) > 1e-5:
                raise ValueError(line)
            judgements.append((image, of_image[_stem(name)][int(number)], share))
        except (ValueError, IndexError):
            damaged += 1
    if damaged:
        print(f"{damaged} of {damaged + len(judgements)} lines of {path} are damaged and left out")
    words_of = defaultdict(set)
    for image, caption, _ in judgements:
        words_of[image].add(tuple(tokenize(caption)))
    references = {
        image: tuple(text for text in of_image[image] if tuple(tokenize(text)) not in words)
        for image, words in words_of.items()
    }
    return [Judged(text, (share,), references[image]) for image, text, share in judgements if references[image]]


def _stem(name: str) -> str:
    """A file name up to its first full stop: one image is called ....jpg.1 in its captions."""
    return name.partition(".")[0]


def correlate(judged: Sequence[Judged], variant: str) -> dict[str, float]:
    """Kendall's tau, times 100, of each number with the ratings."""
    report = score([one.caption for one in judged], [one.references for one in judged], METRICS)
    ratings = [rating for one in judged for rating in one.ratings]
    correlations = {}
    for number in PUBLISHED["Flickr8k-Expert"]:
        values = [report.per_image[str(index)][number] for index, one in enumerate(judged) for _ in one.ratings]
        correlations[number] = 100 * float(kendalltau(values, ratings, variant=variant).statistic)
    return correlations


def main() -> None:
    """Read, score, correlate, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    crowd = read_crowd(folder / "CrowdFlowerAnnotations.txt", folder / "captions.txt")
    sets = {"Flickr8k-Expert": (read_expert(folder / "flickr8k.json"), "c"), "Flickr8k-CF": (crowd, "b")}
    titles = {name: number.title for name, number in numbers().items()}
    for name, (judged, variant) in sets.items():
        print(f"\n{name}: {len(judged)} captions, {sum(len(one.ratings) for one in judged)} ratings\n")
        print(f"| tau-{variant} x 100 | published | ours |\n|---|---|---|")
        for number, tau in correlate(judged, variant).items():
            print(f"| {titles[number]} | {PUBLISHED[name][number]} | {tau:.2f} |")


if __name__ == "__main__":
    main()
