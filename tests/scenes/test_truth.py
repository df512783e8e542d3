"""The truth checker held against a table written by hand, before the checker was.

A scene is written as lines of "size pattern colour shape x y" in units of a picture 96 units wide, y downwards,
the first item drawn first. A statement is written "+text" when it shall hold and "-text" when it shall not; the
texts use the first word of each list of synonyms.
"""

import itertools
from collections import Counter

from showtell.scenes import Scene
from showtell.scenes.dataset import sample_image
from showtell.scenes.parser import MAX_PHRASES, parse_caption
from showtell.scenes.relations import PAIRWISE, is_between
from showtell.scenes.truth import STATISTICS, judge, statistics
from tests.scenes.literals import scene

# One red circle on the left, one blue square on the right, in one line.
PAIR = scene("white", "small solid red circle 20 48", "big striped blue square 66 48")
# The same two shapes and colours, exchanged.
EXCHANGED = scene("white", "small solid blue circle 20 48", "big striped red square 66 48")
# Two small red circles above a yellow star.
GROUP = scene("grey", "small solid red circle 24 20", "small solid red circle 72 20", "medium dotted yellow star 48 70")
# Three red circles, and one blue.
FOUR = scene(
    "mint", "small solid red circle 16 20", "small solid red circle 48 20", "small striped red circle 80 20",
    "medium solid blue circle 48 70",
)  # fmt: skip
# A small green heart inside a big pink square; a purple moon to the right of both.
NESTED = scene(
    "squared", "big solid pink square 28 48", "small solid green heart 28 48", "medium solid purple moon 76 48",
)  # fmt: skip
# An orange cross whose outline crosses that of a cyan diamond.
CONTACT = scene("beige", "medium solid orange cross 36 48", "medium solid cyan diamond 60 48")
# A star between two hearts, in one line.
LINE = scene("white", "small solid red heart 14 48", "small solid yellow star 48 48", "small solid green heart 82 48")
# The circle's centre is 9 units further left: neither clearly left (12) nor level (6).
BORDER = scene("white", "small solid red circle 43 20", "small solid blue square 52 70")
ALONE = scene("mint", "big dotted green triangle 48 48")

