"""README, CONTRIBUTING and the pages of docs/ name commands, options, recipes, files and public names that exist."""

import re
from functools import cache
from pathlib import Path

from showtell.cli.app import GROUPS, VERBS
from showtell.models import MODELS
from showtell.recipes import list_recipes
from tests.cli.test_verbs import command_of

ROOT = Path(__file__).resolve().parents[1]
MADE = ("commands.md", "recipe_keys.md")  # by the site (docs/_extensions/made_pages.py)
HISTORY = ("CHANGELOG.md",)  # what has changed keeps the names of its day
EXAMPLES = {"vocabulary", "--min-p"}  # what CONTRIBUTING.md adds
PAGES = {
    file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8")
    for file in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    if file.name not in (*HISTORY, *MADE)
}
README = PAGES["README.md"]
SITE = [name for name in PAGES if name.startswith("docs/") and "/notes/" not in name and "lab_notes" not in name]
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
    return {option for parameter in command_of(verb).params for option in (*parameter.opts, *parameter.secondary_opts)}


def is_known(command: str) -> bool:
    """Whether a command has a verb, options and a recipe that exist."""
    words = [word.strip("[]|,.\"'") for word in command.split()]
    length = 2 if words[0] in GROUPS else 1
    if len(words) < length or not all(re.fullmatch(r"[a-z][a-z-]*", word) for word in words[:length]):
        return True  # an option, VERB or {a value}
    verb = " ".join(words[:length])
    named = {option for word in words for option in re.findall(r"^--[a-z][a-z-]*", word)}
    recipes = re.findall(r"^train ((?!runs/)[\w-]+/\w+)(?= |$)", command)
    known = verb in EXAMPLES or (verb in VERBS and named <= options_of(verb) | {"--help"} | EXAMPLES)
    return known and set(recipes) <= {*list_recipes(), *EXAMPLES}


def test_every_command_that_is_named_exists():
    wrong = [f"{name}: showtell {one}" for name, text in (PAGES | SOURCES).items() for one in commands(text)
             if not is_known(one)]  # fmt: skip
    assert wrong == []


def test_every_file_that_the_readme_and_the_notes_link_exists():
    """The site's own links are checked as it is built."""
    for name in PAGES.keys() - SITE:
        links = re.findall(r"\]\(([^)#:\s]+)[^)]*\)", PAGES[name])
        assert [link for link in links if not (ROOT / name).parent.joinpath(link).exists()] == [], name


def test_the_pages_are_no_more_than_one_reads():
    """What is for those who work on showtell stands in docs/notes and the lab notes, which the site leaves out."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert sum(len(text.split()) for text in [*PAGES.values(), changes]) <= 80_000
    assert len(SITE) + len(MADE) <= 48
    assert len(README.splitlines()) <= 110


def test_the_readme_has_every_verb_and_every_model():
    rows = re.findall(r"^\| (`.*?) \| ", README, flags=re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert [name for name in named if name in VERBS] == list(VERBS)  # each verb once, in order
    models = dict(re.findall(r"^\| `(\w+)` \| .* \| \[.*\]\((src/showtell/models/\w+\.py)\) \|$", README, re.MULTILINE))
    assert models.keys() == MODELS.builtin.keys()
    for name, file in models.items():
        assert MODELS[name][1].__module__ == ".".join(Path(file).with_suffix("").parts[1:])
