"""Random scenes: a layout is chosen, then positions are tried until no relation is ambiguous."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from showtell.scenes.outlines import box
from showtell.scenes.relations import are_apart, distance, is_between, is_inside, is_touching, is_unambiguous_with
from showtell.scenes.world import BACKGROUNDS, COLOURS, EXTENTS, HELD_OUT, PATTERNS, SHAPES, SIZES, UNITS, Item, Scene

Items = tuple[Item, ...]
Pair = tuple[str, str]  # colour, shape

MAX_TRIES = 80  # positions tried for an item before the whole scene is started again
MARGIN = 2  # units between an item and the edge of the picture
SOLID_RATE = 0.45  # share of items without a pattern
SOLID_CONTAINER_RATE = 0.7  # the same for containers: what lies inside must be visible
SPACING = 8  # units between the outlines of items that do not touch: half a cell of a 6 x 6 grid
SIMILAR_RATE = 0.3  # the probability that a further item has the shape or colour of an earlier one: a distractor
CONTAINERS = ("circle", "square", "heart", "diamond")  # when big, they have room for a small item
ALLOWED = [(colour, shape) for colour in COLOURS for shape in SHAPES if (colour, shape) not in HELD_OUT]
COMPOSITIONAL = sorted(HELD_OUT)


class _NoRoomError(Exception):
    """Raised if an item does not fit; the scene is then drawn again."""


def _at(item: Item, x: float, y: float) -> Item:
    return replace(item, x=round(x), y=round(y))


def _sample_style(
    random: Random,
    earlier: Sequence[Item] = (),
    sizes: Sequence[str] = SIZES,
    pair: Pair | None = None,
    solid_rate: float = SOLID_RATE,
) -> Item:
    """A further item, as yet at no position: no earlier one has both its colour and its shape."""
    if pair is None:
        taken = {(other.colour, other.shape) for other in earlier}
        free = [pair for pair in ALLOWED if pair not in taken]
        if earlier and random.random() < SIMILAR_RATE:
            similar, by_shape = random.choice(earlier), random.random() < 0.5
            free = [pair for pair in free if (pair[1] == similar.shape if by_shape else pair[0] == similar.colour)]
        pair = random.choice(free)
    colour, shape = pair
    size = random.choice(sizes)
    pattern = "solid" if random.random() < solid_rate else random.choice(PATTERNS[1:])
    return Item(shape, colour, size, pattern, 0, 0, random.randint(*EXTENTS[size]))


def _fits(item: Item, earlier: Items) -> bool:
    """Whether the item lies in the picture and adds no ambiguous relation."""
    left, top, width, height = box(item)
    in_picture = min(left, top) >= MARGIN and max(left + width, top + height) <= UNITS - MARGIN
    return in_picture and is_unambiguous_with(item, earlier)


def _fits_alone(item: Item, earlier: Items) -> bool:
    """Whether the item fits, and neither touches an earlier one nor lies in or around it."""
    for other in earlier:  # rejects most occupied positions quickly
        if math.hypot(item.x - other.x, item.y - other.y) < (item.extent + other.extent + SPACING) / 2:
            return False
    return _fits(item, earlier) and all(are_apart(item, one) and distance(item, one) >= SPACING for one in earlier)


def _add(random: Random, items: Items, style: Item) -> Items:
    """Add an item at a random position, apart from all others, or raise a `_NoRoomError`."""
    low = style.extent // 2 + MARGIN
    for _ in range(MAX_TRIES):
        item = _at(style, random.randint(low, UNITS - low), random.randint(low, UNITS - low))
        if _fits_alone(item, items):
            return (*items, item)
    raise _NoRoomError


def _add_others(random: Random, items: Items, counts: Sequence[int]) -> Items:
    """Add a few smaller items; their number is drawn from the counts."""
    for _ in range(random.choice(counts)):
        items = _add(random, items, _sample_style(random, items, ("small", "small", "medium")))
    return items


def _alone(random: Random, pair: Pair | None) -> Items:
    return _add(random, (), _sample_style(random, pair=pair))


def _scattered(random: Random, pair: Pair | None) -> Items:
    """Two to four items, apart from each other."""
    count = random.choice((2, 2, 2, 3, 3, 4))
    items: Items = ()
    for index in range(count):
        sizes = SIZES if count < 4 else SIZES[:2]
        items = _add(random, items, _sample_style(random, items, sizes, pair if index == 0 else None))
    return items


def _inside(random: Random, pair: Pair | None) -> Items:
    """A small item inside a big one of another colour, and perhaps others beside them."""
    inner = _sample_style(random, sizes=("small",), pair=pair)
    around = random.choice([(c, s) for c, s in ALLOWED if s in CONTAINERS and c != inner.colour])
    (outer,) = _add(random, (), _sample_style(random, sizes=("big",), pair=around, solid_rate=SOLID_CONTAINER_RATE))
    for _ in range(MAX_TRIES):
        item = _at(inner, outer.x + random.randint(-6, 6), outer.y + random.randint(-6, 6))
        if is_inside(item, outer) and is_unambiguous_with(item, (outer,)):
            return _add_others(random, (outer, item), (0, 0, 0, 1, 1, 2))
    raise _NoRoomError


def _in_contact(random: Random, pair: Pair | None) -> Items:
    """Two items of different colours, the second covering a little of the first, and perhaps others."""
    (first,) = _add(random, (), _sample_style(random, pair=pair))
    for _ in range(MAX_TRIES):
        style = _sample_style(random, (first,))
        angle = random.uniform(0, 2 * math.pi)
        if style.colour == first.colour:
            continue

        def item_at(radius: float, style: Item = style, angle: float = angle) -> Item:
            return _at(style, first.x + radius * math.cos(angle), first.y + radius * math.sin(angle))

        radius = 0.75 * (first.extent + style.extent)
        while radius > 0 and (apart := distance(item_at(radius), first)) > 0:  # move nearer until the outlines cross
            radius -= max(apart, 1.0)
        second = item_at(radius - random.randint(1, 4))  # and a little further, so that it can be seen
        if is_touching(second, first) and _fits(second, (first,)):
            return _add_others(random, (first, second), (0, 0, 0, 1, 1, 2))
    raise _NoRoomError


def _in_line(random: Random, pair: Pair | None) -> Items:
    """One item between two others, which are sometimes alike, and perhaps another."""
    sizes = ("small", "small", "medium")
    middle = _sample_style(random, sizes=sizes, pair=pair)
    first = _sample_style(random, (middle,), sizes)
    second = first if random.random() < 0.35 else _sample_style(random, (middle, first), sizes)
    styles = (middle, first, second)
    for _ in range(MAX_TRIES):
        angle = random.choice((0.0, 0.25, 0.5, 0.75)) * math.pi + random.uniform(-0.12, 0.12)
        offsets = (0, -random.randint(29, 40), random.randint(29, 40))
        x = _sample_coordinate(random, styles, [offset * math.cos(angle) for offset in offsets])
        y = _sample_coordinate(random, styles, [offset * math.sin(angle) for offset in offsets])
        if x is None or y is None:
            continue
        items: Items = ()
        for style, offset in zip(styles, offsets, strict=True):
            item = _at(style, x + offset * math.cos(angle), y + offset * math.sin(angle))
            if not _fits_alone(item, items):
                break
            items = (*items, item)
        if len(items) == 3 and is_between(*items):
            return _add_others(random, items, (0, 0, 0, 1))
    raise _NoRoomError


def _sample_coordinate(random: Random, styles: Sequence[Item], offsets: Sequence[float]) -> int | None:
    """A random coordinate from which items at these offsets lie in the picture; None if there is none."""
    low = max(style.extent / 2 + MARGIN - offset for style, offset in zip(styles, offsets, strict=True))
    high = min(UNITS - style.extent / 2 - MARGIN - offset for style, offset in zip(styles, offsets, strict=True))
    return random.randint(math.ceil(low), math.floor(high)) if math.ceil(low) <= math.floor(high) else None


def _group(random: Random, pair: Pair | None) -> Items:
    """Two or three items of the same style, and mostly another one."""
    count = random.choice((2, 2, 2, 3))
    style = _sample_style(random, sizes=SIZES[:2] if count == 2 else ("small", "small", "medium"), pair=pair)
    items: Items = ()
    for _ in range(count):
        items = _add(random, items, style)
    return _add_others(random, items, (0, 1, 1, 1))


LAYOUTS = (_alone, _scattered, _inside, _in_contact, _in_line, _group)
LAYOUT_WEIGHTS = (0.08, 0.33, 0.16, 0.14, 0.12, 0.17)


def sample_scene(random: Random, compositional: bool = False) -> Scene:
    """A random scene without ambiguous relations; only a compositional one has a colour-shape pair of `HELD_OUT`."""
    (layout,) = random.choices(LAYOUTS, LAYOUT_WEIGHTS)
    background = random.choice(BACKGROUNDS)
    while True:
        pair = random.choice(COMPOSITIONAL) if compositional else None
        try:
            return Scene(background, layout(random, pair))
        except _NoRoomError:
            continue
