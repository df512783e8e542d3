"""Random scenes: a plan says what the scene is about, then places are tried until nothing is a border case."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from showtell.scenes.world import (
    BACKGROUNDS,
    COLOURS,
    EXTENTS,
    HELD_OUT,
    PATTERNS,
    SHAPES,
    SIZES,
    UNITS,
    Item,
    Scene,
    box,
    distance,
    is_between,
    is_clear_with,
    is_inside,
    is_touching,
    lies_apart,
)

Items = tuple[Item, ...]
Pair = tuple[str, str]  # colour, shape

TRIES = 80  # places tried for an item before the whole scene is begun again
MARGIN = 2  # units between an item and the edge of the picture
SOLID = 0.45  # share of items without a pattern
SOLID_CONTAINER = 0.7  # the same of containers: what lies inside shall be seen
SPACING = 8  # units between the outlines of items that do not touch: half a cell of a 6 x 6 grid
KINSHIP = 0.3  # how often a further item has the shape or the colour of an earlier one: a distractor
CONTAINERS = ("circle", "square", "heart", "diamond")  # when big, they have room for a small item
ALLOWED = [(colour, shape) for colour in COLOURS for shape in SHAPES if (colour, shape) not in HELD_OUT]
COMPOSITIONAL = sorted(HELD_OUT)


class _NoRoomError(Exception):
    """There is no room for an item; the scene is begun again."""


class _Look(NamedTuple):
    """An item without its place."""

    shape: str
    colour: str
    size: str
    pattern: str
    extent: int

    def at(self, x: float, y: float) -> Item:
        return Item(self.shape, self.colour, self.size, self.pattern, round(x), round(y), self.extent)


def _look(
    random: Random,
    earlier: Sequence[_Look | Item] = (),
    sizes: Sequence[str] = SIZES,
    pair: Pair | None = None,
    solid: float = SOLID,
) -> _Look:
    """How a further item looks: no earlier one has both its colour and its shape."""
    if pair is None:
        taken = {(other.colour, other.shape) for other in earlier}
        free = [pair for pair in ALLOWED if pair not in taken]
        if earlier and random.random() < KINSHIP:
            kin = random.choice(earlier)
            if random.random() < 0.5:
                free = [(colour, shape) for colour, shape in free if shape == kin.shape]
            else:
                free = [(colour, shape) for colour, shape in free if colour == kin.colour]
        pair = random.choice(free)
    colour, shape = pair
    size = random.choice(sizes)
    pattern = "solid" if random.random() < solid else random.choice(PATTERNS[1:])
    return _Look(shape, colour, size, pattern, random.randint(*EXTENTS[size]))


def _fits(item: Item, earlier: Items) -> bool:
    """Whether the item lies in the picture and adds no border case."""
    left, top, width, height = box(item)
    in_picture = min(left, top) >= MARGIN and max(left + width, top + height) <= UNITS - MARGIN
    return in_picture and is_clear_with(item, earlier)


def _fits_alone(item: Item, earlier: Items) -> bool:
    """Whether the item fits, and neither touches an earlier one nor lies in or around it."""
    for other in earlier:  # a quick no to most of the places that are taken
        if math.hypot(item.x - other.x, item.y - other.y) < (item.extent + other.extent + SPACING) / 2:
            return False
    return _fits(item, earlier) and all(
        lies_apart(item, other) and distance(item, other) >= SPACING for other in earlier
    )


def _add(random: Random, items: Items, look: _Look) -> Items:
    """Add an item somewhere, apart from all others.

    Raises:
        _NoRoomError: no such place was found.
    """
    low = look.extent // 2 + MARGIN
    for _ in range(TRIES):
        item = look.at(random.randint(low, UNITS - low), random.randint(low, UNITS - low))
        if _fits_alone(item, items):
            return (*items, item)
    raise _NoRoomError


def _add_others(random: Random, items: Items, counts: Sequence[int]) -> Items:
    """Add a few smaller items: one of the counts."""
    for _ in range(random.choice(counts)):
        items = _add(random, items, _look(random, items, ("small", "small", "medium")))
    return items


def _alone(random: Random, pair: Pair | None) -> Items:
    """One item."""
    return _add(random, (), _look(random, pair=pair))


def _scattered(random: Random, pair: Pair | None) -> Items:
    """Two to four items, apart from each other."""
    count = random.choice((2, 2, 2, 3, 3, 4))
    items: Items = ()
    for place in range(count):
        sizes = SIZES if count < 4 else SIZES[:2]
        items = _add(random, items, _look(random, items, sizes, pair if place == 0 else None))
    return items


def _inside(random: Random, pair: Pair | None) -> Items:
    """A small item inside a big one of another colour, and perhaps others beside them."""
    inner = _look(random, sizes=("small",), pair=pair)
    around = random.choice([(c, s) for c, s in ALLOWED if s in CONTAINERS and c != inner.colour])
    (outer,) = _add(random, (), _look(random, sizes=("big",), pair=around, solid=SOLID_CONTAINER))
    for _ in range(TRIES):
        item = inner.at(outer.x + random.randint(-6, 6), outer.y + random.randint(-6, 6))
        if is_inside(item, outer) and is_clear_with(item, (outer,)):
            return _add_others(random, (outer, item), (0, 0, 0, 1, 1, 2))
    raise _NoRoomError


def _in_contact(random: Random, pair: Pair | None) -> Items:
    """Two items of different colours, the second covering a little of the first, and perhaps others."""
    (first,) = _add(random, (), _look(random, pair=pair))
    for _ in range(TRIES):
        look = _look(random, (first,))
        turn = random.uniform(0, 2 * math.pi)
        if look.colour == first.colour:
            continue

        def towards(away: float, look: _Look = look, turn: float = turn) -> Item:
            return look.at(first.x + away * math.cos(turn), first.y + away * math.sin(turn))

        away = 0.75 * (first.extent + look.extent)
        while away > 0 and (apart := distance(towards(away), first)) > 0:  # come nearer until the outlines cross
            away -= max(apart, 1.0)
        second = towards(away - random.randint(1, 4))  # and a little further, to be seen
        if is_touching(second, first) and _fits(second, (first,)):
            return _add_others(random, (first, second), (0, 0, 0, 1, 1, 2))
    raise _NoRoomError


def _in_line(random: Random, pair: Pair | None) -> Items:
    """One item between two others, which are sometimes alike, and perhaps another."""
    sizes = ("small", "small", "medium")
    middle = _look(random, sizes=sizes, pair=pair)
    one = _look(random, (middle,), sizes)
    other = one if random.random() < 0.35 else _look(random, (middle, one), sizes)
    looks = (middle, one, other)
    for _ in range(TRIES):
        turn = random.choice((0.0, 0.25, 0.5, 0.75)) * math.pi + random.uniform(-0.12, 0.12)
        along = (0, -random.randint(29, 40), random.randint(29, 40))
        x = _somewhere(random, looks, [away * math.cos(turn) for away in along])
        y = _somewhere(random, looks, [away * math.sin(turn) for away in along])
        if x is None or y is None:
            continue
        items: Items = ()
        for look, away in zip(looks, along, strict=True):
            item = look.at(x + away * math.cos(turn), y + away * math.sin(turn))
            if not _fits_alone(item, items):
                break
            items = (*items, item)
        if len(items) == 3 and is_between(*items):
            return _add_others(random, items, (0, 0, 0, 1))
    raise _NoRoomError


def _somewhere(random: Random, looks: Sequence[_Look], offsets: Sequence[float]) -> int | None:
    """A coordinate from which items at these offsets lie in the picture, None if there is none."""
    low = max(look.extent / 2 + MARGIN - offset for look, offset in zip(looks, offsets, strict=True))
    high = min(UNITS - look.extent / 2 - MARGIN - offset for look, offset in zip(looks, offsets, strict=True))
    return random.randint(math.ceil(low), math.floor(high)) if math.ceil(low) <= math.floor(high) else None


def _group(random: Random, pair: Pair | None) -> Items:
    """Two or three items that look the same, and mostly another one."""
    count = random.choice((2, 2, 2, 3))
    look = _look(random, sizes=SIZES[:2] if count == 2 else ("small", "small", "medium"), pair=pair)
    items: Items = ()
    for _ in range(count):
        items = _add(random, items, look)
    return _add_others(random, items, (0, 1, 1, 1))


PLANS: dict[str, tuple[float, Callable[[Random, Pair | None], Items]]] = {
    "alone": (0.08, _alone),
    "scattered": (0.33, _scattered),
    "inside": (0.16, _inside),
    "in contact": (0.14, _in_contact),
    "in line": (0.12, _in_line),
    "group": (0.17, _group),
}
"""What scenes are about: how often, and who lays the items."""


def sample_scene(random: Random, compositional: bool = False) -> Scene:
    """A random scene without border cases.

    Args:
        random: where every choice comes from.
        compositional: one item, at least, has a colour-shape pair of `HELD_OUT`; otherwise none has.
    """
    weights, plans = zip(*PLANS.values(), strict=True)
    (plan,) = random.choices(plans, weights)
    background = random.choice(BACKGROUNDS)
    while True:
        pair = random.choice(COMPOSITIONAL) if compositional else None
        try:
            return Scene(background, plan(random, pair))
        except _NoRoomError:
            continue