TABLE: list[tuple[str, Scene, str]] = [
    # one phrase, every attribute
    ("a small red circle", PAIR, "+circle, +red circle, +small circle"),
    ("a big striped blue square", PAIR, "+square, +blue square, +big square, +striped square"),
    # any order of the adjectives, and the pattern behind the noun
    ("a striped big blue square", PAIR, "+square, +blue square, +big square, +striped square"),
    ("a blue square with dots", PAIR, "+square, +blue square, -dotted square"),
    # synonyms say the same
    ("a tiny red disc", PAIR, "+circle, +red circle, +small circle"),
    # wrong attributes fail on their own
    ("a blue circle", PAIR, "+circle, -blue circle"),
    ("a big red circle", PAIR, "+circle, +red circle, -big circle"),
    ("a medium dotted yellow star", PAIR, "-star, -yellow star, -medium star, -dotted star"),
    # a phrase may be about a thing of another shape; the right shape comes first where both are as true
    ("a red square", PAIR, "+square, -red square"),
    ("a red heart", PAIR, "-heart, +red heart"),
    # relations
    ("a red circle to the left of a blue square", PAIR,
     "+circle, +red circle, +square, +blue square, +circle left of square"),
    ("a red circle to the right of a blue square", PAIR,
     "+circle, +red circle, +square, +blue square, -circle right of square"),
    ("a circle above a square", PAIR, "+circle, +square, -circle above square"),
    ("a square is on the right of a circle", PAIR, "+circle, +square, +square right of circle"),
    # colours exchanged between the phrases: relation and shapes hold, the colours do not
    ("a red circle to the left of a blue square", EXCHANGED,
     "+circle, -red circle, +square, -blue square, +circle left of square"),
    # of a thing that was taken for another, a relation holds as it does of that thing
    ("a red circle to the left of a star", PAIR, "+circle, +red circle, -star, +circle left of star"),
    # with nothing left to be about, all that a phrase says is false
    ("a green triangle to the left of a star", ALONE, "+triangle, +green triangle, -star, -triangle left of star"),
    ("two stars above a moon", PAIR, "-star, -two star, -moon, -star above moon"),
    # "with ... to its left": the second phrase is the subject
    ("a blue square with a red circle to its left", PAIR,
     "+square, +blue square, +circle, +red circle, +circle left of square"),
    ("a blue square with a red circle above it", PAIR,
     "+square, +blue square, +circle, +red circle, -circle above square"),
    # inside, and its converses
    ("a green heart inside a pink square", NESTED, "+heart, +green heart, +square, +pink square, +heart inside square"),
    ("a pink square containing a green heart", NESTED,
     "+heart, +green heart, +square, +pink square, +heart inside square"),
    ("a pink square inside a green heart", NESTED, "+heart, +green heart, +square, +pink square, -square inside heart"),
    # what lies inside does not touch
    ("a heart touching a square", NESTED, "+heart, +square, -heart touching square"),
    ("a cross touching a diamond", CONTACT, "+cross, +diamond, +cross touching diamond"),
    # between, with two phrases and with a counted one
    ("a yellow star between a red heart and a green heart", LINE,
     "+star, +yellow star, +heart, +red heart, +heart, +green heart, +star between heart and heart"),
    ("a star in between two hearts", LINE, "+star, +heart, +two heart, +star between heart"),
    ("a green heart between a red heart and a star", LINE,
     "+star, +heart, +red heart, +heart, +green heart, -heart between heart and star"),
    # chains: "which is" goes on from the last phrase, "and <relation>" from the first
    ("a heart inside a square which is to the left of a moon", NESTED,
     "+heart, +square, +moon, +heart inside square, +square left of moon"),
    ("a heart is inside a square and left of a moon", NESTED,
     "+heart, +square, +moon, +heart inside square, +heart left of moon"),
    ("a square is left of a moon and inside a heart", NESTED,
     "+heart, +square, +moon, +square left of moon, -square inside heart"),
    # counts are exact, over the shape and those of the attributes that hold
    ("two red circles", GROUP, "+circle, +red circle, +two circle"),
    ("a pair of red circles", GROUP, "+circle, +red circle, +two circle"),
    ("two red circles", PAIR, "+circle, +red circle, -two circle"),
    ("two red circles", FOUR, "+circle, +red circle, -two circle"),
    ("four red circles", FOUR, "+circle, -red circle, +four circle"),
    # one of several may be mentioned alone: "a" says nothing of the number
    ("a red circle", FOUR, "+circle, +red circle"),
    # a relation of a group is one of each member
    ("two small red circles above a yellow star", GROUP,
     "+circle, +red circle, +small circle, +two circle, +star, +yellow star, +circle above star"),
    ("two red circles to the left of a star", GROUP, "+circle, +red circle, +two circle, +star, -circle left of star"),
    # different phrases are different objects
    ("a red circle and a red circle", PAIR, "+circle, +red circle, -circle, -red circle"),
    ("a red circle and a red circle", GROUP, "+circle, +red circle, +circle, +red circle"),
    ("a red circle above a blue circle", FOUR, "+circle, +red circle, +circle, +blue circle, +circle above circle"),
    ("a blue circle above a red circle", FOUR, "+circle, +blue circle, +circle, +red circle, -circle above circle"),
    # the best assignment: of the three red circles the striped one is on the right
    ("a striped circle to the right of a blue circle", FOUR,
     "+circle, +striped circle, +circle, +blue circle, +circle right of circle"),
    ("a solid red circle to the right of a blue circle", FOUR,
     "+circle, +solid circle, +red circle, +circle, +blue circle, -circle right of circle"),
    # backgrounds, behind and before, and the number of all shapes
    ("a red circle on a white background", PAIR, "+circle, +red circle, +white"),
    ("a red circle on a mint background", PAIR, "+circle, +red circle, -mint"),
    ("on a grey background there are two red circles", GROUP, "+circle, +red circle, +two circle, +grey"),
    ("a heart inside a square on squared paper", NESTED, "+heart, +square, +heart inside square, +squared"),
    ("three shapes including a yellow star", GROUP, "+three shapes, +star, +yellow star"),
    # openings say nothing
    ("a picture of a red circle", PAIR, "+circle, +red circle"),
    # a border case is neither true nor false: the statement is left out
    ("a circle to the left of a square", BORDER, "+circle, +square"),
    ("a circle above a square", BORDER, "+circle, +square, +circle above square"),
    # further grammar, added with the checker
    ("an orange cross and a diamond", CONTACT, "+cross, +orange cross, +diamond"),
    ("a heart and a moon are inside a square", NESTED,
     "+heart, +moon, +square, +heart inside square, -moon inside square"),
    ("a moon is to the right of a square and a heart", NESTED,
     "+heart, +moon, +square, +moon right of square, +moon right of heart"),
    ("a moon to the right of a square and a heart", NESTED, "+heart, +moon, +square, +moon right of square"),
    ("a heart is inside a square and a moon is right of a star", NESTED,
     "+heart, +moon, +square, -star, +heart inside square, -moon right of star"),
    ("a square with a heart inside and a moon to its right", NESTED,
     "+heart, +moon, +square, +heart inside square, +moon right of square"),
    ("a square with a heart inside a moon", NESTED, "+heart, +moon, +square, -heart inside moon"),
    ("a star with two circles above it", GROUP, "+star, +circle, +two circle, +circle above star"),
    ("two circles with a star beneath them", GROUP, "+star, +circle, +two circle, +star below circle"),
    ("a grid with a heart inside a square", NESTED, "+heart, +square, +heart inside square, +squared"),
    ("an image of a mint background with a circle", NESTED, "-circle, -mint"),
    # fewer than the count: the shape is there, the number is not, the relation is that of what there is
    ("two squares to the left of a moon", NESTED, "+square, -two square, +moon, +square left of moon"),
    ("a star between two moons", LINE, "+star, -moon, -two moon, +star between moon"),
    # of two assignments as true as each other, the one that takes more items
    ("three hearts", LINE, "+heart, -three heart"),
    # written as people write: capitals and a full stop
    ("A red circle, on a White background!", PAIR, "+circle, +red circle, +white"),
]  # fmt: skip

