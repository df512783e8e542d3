"""Scenes as small literals, for tests."""

import itertools
from collections.abc import Iterator

from showtell.scenes import Item, Scene, lexicon
from showtell.scenes.relations import is_unambiguous_with

EXTENT = {"small": 20, "medium": 30, "big": 46}


def item(line: str) -> Item:
    """An item from "size pattern colour shape x y"."""
    size, pattern, colour, shape, x, y = line.split()
    return Item(shape, colour, size, pattern, int(x), int(y), EXTENT[size])


def scene(background: str, *lines: str) -> Scene:
    """A scene from its lines, the first drawn first."""
    return Scene(background, tuple(item(line) for line in lines))


def is_unambiguous(scene: Scene) -> bool:
    """Whether no relation in the scene is ambiguous."""
    return all(is_unambiguous_with(item, scene.items[:index]) for index, item in enumerate(scene.items))


def vocabulary() -> frozenset[str]:
    """Every word that a caption of the language can have."""
    return frozenset(word for expression in _expressions() for word in expression.split())


def _expressions() -> Iterator[str]:
    for pairs in (*lexicon.SHAPE_WORDS.values(), *lexicon.PRONOUN_WORDS.values(), lexicon.VERBS, (lexicon.THERE,)):
        yield from itertools.chain.from_iterable(pairs)
    kinds = (lexicon.COLOUR_WORDS, lexicon.SIZE_WORDS, lexicon.PATTERN_WORDS, lexicon.PATTERN_NOUNS)
    for words in (*kinds, lexicon.BACKGROUND_WORDS, lexicon.RELATION_WORDS, lexicon.CONVERSE_WORDS):
        yield from itertools.chain.from_iterable(words.values())
    yield from (*lexicon.COUNT_WORDS.values(), *lexicon.ANY_SHAPE, *lexicon.BEFORE_BACKGROUND, *lexicon.OPENINGS)
    yield "a pair of and an with together including which"
