"""Columns and cells of captions: what files of datasets, references and predictions call them, and what they hold."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

# Names of columns for images, captions, splits and ids, the most likely first; case, spaces and hyphens are ignored.
# image_id is the file only where no other column is.
IMAGE = (
    *("image", "image_file", "image_filename", "image_file_name", "image_path", "image_name"),
    *("file_name", "filename", "file_path", "filepath", "file", "path", "img", "photo", "picture", "image_id"),
)
CAPTION = ("caption", "sentence", "text", "description", "comment", "raw", "alt_text")
ANSWER = ("answer", "pred", "prediction")  # further names of captions in files of predictions
SPLIT = ("split", "subset", "partition")
ID = ("image_id", "imageid", "img_id", "id")

# A list as Python, NumPy or JSON print it: texts in quotation marks, parted by commas or spaces.
_TEXT = re.compile(r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+\"""", re.DOTALL)
_TEXTS = rf"(?:{_TEXT.pattern})(?:\s*,?\s*(?:{_TEXT.pattern}))*+\s*,?\s*"
_PRINTED = re.compile(rf"\[\s*(?:{_TEXTS})?\]|\((?=.*['\"]\s*,){_TEXTS}\)", re.DOTALL)
_LIKE_A_LIST = re.compile(r"""\[\s*['"{].*\]""", re.DOTALL)
# Marks of a caption of VizWiz that its own evaluation skips: it was rejected, or is one of some ready-made sentences.
FLAGS = ("is_rejected", "is_precanned")


@dataclass(frozen=True)
class Columns:
    """The columns of a table, or keys of an object, by what they hold; indices from 0."""

    count: int
    image: int
    captions: tuple[int, ...]
    split: int | None = None
    id: int | None = None

    @staticmethod
    @cache
    def of(names: tuple[str, ...], *, predicted: bool = False) -> Columns | None:
        """Recognise columns by their names, or None; predictions have ids of images first, and may have answers."""
        names = tuple(re.sub(r"[\s.-]+", "_", name.strip().lower()) for name in names)
        wanted_images = (*ID[:-1], *IMAGE, *ID) if predicted else IMAGE
        image, split, image_id = (_first(names, wanted) for wanted in (wanted_images, SPLIT, ID))
        # caption, captions, caption_1, caption2 and so on, of the first such word that occurs
        for word in (*CAPTION, *ANSWER) if predicted else CAPTION:
            captions = tuple(index for index, name in enumerate(names) if re.fullmatch(rf"{word}s?_?[0-9]*", name))
            if predicted and word in names:  # beside all candidates
                captions = tuple(index for index in captions if names[index] != f"{word}s")
            if captions and image is not None:
                return Columns(len(names), image, captions, split, image_id)
        return None


def _first(names: Sequence[str], wanted: Sequence[str]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)


def captions_in(value: Any) -> list[str] | None:
    """The captions in a cell or a JSON value: a text, a list of texts (even printed) or of objects; None for others."""
    if isinstance(value, str):
        text = value.strip()
        if not text.startswith(("[", "(")):
            return [value]
        if _PRINTED.fullmatch(text):
            return [_unquoted(part) for part in _TEXT.findall(text)]
        return None if _LIKE_A_LIST.fullmatch(text) else [value]
    parts = [] if value is None else value if isinstance(value, list | tuple) else [value]
    texts: list[Any] = [
        next((part[key] for key in CAPTION if key in part), None) if isinstance(part, Mapping) else part
        for part in parts
    ]
    return texts if all(isinstance(text, str) for text in texts) else None


def _unquoted(text: str) -> str:
    """A text out of the quotation marks in which Python or JSON has printed it."""
    for read in (json.loads, ast.literal_eval):
        try:
            return str(read(text))
        except (SyntaxError, ValueError):  # of the other language
            continue
    return text[1:-1]


def is_left_out(annotation: Mapping[str, Any]) -> bool:
    """Whether an annotation of COCO's form has one of the `FLAGS`."""
    return any(annotation.get(flag) in (True, 1) for flag in FLAGS)