OUTSIDE = [
    "a", "a man on a", "a dog in the park", "a red a red circle", "a red red circle", "a red blue circle",
    "a small big circle", "red circle", "a red", "a circles", "two circle", "two red circles red",
    "a red circle a blue square", "a red circle and", "a red circle above", "a red circle to the left of",
    "a red circle above above a blue square", "above a red circle", "a red circle is a blue square",
    "there are a red circle", "there is two red circles", "there is a red circle is above a blue square",
    "a red circle are above a blue square", "a red circle on a white",
    "a red circle on a white background on a white background", "on a white background",
    "a red circle on a red background", "a red circle between a blue square",
    "a blue square with a red circle to its", "three shapes including", "circle circle circle", "a red circle with",
    "a picture of", "a striped red circle with stripes", "a orange cross", "an red circle", "a pair of circle",
    "a circle with a square to their left", "two circles with a square to its left",
    "a circle and a square is above a star", "two circles is above a star", "a star between three hearts",
    "a picture of a circle is above a square", "a circle above it", "a circle which is",
    "a circle with stripes and dots", "a circle on a white background above a square", "two shapes including",
]  # fmt: skip
OUTSIDE += ["", " and ".join(["a circle"] * (MAX_PHRASES + 1))]


def written(caption: str, scene: Scene) -> Counter[str]:
    """The statements of a caption in the notation of the table."""
    judgement = judge(caption, scene)
    assert not judgement.outside_language
    return Counter(f"{'+' if s.holds else '-'}{s.text}" for s in judgement.statements)


def test_statements_by_hand() -> None:
    judged = [(caption, written(caption, scene), Counter(row.split(", "))) for caption, scene, row in TABLE]
    assert [(caption, statements, expected) for caption, statements, expected in judged if statements != expected] == []
    kinds = {s.text: s.kind for caption, scene, _ in TABLE for s in judge(caption, scene).statements}
    by_hand = {"circle": "shape", "red circle": "colour", "small circle": "size", "striped square": "pattern"}
    by_hand |= {"two circle": "count", "three shapes": "count", "white": "background"}
    assert kinds | by_hand | {"circle left of square": "relation"} == kinds


def test_outside_the_language() -> None:
    judgements = {caption: judge(caption, PAIR) for caption in OUTSIDE}
    assert [caption for caption, one in judgements.items() if one.statements or not one.outside_language] == []
    assert {one.share for one in judgements.values()} == {0.0}


def most_held(caption: str, picture: Scene) -> int:
    """The plain way to the best assignment of single things: every map of phrases to items, or to nothing."""
    parsed = parse_caption(caption)
    most = 0
    indices: list[int | None] = [*range(len(picture.items)), *[None] * len(parsed.phrases)]
    for chosen in set(itertools.permutations(indices, len(parsed.phrases))):
        things = [None if index is None else picture.items[index] for index in chosen]
        named = zip(parsed.phrases, things, strict=True)
        held = sum(thing is not None and thing.shape == phrase.shape for phrase, thing in named)
        for phrase, thing in zip(parsed.phrases, things, strict=True):
            held += sum(thing is not None and getattr(thing, kind) == value for kind, value in phrase.attributes)
        for relation in parsed.relations:
            related = [things[index] for index in (relation.subject, *relation.objects)]
            holds = is_between if relation.name == "between" else PAIRWISE[relation.name]
            held += None not in related and bool(holds(*related))
        held += parsed.background == picture.background
        most = max(most, held)
    return most


def test_the_best_assignment_is_the_one_that_the_plain_way_finds() -> None:
    judged = 0
    for k in range(60):
        picture, own = sample_image(3, "train", k)
        for caption in (*own[:2], *sample_image(4, "train", k)[1][:2]):
            if not {"two", "three", "four", "pair"} & {*caption.text.split()}:
                judged += 1
                assert judge(caption.text, picture).held == most_held(caption.text, picture)
    assert judged > 100


def test_statistics_by_hand() -> None:
    assert STATISTICS == ("share", "statements", "whole", "relations held", "relations", "outside")
    # circle, red, square, blue hold; "above" does not
    assert statistics("a red circle above a blue square", PAIR) == (4 / 5, 5, 0, 0, 1, 0)
    assert statistics("a red circle left of a square", PAIR) == (1, 4, 1, 1, 1, 0)
    assert statistics("a red a red", PAIR) == (0, 0, 0, 0, 0, 1)


def test_endless_captions_are_outside_the_language() -> None:
    """As a file of captions may hold them: no recursion that deep, and no time that grows with its square."""
    for caption in ("a star " + "above a star " * 20_000, "a star with a moon " + "above it and a star " * 20_000):
        assert judge(caption, PAIR).outside_language
