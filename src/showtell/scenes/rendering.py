"""Rendering a scene: flat colours with a dark edge on light paper, antialiased.

Edge and paper are chosen so that a small network learns shapes in few epochs (docs/scenes.md has the measurements).

Items lie on whole units and come in a few extents, so a picture is a background with a few ready-made sprites
pasted onto it. A sprite is drawn `SUPERSAMPLING` times as large, then averaged down.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from PIL import Image, ImageChops, ImageDraw

from showtell.scenes.outlines import OUTLINES
from showtell.scenes.world import UNITS, Scene

SUPERSAMPLING = 4  # sub-pixels along a side

RGB: dict[str, tuple[int, int, int]] = {
    "red": (222, 30, 34), "orange": (255, 136, 0), "yellow": (255, 222, 20), "green": (22, 158, 48),
    "cyan": (0, 208, 226), "blue": (28, 64, 224), "purple": (132, 34, 176), "pink": (255, 118, 192),
}  # fmt: skip
PAPER: dict[str, tuple[int, int, int]] = {
    "white": (255, 255, 255), "grey": (200, 200, 204), "beige": (242, 224, 190), "mint": (200, 240, 214),
    "squared": (250, 250, 255),
}  # fmt: skip
GRID_LINE, GRID_STEP = (160, 188, 226), 12  # of the squared paper; the step in units
WHITE_MARKS = frozenset({"red", "green", "blue", "purple"})  # colours whose stripes and dots are white
MARK_LIGHT = 0.22  # the other colours are light: their marks are dark, with this share of the colour left
EDGE = {"small": 1.5, "medium": 1.7, "big": 1.9}  # width in units
EDGE_LIGHT = 0.15  # share of the colour that is left in the edge
# Period of the stripes and of the dots, and how much of it is stripe (width) or dot (diameter), in units.
STRIPES: dict[str, tuple[float, float]] = {"small": (4.8, 2.2), "medium": (6.5, 2.9), "big": (8.0, 3.6)}
DOTS: dict[str, tuple[float, float]] = {"small": (4.6, 2.7), "medium": (6.5, 3.6), "big": (8.5, 4.6)}


def _darker(colour: tuple[int, int, int], share: float) -> tuple[int, int, int]:
    red, green, blue = (round(channel * share) for channel in colour)
    return red, green, blue


@lru_cache(maxsize=64)
def _pattern(pattern: str, size: str, side: int, scale: float) -> Image.Image:
    """The marks of a pattern, 255 where there is one, on a square of `side` sub-pixels, centred."""
    image = Image.new("L", (side, side), 0)
    draw = ImageDraw.Draw(image)
    middle = side / 2
    unit = SUPERSAMPLING * scale
    if pattern == "striped":  # diagonal, so that no stripe is an edge of a square
        period, width = (unit * value for value in STRIPES[size])
        step = period * 2**0.5
        for k in range(-int(side / step) - 1, int(side / step) + 2):
            offset = middle + k * step
            draw.line([(offset - side, middle + side), (offset + side, middle - side)], 255, round(width))
    elif pattern == "dotted":  # every second row moved by half a period
        period, width = (unit * value for value in DOTS[size])
        count = int(side / period) + 2
        for row in range(-count, count + 1):
            y = middle + row * period * 0.87
            for column in range(-count, count + 1):
                x = middle + (column + (row % 2) / 2) * period
                draw.ellipse([x - width / 2, y - width / 2, x + width / 2, y + width / 2], 255)
    return image


@lru_cache(maxsize=256)
def _silhouette(shape: str, size: str, extent: int, scale: float) -> tuple[Image.Image, Image.Image]:
    """A shape in sub-pixels, and its edge: the part of it that a round pen along the outline covers."""
    outline = OUTLINES[shape] * (extent / 2 * scale)
    half = int(np.abs(outline).max()) + 2
    side = 2 * half * SUPERSAMPLING
    corners = (outline + half) * SUPERSAMPLING

    whole = Image.new("L", (side, side), 0)
    ImageDraw.Draw(whole).polygon([(float(x), float(y)) for x, y in corners], 255)
    edge = Image.new("L", (side, side), 0)
    draw = ImageDraw.Draw(edge)
    pen = EDGE[size] * SUPERSAMPLING * scale
    for start, end in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        for x, y in np.linspace(start, end, 1 + int(np.hypot(*(end - start)) / 2), endpoint=False):
            draw.ellipse([x - pen, y - pen, x + pen, y + pen], 255)
    return whole, ImageChops.darker(edge, whole)


@lru_cache(maxsize=4096)
def _sprite(shape: str, colour: str, size: str, pattern: str, extent: int, scale: float) -> Image.Image:
    """One item as an RGBA picture with an even side, whose centre lies where the four middle pixels meet."""
    whole, edge = _silhouette(shape, size, extent, scale)
    fill = RGB[colour]
    marks = (255, 255, 255) if colour in WHITE_MARKS else _darker(fill, MARK_LIGHT)
    picture = Image.new("RGB", whole.size, fill)
    picture.paste(marks, mask=_pattern(pattern, size, whole.width, scale))
    picture.paste(_darker(fill, EDGE_LIGHT), mask=edge)
    small = picture.reduce(SUPERSAMPLING)
    small.putalpha(whole.reduce(SUPERSAMPLING))
    return small


@lru_cache(maxsize=16)
def _background(background: str, pixels: int) -> Image.Image:
    image = Image.new("RGB", (pixels, pixels), PAPER[background])
    if background == "squared":
        draw = ImageDraw.Draw(image)
        width = max(1, round(pixels / UNITS))
        for unit in range(GRID_STEP // 2, UNITS, GRID_STEP):
            position = round(unit * pixels / UNITS)
            draw.line([(position, 0), (position, pixels)], GRID_LINE, width)
            draw.line([(0, position), (pixels, position)], GRID_LINE, width)
    return image


def render(scene: Scene, pixels: int = UNITS) -> Image.Image:
    """A scene as an RGB picture of pixels x pixels."""
    picture, scale = _background(scene.background, pixels).copy(), pixels / UNITS
    for item in scene.items:
        sprite = _sprite(item.shape, item.colour, item.size, item.pattern, item.extent, scale)
        half = sprite.width // 2
        picture.paste(sprite, (round(item.x * scale) - half, round(item.y * scale) - half), sprite)
    return picture
