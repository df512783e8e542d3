"""The truth checker held against a table written by hand, before the checker was.

A scene is written as lines of "size pattern colour shape x y" in units of a picture 96 units wide, y downwards,
the first item drawn first. A statement is written "+ kind: text" when it shall hold and "- kind: text" when it
shall not; the texts use the first word of each list of synonyms.
"""

from __future__ import annotations

from collections import Counter

import pytest

from showtell.scenes import Item, Scene
from showtell.scenes.truth import judge
from showtell.scenes.world import EXTENTS


def scene(background: str, *lines: str) -> Scene:
    """A scene from its literal; each size takes the middle of its range."""
    items = []
    for line in lines:
        size, pattern, colour, shape, x, y = line.split()
        low, high = EXTENTS[size]
        items.append(Item(shape, colour, size, pattern, int(x), int(y), (low + high) // 2))
    return Scene(background, tuple(items))


# One red circle on the left, one blue square on the right, in one line.
PAIR = scene("white", "small solid red circle 20 48", "big striped blue square 66 48")
# The same two shapes and colours, exchanged.
EXCHANGED = scene("white", "small solid blue circle 20 48", "big striped red square 66 48")
# Two small red circles above a yellow star.
GROUP = scene(
    "grey",
    "small solid red circle 24 20",
    "small solid red circle 72 20",
    "medium dotted yellow star 48 70",
)
# Three red circles, and one blue.
FOUR = scene(
    "black",
    "small solid red circle 16 20",
    "small solid red circle 48 20",
    "small striped red circle 80 20",
    "medium solid blue circle 48 70",
)
# A small green heart inside a big pink square; a purple moon to the right of both.
NESTED = scene(
    "squared",
    "big solid pink square 28 48",
    "small solid green heart 28 48",
    "medium solid purple moon 76 48",
)
# An orange cross whose outline crosses that of a cyan diamond.
CONTACT = scene("beige", "medium solid orange cross 36 48", "medium solid cyan diamond 60 48")
# A star between two hearts, in one line.
LINE = scene(
    "white",
    "small solid red heart 14 48",
    "small solid yellow star 48 48",
    "small solid green heart 82 48",
)
# The circle's centre is 9 units further left: neither clearly left (12) nor level (6).
BORDER = scene("white", "small solid red circle 43 20", "small solid blue square 52 70")
ALONE = scene("black", "big dotted green triangle 48 48")

TABLE: list[tuple[str, Scene, list[str]]] = [
    # one phrase, every attribute
    ("a circle", PAIR, ["+ shape: circle"]),
    ("a red circle", PAIR, ["+ shape: circle", "+ colour: red circle"]),
    ("a small red circle", PAIR, ["+ shape: circle", "+ colour: red circle", "+ size: small circle"]),
    (
        "a big striped blue square",
        PAIR,
        ["+ shape: square", "+ colour: blue square", "+ size: big square", "+ pattern: striped square"],
    ),
    # any order of the adjectives, and the pattern behind the noun
    ("a striped big blue square", PAIR, [
        "+ shape: square", "+ colour: blue square", "+ size: big square", "+ pattern: striped square"]),
    ("a blue square with stripes", PAIR, [
        "+ shape: square", "+ colour: blue square", "+ pattern: striped square"]),
    ("a blue square with dots", PAIR, [
        "+ shape: square", "+ colour: blue square", "- pattern: dotted square"]),
    # synonyms say the same
    ("a tiny red disc", PAIR, ["+ shape: circle", "+ colour: red circle", "+ size: small circle"]),
    ("a large spotted green triangle", ALONE, [
        "+ shape: triangle", "+ colour: green triangle", "+ size: big triangle", "+ pattern: dotted triangle"]),
    ("a violet moon", NESTED, ["+ shape: moon", "+ colour: purple moon"]),
    ("a turquoise rhombus", CONTACT, ["+ shape: diamond", "+ colour: cyan diamond"]),
    # wrong attributes fail on their own
    ("a blue circle", PAIR, ["+ shape: circle", "- colour: blue circle"]),
    ("a big red circle", PAIR, ["+ shape: circle", "+ colour: red circle", "- size: big circle"]),
    ("a medium dotted yellow star", PAIR, [
        "- shape: star", "- colour: yellow star", "- size: medium star", "- pattern: dotted star"]),
    # a right colour on a wrong shape is nothing
    ("a red square", PAIR, ["+ shape: square", "- colour: red square"]),
    ("a red heart", PAIR, ["- shape: heart", "- colour: red heart"]),
    # relations
    ("a red circle to the left of a blue square", PAIR, [
        "+ shape: circle", "+ colour: red circle", "+ shape: square", "+ colour: blue square",
        "+ relation: circle left of square"]),
    ("a red circle to the right of a blue square", PAIR, [
        "+ shape: circle", "+ colour: red circle", "+ shape: square", "+ colour: blue square",
        "- relation: circle right of square"]),
    ("a circle above a square", PAIR, [
        "+ shape: circle", "+ shape: square", "- relation: circle above square"]),
    ("a square is on the right of a circle", PAIR, [
        "+ shape: circle", "+ shape: square", "+ relation: square right of circle"]),
    # colours exchanged between the phrases: relation and shapes hold, the colours do not
    ("a red circle to the left of a blue square", EXCHANGED, [
        "+ shape: circle", "- colour: red circle", "+ shape: square", "- colour: blue square",
        "+ relation: circle left of square"]),
    # a relation with something that is not there does not hold
    ("a red circle to the left of a star", PAIR, [
        "+ shape: circle", "+ colour: red circle", "- shape: star", "- relation: circle left of star"]),
    ("two stars above a moon", PAIR, [
        "- shape: star", "- count: two star", "- shape: moon", "- relation: star above moon"]),
    # "with ... to its left": the second phrase is the subject
    ("a blue square with a red circle to its left", PAIR, [
        "+ shape: square", "+ colour: blue square", "+ shape: circle", "+ colour: red circle",
        "+ relation: circle left of square"]),
    ("a blue square with a red circle above it", PAIR, [
        "+ shape: square", "+ colour: blue square", "+ shape: circle", "+ colour: red circle",
        "- relation: circle above square"]),
    # inside, and its converses
    ("a green heart inside a pink square", NESTED, [
        "+ shape: heart", "+ colour: green heart", "+ shape: square", "+ colour: pink square",
        "+ relation: heart inside square"]),
    ("a pink square containing a green heart", NESTED, [
        "+ shape: heart", "+ colour: green heart", "+ shape: square", "+ colour: pink square",
        "+ relation: heart inside square"]),
    ("a pink square with a heart inside it", NESTED, [
        "+ shape: heart", "+ shape: square", "+ colour: pink square", "+ relation: heart inside square"]),
    ("a pink square inside a green heart", NESTED, [
        "+ shape: heart", "+ colour: green heart", "+ shape: square", "+ colour: pink square",
        "- relation: square inside heart"]),
    ("a moon inside a square", NESTED, ["+ shape: moon", "+ shape: square", "- relation: moon inside square"]),
    # what lies inside does not touch
    ("a heart touching a square", NESTED, [
        "+ shape: heart", "+ shape: square", "- relation: heart touching square"]),
    ("a cross touching a diamond", CONTACT, [
        "+ shape: cross", "+ shape: diamond", "+ relation: cross touching diamond"]),
    ("a diamond in contact with a cross", CONTACT, [
        "+ shape: cross", "+ shape: diamond", "+ relation: diamond touching cross"]),
    ("a circle touching a square", PAIR, [
        "+ shape: circle", "+ shape: square", "- relation: circle touching square"]),
    # between, with two phrases and with a counted one
    ("a yellow star between a red heart and a green heart", LINE, [
        "+ shape: star", "+ colour: yellow star", "+ shape: heart", "+ colour: red heart",
        "+ shape: heart", "+ colour: green heart", "+ relation: star between heart and heart"]),
    ("a star in between two hearts", LINE, [
        "+ shape: star", "+ shape: heart", "+ count: two heart", "+ relation: star between heart"]),
    ("a green heart between a red heart and a star", LINE, [
        "+ shape: star", "+ shape: heart", "+ colour: red heart",
        "+ shape: heart", "+ colour: green heart", "- relation: heart between heart and star"]),
    ("a star between two circles", GROUP, [
        "+ shape: star", "+ shape: circle", "+ count: two circle", "- relation: star between circle"]),
    # chains: "which is" goes on from the last phrase, "and <relation>" from the first
    ("a heart inside a square which is to the left of a moon", NESTED, [
        "+ shape: heart", "+ shape: square", "+ shape: moon",
        "+ relation: heart inside square", "+ relation: square left of moon"]),
    ("a heart is inside a square and left of a moon", NESTED, [
        "+ shape: heart", "+ shape: square", "+ shape: moon",
        "+ relation: heart inside square", "+ relation: heart left of moon"]),
    ("a square is left of a moon and inside a heart", NESTED, [
        "+ shape: heart", "+ shape: square", "+ shape: moon",
        "+ relation: square left of moon", "- relation: square inside heart"]),
    # counts are exact, over the shape and those of the attributes that hold
    ("two red circles", GROUP, ["+ shape: circle", "+ colour: red circle", "+ count: two circle"]),
    ("a pair of red circles", GROUP, ["+ shape: circle", "+ colour: red circle", "+ count: two circle"]),
    ("two red circles", PAIR, ["+ shape: circle", "+ colour: red circle", "- count: two circle"]),
    ("two red circles", FOUR, ["+ shape: circle", "+ colour: red circle", "- count: two circle"]),
    ("three red circles", FOUR, ["+ shape: circle", "+ colour: red circle", "+ count: three circle"]),
    ("two solid red circles", FOUR, [
        "+ shape: circle", "+ colour: red circle", "+ pattern: solid circle", "+ count: two circle"]),
    ("four circles", FOUR, ["+ shape: circle", "+ count: four circle"]),
    ("four red circles", FOUR, ["+ shape: circle", "- colour: red circle", "+ count: four circle"]),
    ("two blue circles", GROUP, ["+ shape: circle", "- colour: blue circle", "+ count: two circle"]),
    # one of several may be mentioned alone: "a" says nothing of the number
    ("a red circle", FOUR, ["+ shape: circle", "+ colour: red circle"]),
    # a relation of a group is one of each member
    ("two small red circles above a yellow star", GROUP, [
        "+ shape: circle", "+ colour: red circle", "+ size: small circle", "+ count: two circle",
        "+ shape: star", "+ colour: yellow star", "+ relation: circle above star"]),
    ("two red circles to the left of a star", GROUP, [
        "+ shape: circle", "+ colour: red circle", "+ count: two circle", "+ shape: star",
        "- relation: circle left of star"]),
    # different phrases are different objects
    ("a red circle and a red circle", PAIR, [
        "+ shape: circle", "+ colour: red circle", "- shape: circle", "- colour: red circle"]),
    ("a red circle and a red circle", GROUP, [
        "+ shape: circle", "+ colour: red circle", "+ shape: circle", "+ colour: red circle"]),
    ("a red circle above a blue circle", FOUR, [
        "+ shape: circle", "+ colour: red circle", "+ shape: circle", "+ colour: blue circle",
        "+ relation: circle above circle"]),
    ("a blue circle above a red circle", FOUR, [
        "+ shape: circle", "+ colour: blue circle", "+ shape: circle", "+ colour: red circle",
        "- relation: circle above circle"]),
    # the best assignment: of the three red circles the striped one is on the right
    ("a striped circle to the right of a blue circle", FOUR, [
        "+ shape: circle", "+ pattern: striped circle", "+ shape: circle", "+ colour: blue circle",
        "+ relation: circle right of circle"]),
    ("a solid red circle to the right of a blue circle", FOUR, [
        "+ shape: circle", "+ pattern: solid circle", "+ colour: red circle",
        "+ shape: circle", "+ colour: blue circle", "- relation: circle right of circle"]),
    # backgrounds, behind and before, and the number of all shapes
    ("a red circle on a white background", PAIR, [
        "+ shape: circle", "+ colour: red circle", "+ background: white"]),
    ("a red circle on a black background", PAIR, [
        "+ shape: circle", "+ colour: red circle", "- background: black"]),
    ("on a grey background there are two red circles", GROUP, [
        "+ shape: circle", "+ colour: red circle", "+ count: two circle", "+ background: grey"]),
    ("a heart inside a square on squared paper", NESTED, [
        "+ shape: heart", "+ shape: square", "+ relation: heart inside square", "+ background: squared"]),
    ("three shapes including a yellow star", GROUP, [
        "+ count: three shapes", "+ shape: star", "+ colour: yellow star"]),
    ("two shapes including a yellow star", GROUP, [
        "- count: two shapes", "+ shape: star", "+ colour: yellow star"]),
    ("three shapes", GROUP, ["+ count: three shapes"]),
    # openings say nothing
    ("a picture of a red circle", PAIR, ["+ shape: circle", "+ colour: red circle"]),
    ("there is a red circle", PAIR, ["+ shape: circle", "+ colour: red circle"]),
    # a border case is neither true nor false: the statement is left out
    ("a circle to the left of a square", BORDER, ["+ shape: circle", "+ shape: square"]),
    ("a circle above a square", BORDER, [
        "+ shape: circle", "+ shape: square", "+ relation: circle above square"]),
    # written as people write: capitals and a full stop
    ("A red circle on a White background.", PAIR, [
        "+ shape: circle", "+ colour: red circle", "+ background: white"]),
]  # fmt: skip

OUTSIDE = [
    "",
    "a",
    "a man on a",
    "a dog in the park",
    "a red a red circle",
    "a red red circle",
    "a red blue circle",
    "a small big circle",
    "red circle",
    "a red",
    "a circles",
    "two circle",
    "two red circles red",
    "a red circle a blue square",
    "a red circle and",
    "a red circle above",
    "a red circle to the left of",
    "a red circle above above a blue square",
    "above a red circle",
    "a red circle is a blue square",
    "there are a red circle",
    "there is two red circles",
    "there is a red circle is above a blue square",
    "a red circle are above a blue square",
    "a red circle on a white",
    "a red circle on a white background on a white background",
    "on a white background",
    "a red circle on a red background",
    "a red circle between a blue square",
    "a blue square with a red circle to its",
    "three shapes including",
    "circle circle circle",
    "a red circle with",
    "a picture of",
    "a striped red circle with stripes",
]


def written(caption: str, scene: Scene) -> Counter[str]:
    """The statements of a caption in the notation of the table."""
    judgement = judge(caption, scene)
    assert not judgement.outside_language
    return Counter(f"{'+' if s.holds else '-'} {s.kind}: {s.text}" for s in judgement.statements)


@pytest.mark.parametrize(("caption", "scene", "expected"), TABLE)
def test_statements_by_hand(caption: str, scene: Scene, expected: list[str]) -> None:
    assert written(caption, scene) == Counter(expected)


@pytest.mark.parametrize("caption", OUTSIDE)
def test_outside_the_language(caption: str) -> None:
    judgement = judge(caption, PAIR)
    assert judgement.outside_language
    assert judgement.statements == ()
    assert judgement.share == 0.0
