"""Tables in Markdown of what the source declares: settings, scores, and the page of every key of a recipe."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

import showtell
from showtell.captioners.hugging_face_adapters import TransformersConfig
from showtell.config import Config
from showtell.decoding import SEARCHES, DecodingConfig
from showtell.features import ENCODERS
from showtell.features.timm_grid import TimmConfig
from showtell.models import MODELS
from showtell.objectives import OBJECTIVES
from showtell.scores import SCORES
from showtell.serving.problems import MEANINGS
from showtell.serving.settings import ServeSettings
from showtell.training.recipe import Recipe

RECIPE_KEYS = """# Every key of a recipe

A recipe is YAML with the sections below; any key can be overridden behind `showtell train RECIPE`, as in
`training.epochs=5`. An unknown key is refused with the nearest known one. Letters such as lambda are those of the
equations at the top of the file that is named.
"""
KINDS: dict[str, list[type[Config]]] = {
    "encoder": [*(config for config, _ in ENCODERS.builtin.values()), TimmConfig],
    "model": [*(config for config, _ in MODELS.builtin.values()), TransformersConfig],
    "objective": [config for config, _ in OBJECTIVES.builtin.values()],
}
NUMBERS = {int: "whole number", float: "number"}
PLAIN = {bool: "`true`, `false`", str: "text", NoneType: "`null`", Path: "path"}
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def row(*cells: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def table(head: Sequence[str], rows: Sequence[str]) -> str:
    """A table with a head."""
    return "\n".join([row(*head), "|---" * len(head) + "|", *rows])


def values(annotation: Any, bounds: Sequence[Any] = ()) -> str:
    """The type of a setting and its bounds."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        more = [bound for part in parts[1:] if isinstance(part, FieldInfo) for bound in part.metadata]
        return values(parts[0], more)
    if origin in (Union, UnionType):
        return " or ".join(values(part, bounds) for part in parts)
    if origin is Literal:
        return ", ".join(f"`{shown(value)}`" for value in parts)
    if origin is tuple:
        item = _item(parts[0])
        return f"list of {item}" if parts[1:] == (...,) else f"list of {len(parts)}, each a {item}"
    if origin is dict:
        return "mapping of " + " to ".join(map(_item, parts))
    if annotation in NUMBERS:
        pairs = ((bound, name) for bound in bounds for name in BOUNDS if hasattr(bound, name))
        limits = {BOUNDS[name]: shown(getattr(bound, name)) for bound, name in pairs}  # the last bound is the narrowest
        return f"{NUMBERS[annotation]} {', '.join(f'{sign} {limit}' for sign, limit in limits.items())}".strip()
    return PLAIN.get(annotation, "settings")


def _item(annotation: Any) -> str:
    text = values(annotation)
    return f"({text})" if " or " in text else text


def shown(value: Any) -> str:
    """A value as YAML."""
    if value in (2**63, 2**63 - 1):
        return "2^63" + " - 1" * (value % 2)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return f"[{', '.join(map(shown, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def first_sentence(text: str) -> str:
    """Of the first paragraph. A full stop ends it before a capital letter or code, but not within brackets."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    starts = (paragraph[: stop.end()] for stop in re.finditer(r"(?<=[a-z0-9)`])[.](?= [A-Z`])", paragraph))
    return next((start for start in starts if start.count("(") <= start.count(")")), paragraph)


def rows(prefix: str, config: type[Config]) -> list[str]:
    """A row for each key; keys of nested settings follow their own."""
    lines = []
    for name, field in config.model_fields.items():
        if name == "name" and get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1:
            continue  # it is in the title
        default = "required" if field.is_required() else f"`{shown(field.default)}`"
        inner = [kind for kind in (field.annotation, *get_args(field.annotation)) if _is_settings(kind)]
        text = field.description or ""
        if inner and not field.is_required():
            default, text = "those below", text or _about(inner[0])
        lines.append(row(f"`{prefix}.{name}`", values(field.annotation, field.metadata), default, text))
        for kind in inner:
            if not any(issubclass(encoder, kind) for encoder in KINDS["encoder"]):
                lines += rows(f"{prefix}.{name}", kind)
    return lines


def _is_settings(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Config)


def _about(config: type[Config]) -> str:
    return (inspect.getdoc(config) or "").splitlines()[0]


def recipe_keys_page() -> str:
    """The page of every key of a recipe."""
    head = ("key", "values", "default", "description")
    parts = [RECIPE_KEYS]
    for section, field in Recipe.model_fields.items():
        if section not in KINDS:
            kind = field.annotation
            assert isinstance(kind, type)
            parts.append(f"## `{section}`\n\n{_about(kind)}\n\n{table(head, rows(section, kind))}\n")
            continue
        parts.append(f"## `{section}`\n\nWhich keys there are depends on `{section}.name`.\n")
        for config in KINDS[section]:
            name = config.model_fields["name"].default
            title = f"`{section}.name: {name}`" if isinstance(name, str) else f"`{section}.name`: any backbone of timm"
            file = Path(inspect.getfile(config)).relative_to(Path(showtell.__file__).parent).as_posix()
            parts.append(f"### {title}\n\n`{file}`: {_about(config)}\n\n{table(head, rows(section, config))}\n")
    return "\n".join(parts)


def decoding_table() -> str:
    """The settings of decoding, each with the searches that use it."""
    shared = set(DecodingConfig.model_fields).difference(*(search.settings for search in SEARCHES.values()))
    lines = []
    for name, field in DecodingConfig.model_fields.items():
        users = "all" if name in shared else ", ".join(key for key, one in SEARCHES.items() if name in one.settings)
        limits, default = values(field.annotation, field.metadata), f"`{shown(field.default)}`"
        lines.append(row(f"`{name}`", users, limits, default, field.description or ""))
    return table(("setting", "searches", "values", "default", "description"), lines)


def serving_table() -> str:
    """The settings of the server."""
    lines = []
    for name, field in ServeSettings.model_fields.items():
        limits = values(field.annotation, field.metadata).replace("settings", "path")
        lines.append(row(f"`{name}`", limits, f"`{shown(field.default)}`", field.description or ""))
    return table(("setting", "values", "default", "description"), lines)


def error_table() -> str:
    """What each status of the server means."""
    return table(("status", "meaning"), [row(str(code), text.removesuffix(".")) for code, text in MEANINGS.items()])


def score_table() -> str:
    """The scores, each as its class declares it."""
    lines = []
    for name, score in SCORES.builtin.items():
        numbers = [f"`{number.name}`" + " (lower is better)" * number.lower_is_better for number in score.numbers]
        needs = (need.replace("_", " ") for need in score.needs)
        lines.append(row(f"`{name}`", ", ".join(numbers), score.summary, ", ".join(needs)))
    return table(("metric", "numbers", "description", "needs"), lines)
