"""The reference of the API as Markdown: made from `__all__`, annotations, docstrings and the comments beside fields.

A page of docs/api/ names a package or a module:

    ```{api} showtell.captioners
    ```

which becomes a table of its public names and an entry for each; what a registry holds follows, with the heads of its
files. A name is documented once, on the page of the package that lists it, under the shortest path that imports it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from textwrap import indent
from types import ModuleType, UnionType
from typing import Any, get_origin

from docstrings import Declaration, declarations, escape, to_rest
from settings_tables import first_sentence, values

import showtell
from showtell.config import Config
from showtell.decoding import Search
from showtell.registry import Registry

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "showtell"
DIRECTIVE = re.compile(r"^```\{api\} (\S+)\n```$", re.MULTILINE)


# --- the names ---


@cache
def packages() -> dict[str, ModuleType]:
    """The packages that list public names."""
    folders = sorted(file.parent.relative_to(SOURCE).parts for file in SOURCE.rglob("__init__.py"))
    modules = {name: importlib.import_module(name) for name in (".".join(("showtell", *parts)) for parts in folders)}
    return {name: module for name, module in modules.items() if getattr(module, "__all__", ())}


def public_names(module: str) -> list[str]:
    """What a module lists in `__all__`; without that, its classes, and the functions that the top level exports."""
    loaded = importlib.import_module(module)
    if hasattr(loaded, "__all__"):
        # the top level in the order in which people need it
        return list(loaded.__all__) if module == "showtell" else sorted(loaded.__all__, key=str.lower)
    tree = ast.parse(inspect.getsource(loaded))
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")}
    return sorted(classes | {name for name, where in showtell._PUBLIC.items() if where == module}, key=str.lower)


def owner(module: str, name: str) -> str:
    """The package or module on whose page a public name is documented."""
    thing = getattr(importlib.import_module(module), name)
    for package, loaded in packages().items():
        if package != "showtell" and name in loaded.__all__ and getattr(loaded, name) is thing:
            return package
    return showtell._PUBLIC.get(name, module) if module == "showtell" else module


def path_of(module: str, name: str) -> str:
    """The shortest path that imports a public name."""
    thing = getattr(importlib.import_module(module), name)
    is_top = name in showtell.__all__ and getattr(showtell, name) is thing
    return f"{'showtell' if is_top else owner(module, name)}.{name}"


@cache
def home(module: str, name: str) -> str:
    """The module that defines a name which another one may have imported."""
    if module == "showtell" and name in showtell._PUBLIC:
        return home(showtell._PUBLIC[name], name)
    for node in ast.parse(inspect.getsource(importlib.import_module(module))).body:
        is_ours = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("showtell")
        if is_ours and any(alias.name == name for alias in node.names):
            return home(node.module, name)
    return module


def declaration(module: str, name: str) -> Declaration | None:
    """How the source declares a constant or type."""
    defined = home(module, name)
    return declarations(Path(importlib.import_module(defined).__file__ or "")).get(name)


def type_aliases() -> dict[str, str]:
    """The public names of unions of types, which signatures show by their names."""
    return {
        name: path_of(package, name)
        for package, loaded in packages().items()
        for name in loaded.__all__
        if isinstance(getattr(loaded, name), UnionType)
    }


def summary(module: str, name: str) -> str:
    """The first sentence about a public name."""
    thing = getattr(importlib.import_module(module), name)
    if isinstance(thing, Registry):
        return f"Registry of `{thing.group}`: names to entries, those of installed packages included."
    if inspect.isclass(thing) or inspect.isroutine(thing):
        return first_sentence(inspect.getdoc(thing) or "")
    declared = declaration(module, name)
    return _sentence(declared.comment if declared else "")


# --- the pages ---


def documented() -> Iterator[str]:
    """The packages and modules that pages of the reference name."""
    for file in sorted((ROOT / "docs" / "api").glob("*.md")):
        yield from DIRECTIVE.findall(file.read_text(encoding="utf-8"))


def page(module: str) -> str:
    """The part of a page about a package or module, as Markdown."""
    # Captioner first
    names = sorted(public_names(module), key=lambda name: path_of(module, name) != f"showtell.{name}")
    rows = [f"| {{py:obj}}`{name} <{path_of(module, name)}>` | {_cell(summary(module, name))} |" for name in names]
    own = [name for name in names if owner(module, name) == module]
    entries = "\n".join(entry(module, name) for name in own)
    parts = ["\n".join(["| name | what it is |", "|---|---|", *rows])]
    _, _, more = (inspect.getdoc(importlib.import_module(module)) or "").partition("\n\n")
    if module != "showtell" and more:
        parts.append(_rest(to_rest(more)))
    if own:
        parts.append(_rest(entries))
    for name in own:
        thing = getattr(importlib.import_module(module), name)
        if isinstance(thing, Registry):
            parts.append(f"## Entries of {name}\n\n{registered(thing)}")
    return "\n\n".join(parts)


def entry(module: str, name: str) -> str:
    """The directive of one name, as reStructuredText."""
    thing, path = getattr(importlib.import_module(module), name), path_of(module, name)
    if inspect.isclass(thing):
        kind = "autoexception" if issubclass(thing, BaseException) else "autoclass"
        bases = "   :show-inheritance:\n" if named_bases(thing.__bases__) else ""
        return f".. {kind}:: {path}\n   :members:\n{bases}"
    if inspect.isroutine(thing):
        return f".. autofunction:: {path}\n"
    declared = declaration(module, name)
    lines = [f".. py:data:: {path}"]
    if declared and declared.annotation:
        lines.append(f"   :type: {declared.annotation}")
    elif declared and declared.value and len(declared.value) < 100:
        lines.append(f"   :value: {declared.value}")
    return "\n".join([*lines, "", indent(escape(summary(module, name)), "   "), ""])


def named_bases(bases: Iterable[Any]) -> list[Any]:
    """The bases that a reader of this reference can look up."""
    public = [thing for loaded in packages().values() for name in loaded.__all__ if (thing := getattr(loaded, name))]
    return [base for base in bases if (get_origin(base) or base) in public]


def registered(registry: Registry[Any]) -> str:
    """What a registry holds: a table, then the heads of the files, which have the equations."""
    rows: list[str] = []
    parts: dict[ModuleType, list[str]] = {}  # the entries of each file
    for name, item in registry.builtin.items():
        if isinstance(item, Search):
            settings = ", ".join(f"`{setting}`" for setting in item.settings) or "those of all searches"
            rows.append(f"| `{name}` | {settings} |")
            continue
        settings = item[0] if isinstance(item, tuple) else None
        part = item if isinstance(item, ModuleType) else importlib.import_module((settings or item).__module__)
        if isinstance(item, ModuleType):
            rows.append(f"| `{name}` | {_cell(item.EXAMPLE)} | {_file(part)} |")
            continue
        rows.append(f"| `{name}` | {_cell(first_sentence(inspect.getdoc(part) or ''))} | {_file(part)} |")
        parts.setdefault(part, []).append(name)
    heads = [
        f"### {', '.join(names)}\n\n{_file(part)}{_keys(registry, names)}\n\n{_rest(to_rest(part.__doc__ or ''))}"
        for part, names in parts.items()
    ]
    example = next(iter(registry.builtin.values()))
    columns = {Search: ["name", "settings"], ModuleType: ["name", "recognised by", "file"]}
    header = columns.get(type(example), ["name", "what it is", "file"])
    table = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|", *rows]
    return "\n\n".join(["\n".join(table), *heads])


def _file(part: ModuleType) -> str:
    """A link to a file of the package."""
    path = Path(part.__file__ or "").relative_to(ROOT)
    return f"[{path.relative_to('src/showtell')}](../../{path})"


def _keys(registry: Registry[Any], names: Sequence[str]) -> str:
    """Links to the keys that entries of a file have in a recipe."""
    section = {"showtell.models": "model", "showtell.encoders": "encoder", "showtell.objectives": "objective"}
    if registry.group not in section:
        return ""
    texts = ["its settings"] if len(names) == 1 else [f"settings of `{name}`" for name in names]
    anchors = (f"../recipe_keys.md#{section[registry.group]}name-{name}" for name in names)
    return "".join(f", [{text}]({anchor})" for text, anchor in zip(texts, anchors, strict=True))


def _rest(text: str) -> str:
    """reStructuredText within Markdown."""
    return f"````{{eval-rst}}\n{text}\n````"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def fields_of(thing: type) -> str:
    """The fields of a record, of settings or of an enumeration, and what else a class declares, as reStructuredText."""
    declared: dict[str, Declaration] = {}
    for base in reversed(thing.__mro__):
        if base.__module__.startswith("showtell"):
            declared |= declarations(Path(inspect.getfile(base)), base.__name__)
    names = field_names(thing) or list(declarations(Path(inspect.getfile(thing)), thing.__name__))
    return "\n".join(_field(thing, declared[name]) for name in names if name in declared and name[0] != "_")


def field_names(thing: type) -> list[str]:
    """The arguments of a class that is made of its fields."""
    if issubclass(thing, Config):
        return list(thing.model_fields)
    return list(thing.__dataclass_fields__) if is_dataclass(thing) else []


def _field(thing: type, declared: Declaration) -> str:
    value, text = declared.value, declared.comment
    if issubclass(thing, Config) and declared.name in thing.model_fields:
        field = thing.model_fields[declared.name]
        limits = values(field.annotation, field.metadata)
        has_default = not (field.is_required() or field.default_factory or isinstance(field.default, Config))
        value = repr(field.default) if has_default else None
        text = f"{field.description or ''} {f'Values: {limits}.' if re.search('[≥≤<>]', limits) else ''}".strip()
    lines = [f".. py:attribute:: {declared.name}", "   :no-contents-entry:"]
    lines += [f"   :type: {declared.annotation}"] if declared.annotation else []
    lines += [f"   :value: {value}"] if value is not None else []
    return "\n".join([*lines, "", indent(escape(_sentence(text)), "   "), ""])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "." * bool(text and text[-1] not in ".:")
