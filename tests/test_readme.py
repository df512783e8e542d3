"""README, CONTRIBUTING and the pages of docs/ name commands, options, recipes, files and public names that exist."""

from __future__ import annotations

import ast
import re
import runpy
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
from typer.main import get_command

import showtell
from showtell.cli.app import VERBS, app
from showtell.models import MODELS
from showtell.recipes import recipe_names

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# What was done and what has changed keep the names of their day.
HISTORY = ("lab_notes.md", "CHANGELOG.md")
LIMIT = 1500  # words of a page, so that it is read to its end
# In these pages a reader looks something up.
REFERENCE = tuple(
    f"docs/{name}.md" for name in ("commands", "equations", "recipe_keys", "recipes", "published", "tree")
)
EXAMPLES = {"vocabulary", "--min-p", "scenes/gru"}  # what CONTRIBUTING.md adds
PAGES = {
    file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8")
    for file in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    if file.name not in HISTORY
}
SOURCES = {
    file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8")
    for folder in ("src", "benchmarks")
    for file in sorted((ROOT / folder).rglob("*"))
    if file.suffix in (".py", ".yaml", ".j2")
}


def commands(text: str) -> list[str]:
    """What stands behind `showtell` in blocks of code and between backticks."""
    fenced = re.findall(r"^ *```(?:bash)?\n(.*?)^ *```", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^ {4,}(?=showtell )(.*(?:\\\n.*)*)", text, flags=re.MULTILINE)
    blocks = "\n".join([*fenced, *indented]).replace("\\\n", " ")
    lines = re.findall(r"^\s*showtell (.*?)(?: {2,}#.*)?$", blocks, flags=re.MULTILINE)
    return lines + re.findall(r"`showtell ([^`]+)`", text)


@cache
def options_of(verb: str) -> set[str]:
    """The options of a verb."""
    root: Any = get_command(app)
    group, words = root, verb.split()
    for word in words[:-1]:
        group = group.commands[word]
    with click.Context(group) as context:
        _, command, _ = group.resolve_command(context, [words[-1]])
        return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("name", [*PAGES, *SOURCES])
def test_every_command_that_is_named_exists(name: str):
    for command in commands((PAGES | SOURCES)[name]):
        words = [word.strip("[]|,.\"'") for word in command.split()]
        if not re.fullmatch(r"[a-z][a-z-]*", words[0]):  # an option, VERB or {a value}
            continue
        groups = {verb.split()[0] for verb in VERBS if " " in verb}
        if words[0] in groups:
            if len(words) == 1 or not re.fullmatch(r"[a-z]+", words[1]):
                continue
            verb = " ".join(words[:2])
        else:
            verb = words[0]
        if name == "CONTRIBUTING.md" and verb in EXAMPLES:
            continue
        assert verb in VERBS, f"{name}: showtell {command}"
        named = {option for word in words for option in re.findall(r"^--[a-z][a-z-]*", word)}
        assert named <= options_of(verb) | {"--help"} | EXAMPLES, f"{name}: showtell {command}"


@pytest.mark.parametrize("name", [*PAGES, *SOURCES])
def test_every_recipe_that_is_trained_exists(name: str):
    for command in commands((PAGES | SOURCES)[name]):
        for recipe in re.findall(r"^(?:train|sweep) ((?!runs/)[\w-]+/\w+)(?= |$)", command):
            assert recipe in {*recipe_names(), *EXAMPLES}, f"{name}: showtell {command}"


@pytest.mark.parametrize("name", PAGES)
def test_every_file_that_is_linked_exists(name: str):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGES[name]):
        assert (ROOT / name).parent.joinpath(target).exists(), f"{name}: {target}"


@pytest.mark.parametrize("name", PAGES)
def test_every_section_that_is_linked_exists(name: str):
    for target, section in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", PAGES[name]):
        page = (ROOT / name).parent.joinpath(target) if target else ROOT / name
        if page.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert section in anchors, f"{name}: {target}#{section}"


def words_by_hand(page: str) -> int:
    """The words of a page without the tables that scripts write into it."""
    made = r"<!-- made by .*?<!-- end -->|<!-- ([^\n]*): begin -->.*?<!-- \1: end -->"
    return len(re.sub(made, "", page, flags=re.DOTALL).split())


@pytest.mark.parametrize("name", sorted(PAGES.keys() - set(REFERENCE)))
def test_a_page_is_no_longer_than_one_reads(name: str):
    words = words_by_hand(PAGES[name])
    assert words <= LIMIT, f"{name} has {words} words: split it by what a reader wants to do, or call it a reference"


def test_words_are_counted_without_generated_tables():
    table = "<!-- made by scripts/generate_docs: x -->\n| a | b |\n<!-- end -->"
    assert words_by_hand(f"one two\n{table}\nthree <!-- t: begin -->\n| c |\n<!-- t: end --> four") == 4


def test_the_readme_fits_on_few_screens():
    assert len(README.splitlines()) < 150


def test_the_readme_has_every_verb_and_every_model():
    rows = re.findall(r"^\| (`.*?) \| ", README, flags=re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    verbs = [name for name in named if name in VERBS]
    assert sorted(verbs) == sorted(VERBS), "the table of commands has each verb once"
    models = dict(re.findall(r"^\| `(\w+)` \| .* \| \[.*\]\((src/showtell/models/\w+\.py)\) \|$", README, re.MULTILINE))
    assert models.keys() == MODELS.builtin.keys()
    for name, file in models.items():
        assert MODELS[name][1].__module__ == ".".join(Path(file).with_suffix("").parts[1:])


def test_the_python_of_the_readme_uses_public_names():
    (block,) = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    tree = ast.parse(block)
    names = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names and names <= set(showtell.__all__)
    assert len([line for line in block.splitlines() if line]) == 8
    methods = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert methods == {"from_pretrained", "caption", "confidence", "explain", "figure", "savefig", "split", "report"}


def test_every_recipe_that_the_readme_names_exists():
    folders = "|".join({name.partition("/")[0] for name in recipe_names()})
    named = set(re.findall(rf"(?<![/\w])(?:{folders})/\w+", README))
    assert "folder/sat_soft" in named
    assert named <= set(recipe_names())


def test_the_tree_has_every_file_with_its_first_line():
    page = runpy.run_path(str(ROOT / "scripts" / "tree"))["page"]()
    assert (ROOT / "docs" / "tree.md").read_text(encoding="utf-8") == page, "run scripts/tree --write"
