"""What the pages of the papers take from elsewhere: lines of code, measured effects, differences and shapes.

    [sat.py, line 293](../src/showtell/models/sat.py#L293 "papers/003 §4.2.1: beta_t")

is a link to the line that bears the mark in its title, a comment `# papers/003 §4.2.1: beta_t` at its end (or on a line
of its own above it; several marks are parted by semicolons). Between the lines `made by scripts/generate_docs` and
`end` stand, by the name of what is to be there,

    effect sat_soft_no_gate              a row of benchmarks/ablations.py: its override, and what it changes
    compared nic_gru                     a row of benchmarks/old_papers.py, less soft attention
    compared updown in rewards           the same from a table of its own choice, where several have the row
    compared hacap less hacap_worker     less another row
    differences models/sat.py            the numbered differences of a head, each with its switch and its effect
    shapes coco/sat_soft_xu2015          of every tensor of a step of the model that a recipe has, which is run
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml
from docstrings import declarations

from ablations import BASES, INGREDIENTS, Ingredient
from documents import markers_of, read_between
from plot_results import DIFFERENCES, LESS, cells_of, page_of, rows_of
from showtell.errors import DataError
from showtell.features import build_encoder, encoder_config
from showtell.models import MODELS
from showtell.objectives import OBJECTIVES
from showtell.recipes import FOLDER as RECIPES
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features, PreparedBatch
from study import Bench, Row

ROOT = Path(__file__).resolve().parents[1]
DOCS, SOURCE = ROOT / "docs", ROOT / "src" / "showtell"
MARK = re.compile(r'papers/\d{3} (?:§(?:[IVX]+|[\d.]*\d)|eq\. \d+|LeakGAN): [^;"\n]+')
COMMENT = re.compile(rf"# ({MARK.pattern}(?:; {MARK.pattern})*)$")
LINK = re.compile(rf'\[[^\[\]]*\]\(\.\./(src/showtell/[\w/]+\.py)#L\d+ "({MARK.pattern})"\)')
BLOCK = re.compile(
    r"(?P<begin><!-- made by scripts/generate_docs: "
    r"(?P<kind>effect|compared|differences|shapes) (?P<what>\S+(?: \S+)*) -->)\n"
    r".*?(?P<end><!-- end -->)",
    re.DOTALL,
)
COMPARED = re.compile(r"(\w+)(?: less (\w+))?(?: in (\w+))?")
EPOCHS = {"ablations": Bench.frozen_epochs, "measured": Bench.frozen_epochs, "rewards": 12, "hacap": 12}  # of a table
PAIRS, RUNS = "Other pairs, in the same way:", "What a run took:"
VOCABULARY = 10_000  # of a recipe that does not limit it
REGIONS = 36  # of each photo, in features that were computed elsewhere


@cache
def marked_lines() -> Mapping[tuple[str, str], int]:
    """The lines of src that bear a mark: (file, mark) to the number of the line."""
    lines: dict[tuple[str, str], int] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if not (comment := COMMENT.search(line)):
                continue
            for mark in comment[1].split("; "):
                if (path, mark) in lines:
                    raise SystemExit(f'{path} has the mark "{mark}" twice, in lines {lines[path, mark]} and {number}')
                lines[path, mark] = number + (not line[: comment.start()].strip())
    return lines


def renewed(text: str) -> str:
    """A page with its links to lines and its blocks made anew."""
    return BLOCK.sub(_block, LINK.sub(_link, text))


def _link(match: re.Match[str]) -> str:
    path, mark = match.groups()
    if (path, mark) not in marked_lines():
        raise SystemExit(f'No line of {path} bears the comment "# {mark}", which a page links to')
    line = marked_lines()[path, mark]
    return f'[{Path(path).name}, line {line}](../{path}#L{line} "{mark}")'


def _block(match: re.Match[str]) -> str:
    make = {"effect": effect, "compared": compared, "differences": differences, "shapes": shapes}[match["kind"]]
    return f"{match['begin']}\n{make(match['what'])}\n{match['end']}"


# Effects


def effect(name: str) -> str:
    """A sentence: the override of a row of benchmarks/ablations.py, and what it changed."""
    rows = {one.name: one for one in INGREDIENTS}
    if name not in rows:
        raise SystemExit(f"benchmarks/ablations.py has no row {name}")
    one = rows[name]
    effort = _effort("ablations", one.row, BASES[one.base], one.says)
    says = f"**Measured.** {switch(one)} ({one.says}): {measured(one)}."
    return " ".join(part for part in (says, effort, "[All measurements](results_ablations.md).") if part)


def switch(one: Ingredient) -> str:
    """The overrides, or the recipe, in which a row differs from its base."""
    base = BASES[one.base]
    changes = [change for change in one.row.changes if change not in base.changes]
    return " ".join(f"`{change}`" for change in changes) or f"`scenes/{one.row.recipe}`"


def measured(one: Ingredient) -> str:
    """What a row changed, from its table."""
    rows = _rows("ablations", f"**{BASES[one.base].says}**")
    return _changes(rows[one.says]) if one.says in rows else "not measured"


def compared(what: str) -> str:
    """A sentence: how far a row of benchmarks/old_papers.py is from another, or from soft attention."""
    match = COMPARED.fullmatch(what)
    if not match:
        raise SystemExit(f"{what!r} is not of the form: compared ROW, with less ROW and in TABLE behind it or not")
    name, other, chosen = match[1], match[2] or "sat_soft", match[3]
    for one in (name, other):
        if one not in BASES:
            raise SystemExit(f"benchmarks/old_papers.py has no row {one}")
    says, less = BASES[name].says, BASES[other].says
    for table in [chosen] if chosen else [table for table in EPOCHS if table != "ablations"]:
        if difference := _difference(table, says, less):
            effort = _effort(table, BASES[name], BASES[other], says)
            from_what = "soft attention" if other == "sat_soft" else less
            all_models = f"[All models]({page_of(table)}.md)"
            return f"**Measured.** {says}, less {from_what}: {_changes(difference)}. {effort} {all_models}."
    raise SystemExit(f"No table of docs/ compares {name}, {says}, with {less}")


def _difference(table: str, says: str, less: str) -> Mapping[str, tuple[float, float, float]] | None:
    """The intervals of one row less another, whichever way round the table has them."""
    if less == BASES["sat_soft"].says and says in (rows := _rows(table, LESS)):
        return rows[says]
    pairs = _rows(table, PAIRS)
    if turned := pairs.get(f"{less} - {says}"):
        return {title: (-value, -high, -low) for title, (value, low, high) in turned.items()}
    return pairs.get(f"{says} - {less}")


def _changes(intervals: Mapping[str, tuple[float, float, float]]) -> str:
    """The differences on the split `test`, and on `test_compositional` where the verdict there is another one."""
    parts = []
    for score, titles in DIFFERENCES.items():
        test, compositional = (intervals[title] for title in titles)
        parts.append(f"{score} {_change(test)}")
        if _verdict(test) != _verdict(compositional):
            parts.append(f"on `test_compositional` {_change(compositional)}")
    return ", ".join(parts)


def _change(interval: tuple[float, float, float]) -> str:
    value, low, high = interval
    verdict = "" if _verdict(interval) else " (no clear change)"
    return f"{value:+.3f} [{low:+.3f}, {high:+.3f}]{verdict}"


def _verdict(interval: tuple[float, float, float]) -> int:
    """1 above 0, -1 below, 0 where the interval contains 0."""
    _, low, high = interval
    return (low > 0) - (high < 0)


def _effort(table: str, row: Row, other: Row, says: str) -> str:
    """How long two rows were trained, and with how many seeds; nothing where the first was not run."""
    head = f"**{other.says}**" if table == "ablations" else RUNS
    seeds = _seeds(table, head)
    if says not in seeds:
        return ""
    epochs = [_epochs(table, one) for one in (row, other)]
    runs = [seeds[says], seeds[other.says]]
    parts = [(f"{epochs[0]} epochs", epochs), (f"{runs[0]} seed" + "s" * (runs[0] != "1"), runs)]
    return ", ".join(f"{first} against {two[1]}" if two[0] != two[1] else first for first, two in parts) + "."


def _epochs(table: str, row: Row) -> str:
    if row.view is None:
        return "the recipe's"
    return f"{EPOCHS[table]} + {Bench.reward_epochs}" if row.start else str(EPOCHS[table])


@cache
def _seeds(table: str, head: str) -> Mapping[str, str]:
    """The seeds of each row of a table of docs/, by its name; none where there is no table with that head."""
    try:
        titles, *lines = cells_of(_tables(table), head)
    except DataError:
        return {}
    return {cells[0].strip("*"): cells[titles.index("seeds")] for cells in lines}


def _tables(table: str) -> str:
    """The tables of docs/ that stand between some markers."""
    return read_between(DOCS / f"{page_of(table)}.md", markers_of(table))


@cache
def _rows(table: str, head: str) -> Mapping[str, Mapping[str, tuple[float, float, float]]]:
    """The rows of a table of docs/ by their names; none where there is no table with that head."""
    try:
        return {row.name: row.intervals for row in rows_of(_tables(table), head)}
    except DataError:
        return {}


# Differences


def differences(path: str) -> str:
    """The numbered differences of a module's head, each with its switches and their effects."""
    head = ast.get_docstring(ast.parse((SOURCE / path).read_text(encoding="utf-8"))) or ""
    title = re.search(r"^Where this differs.*:$", head, flags=re.MULTILINE)
    if not title:
        raise SystemExit(f"The head of {path} has no numbered differences")
    items = re.findall(r"^ ?(\d+)\. (.*(?:\n {4}.*)*)", head[title.end() :], flags=re.MULTILINE)
    parts = []
    for number, text in items:
        start, indent = f"{number}. ", " " * len(f"{number}. ")
        words = re.sub(r" (?=(?:\d+[.)]|[-+*])(?: |$))", "\0", " ".join(text.split()))  # no line begins as a list does
        lines = textwrap.fill(words, 118, initial_indent=start, subsequent_indent=indent)
        parts.append(lines.replace("\0", " "))
        parts += [f"{indent}- {line}" for line in _switches(path, text)]
    return "\n".join(parts)


