"""The word lists of the scenes language: shapes, attributes, counts, relations and the words around them.

`captions.py` writes captions of these words and `parser.py` reads them; neither uses the other.
"""

from __future__ import annotations

# Changes whenever a picture, a caption or the truth of a caption may change for the same seed.
LANGUAGE_VERSION = "1"

# Singular and plural of each name; the first name is the most common one, here and in the lists below.
SHAPE_WORDS: dict[str, tuple[tuple[str, str], ...]] = {
    "circle": (("circle", "circles"), ("disc", "discs")),
    "square": (("square", "squares"),),
    "triangle": (("triangle", "triangles"),),
    "star": (("star", "stars"),),
    "heart": (("heart", "hearts"),),
    "cross": (("cross", "crosses"), ("plus", "pluses")),
    "diamond": (("diamond", "diamonds"), ("rhombus", "rhombuses")),
    "moon": (("moon", "moons"), ("crescent", "crescents")),
}
COLOUR_WORDS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in ("red", "orange", "yellow", "green", "blue", "pink")},
    "cyan": ("cyan", "turquoise"),
    "purple": ("purple", "violet"),
}
SIZE_WORDS: dict[str, tuple[str, ...]] = {
    "small": ("small", "little", "tiny"),
    "medium": ("medium",),
    "big": ("big", "large", "huge"),
}
PATTERN_WORDS: dict[str, tuple[str, ...]] = {
    "solid": ("solid", "plain"),
    "striped": ("striped", "stripy"),
    "dotted": ("dotted", "spotted"),
}
# Patterns behind the noun: "a star with stripes".
PATTERN_NOUNS: dict[str, tuple[str, ...]] = {"striped": ("stripes",), "dotted": ("dots", "spots")}
COUNT_WORDS: dict[int, str] = {2: "two", 3: "three", 4: "four"}
ANY_SHAPE = ("shapes", "objects", "figures")  # all items together: "three shapes including a star"
BACKGROUND_WORDS: dict[str, tuple[str, ...]] = {
    **{name: (f"a {name} background", f"{name} paper") for name in ("white", "grey", "beige", "mint")},
    "squared": ("a squared background", "squared paper", "a grid"),
}
BEFORE_BACKGROUND = ("on", "against")

RELATION_WORDS: dict[str, tuple[str, ...]] = {
    "left": ("to the left of", "left of", "on the left of", "on the left side of"),
    "right": ("to the right of", "right of", "on the right of", "on the right side of"),
    "above": ("above", "over", "higher than"),
    "below": ("below", "under", "beneath", "lower than"),
    "inside": ("inside", "within", "in the middle of"),
    "touching": ("touching", "in contact with"),
    "between": ("between", "in between"),
}
# The relation with its subject last: "a square containing a star".
CONVERSE_WORDS: dict[str, tuple[str, ...]] = {"inside": ("containing", "around", "surrounding")}
# The relation to what was named before, one thing or several: "a square with a star to its left".
PRONOUN_WORDS: dict[str, tuple[tuple[str, str], ...]] = {
    "left": (("to its left", "to their left"), ("on its left", "on their left")),
    "right": (("to its right", "to their right"), ("on its right", "on their right")),
    "above": (("above it", "above them"), ("over it", "over them")),
    "below": (("below it", "below them"), ("under it", "under them"), ("beneath it", "beneath them")),
    "inside": (("inside it", "inside them"), ("inside", "inside"), ("within it", "within them")),
    "touching": (("touching it", "touching them"),),
}

VERBS: tuple[tuple[str, str], ...] = (("is", "are"), ("lies", "lie"), ("sits", "sit"))
THERE = ("there is", "there are")
OPENINGS = ("a picture of", "an image of", "a drawing of", "we see", "you can see", "this picture shows")
