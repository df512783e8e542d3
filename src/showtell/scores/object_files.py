"""What images show, from files that a person has: COCO's instances, and further words for the categories.

A list of words has a line for each category, its name first: `dog, puppy, hound`, as the list of the paper on CHAIR.
Its words are added to those that are known already; a word that is known for another category then stands for this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from showtell.datasets.coco import read_instances
from showtell.errors import DataError, nearest, summarise
from showtell.files import read_text
from showtell.scores.facts import ImageFacts
from showtell.text.tokenizer import tokenize

Words = dict[str, tuple[str, ...]]  # category: words for it


def with_objects(facts: Mapping[str, ImageFacts], path: Path) -> tuple[dict[str, ImageFacts], list[str]]:
    """Images with the objects that COCO's instances name, and sentences on entries that were left out.

    Images that the file does not list are left as they are.

    Raises:
        DataError: the file cannot be read, or lists none of the images.
    """
    objects, categories, notes = read_instances(path)
    listed = [image for image in facts if image in objects]
    if not listed:
        raise DataError(
            f"{path} lists none of the images ({summarise(facts, 3)}) but {summarise(objects, 3)}; give the instances "
            "of the same images."
        )
    words = dict.fromkeys(sorted(categories), ())
    return {
        image: replace(one, objects=objects[image], categories=words) if image in objects else one
        for image, one in facts.items()
    }, notes


def with_words(facts: Mapping[str, ImageFacts], path: Path) -> tuple[dict[str, ImageFacts], list[str]]:
    """Images whose categories have the further words of a file, and a sentence on those that are not annotated.

    Raises:
        DataError: the file cannot be read, or none of its categories is annotated in these images.
    """
    words = read_words(path)
    known = set().union(*(one.categories or one.objects or () for one in facts.values()))
    if not known:
        raise DataError(
            f"{path} has words for categories, and no image has annotated objects; give them with --objects."
        )
    unknown = [category for category in words if category not in known]
    if len(unknown) == len(words):
        raise DataError(
            f'{path} names no category that is annotated here; its first, "{unknown[0]}": {nearest(unknown[0], known)}.'
        )
    notes = [f"{path} has words for {len(unknown)} categories that are not annotated here: {summarise(unknown)}."]
    merged = {category: words.get(category, ()) for category in sorted(known)}
    return {image: replace(one, categories=merged) for image, one in facts.items()}, notes if unknown else []


def read_words(path: Path) -> Words:
    """Further words for each category of a file.

    Raises:
        DataError: a line has no category, or a word stands for two categories.
    """
    words: Words = {}
    lines: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(read_text(path, "text").splitlines(), start=1):
        cells = [cell.strip() for cell in line.split(",")]
        if not line.strip() or line.startswith("#"):
            continue
        category, *others = cells
        if not all(map(tokenize, cells)):
            raise DataError(
                f"Line {number} of {path} has an empty word; a line is a category and words for it, parted by commas: "
                "dog, puppy, hound."
            )
        if category in words:
            raise DataError(f'Line {number} of {path} has words for "{category}" again; put all of them on one line.')
        for word in dict.fromkeys(tuple(tokenize(cell)) for cell in cells):
            if word in lines:
                raise DataError(
                    f'Lines {lines[word]} and {number} of {path} both have "{" ".join(word)}"; a word stands for one '
                    "category."
                )
            lines[word] = number
        words[category] = tuple(others)
    if not words:
        raise DataError(f"{path} is empty; a line is a category and words for it, parted by commas: dog, puppy, hound.")
    return words