def _switches(path: str, text: str) -> Iterator[str]:
    """The settings that a difference names, with their effects: `key: value`, or `key` for all that was measured."""
    section = {"models": "model", "objectives": "objective"}[path.split("/")[0]]
    registry: Mapping[str, Any] = {"model": MODELS, "objective": OBJECTIVES}[section].builtin
    own = {name for name, (_, part) in registry.items() if part.__module__ == _module(path)}
    configs = [config for config, part in registry.values() if not own or part.__module__ == _module(path)]
    fields = {key: field for config in configs for key, field in config.model_fields.items()}
    named = re.findall(r"`(\w+)(?:: (\w+))?`", " ".join(text.split()))
    valued = {key for key, value in named if value}
    for key, value in dict.fromkeys(named):
        if key not in fields or (not value and key in valued):
            continue
        if value and yaml.safe_load(value) == fields[key].default:
            continue
        override = f"{section}.{key}={value}"
        rows = [one for one in INGREDIENTS if _matches(one, override, bool(value)) and _of(one, section, own)]
        yield from (f"{switch(one)} ({BASES[one.base].says}): {measured(one)}" for one in rows)
        if not rows:
            yield f"`{override if value else override[:-1]}`: not measured"


def _matches(one: Ingredient, override: str, whole: bool) -> bool:
    """Whether a row changes that and nothing else in the same section."""
    section = override.partition(".")[0]
    changes = [change for change in one.row.changes if change not in BASES[one.base].changes]
    own = [change for change in changes if change.startswith(f"{section}.")]
    return own == [override] if whole else any(change.startswith(override) for change in own)


def _of(one: Ingredient, section: str, names: set[str]) -> bool:
    recipe = yaml.safe_load((RECIPES / "scenes" / f"{one.row.recipe}.yaml").read_text(encoding="utf-8"))
    return not names or recipe[section]["name"] in names


def _module(path: str) -> str:
    return "showtell." + path.removesuffix(".py").replace("/", ".")


# Shapes


def shapes(recipe: str) -> str:
    """A table of the tensors of one step of a recipe's encoder and decoder, which are run with random weights."""
    content = yaml.safe_load((RECIPES / f"{recipe}.yaml").read_text(encoding="utf-8"))
    torch.manual_seed(0)
    encoder = build_encoder(encoder_config(content["encoder"]), load_weights=False).eval()
    vocabulary = content.get("vocabulary", {}).get("max_size", VOCABULARY)
    settings, decoder_of = MODELS[content["model"]["name"]]
    decoder = decoder_of(
        settings.model_validate(content["model"]), feature_size=encoder.feature_size, vocabulary_size=vocabulary
    ).eval()
    size = content["encoder"].get("image_size")
    with torch.no_grad():
        if size:
            features = encoder(PreparedBatch.of(torch.randint(256, (2, 3, size, size), dtype=torch.uint8)))
        else:
            vectors = torch.randn(2, REGIONS, encoder.feature_size)
            features = Features(vectors, torch.ones(vectors.shape[:2], dtype=torch.bool))
        before = decoder.start(features)
        words = torch.full((2, 1), Vocabulary.begin)
        output, _ = decoder.step(words, before)
        logits = decoder.readout(output)
    rows = [
        *([("images", str((2, 3, size, size)), "(B, 3, height, width) the photos")] if size else []),
        *_tensors(features),
        *_tensors(before.image),
        *_tensors(before.rows),
        ("words", str(tuple(words.shape)), "(B, N) the last words"),
        *_tensors(output),
        ("logits", str(tuple(logits.shape)), "(B, N, V) scores of the next word, before the softmax"),
    ]
    table = ["| tensor | shape | what it is |", "|---|---|---|"]
    table += [f"| `{name}` | {shape} | {says} |" for name, shape, says in rows]
    return "\n".join(table)


def _tensors(record: Any, name: str = "") -> Iterator[tuple[str, str, str]]:
    """The tensors of a record: name, shape, and the comment beside the field. A tuple of equal shapes is one."""
    if record is None:
        return
    name = name or type(record).__name__
    for field in dataclasses.fields(record):
        value, inner = getattr(record, field.name), f"{name}.{field.name}"
        says = _comment(type(record), field.name)
        if isinstance(value, torch.Tensor):
            yield inner, str(tuple(value.shape)), says
        elif isinstance(value, tuple) and value and isinstance(value[0], torch.Tensor):
            shapes = [str(tuple(one.shape)) for one in value]
            equal = len(set(shapes)) == 1
            yield inner, f"{len(shapes)} of {shapes[0]}" if equal else ", ".join(shapes), says
        elif isinstance(value, tuple):
            for number, one in enumerate(value):
                yield from _tensors(one, f"{inner}[{number}]")


def _comment(record: type, field: str) -> str:
    """The comment beside a field."""
    for kind in record.__mro__:
        if field in vars(kind).get("__annotations__", {}):
            return declarations(Path(inspect.getfile(kind)), kind.__name__)[field].comment.replace("|", r"\|")
    return ""
