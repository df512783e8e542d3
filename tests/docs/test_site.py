"""The site, built as `make docs` builds it: without a warning, complete, and readable on a phone and by everybody."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chromium import Chromium

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# A page of each kind, by what could be wrong with it: cards, tables, equations, entries, source, search.
SEVERAL = ("index", "commands", "show_attend_tell", "api/captioners", "source/src/showtell/models/sat.py", "search")

# What axe finds in the markup of furo and Sphinx themselves: headings of the sidebar without a level, its landmarks
# without names, empty lists of entries, a search page without a heading, and blocks of code that scroll.
OF_THE_THEME = ("aria-required-attr", "landmark-unique", "definition-list", "page-has-heading-one")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx", reason='Sphinx is not installed: pip install -e ".[docs]"')
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "--fail-on-warning", "--keep-going", str(DOCS), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_search_puts_the_page_about_the_words_first(site: Path, tmp_path: Path):
    with Chromium(tmp_path) as browser:
        for words, page in {
            "resume": "training", "beam search": "decoding", "self-critical": "objectives",
            "alt text": "caption_my_photos", "flickr8k encoder weights": "features", "my own photos": "datasets",
            "Captioner.from_pretrained": "api/captioners",
        }.items():  # fmt: skip
            browser.open(f"{(site / 'search.html').as_uri()}?q={words.replace(' ', '+')}")
            browser.wait_for("document.querySelector('#search-results .search-summary').innerText.includes('matching')")
            found = browser.ask("[...document.querySelectorAll('#search-results a')].map(a => a.getAttribute('href'))")
            assert found[0].partition("#")[0] == f"{page}.html", found[:5]
            last = [bool(re.match(r"changelog|contributing|design|notebooks/", one)) for one in found]
            assert any(last) and last == sorted(last), "logs, designs and source behind what is for readers"


def test_nothing_is_asked_of_the_outside_and_nothing_is_wider_than_a_phone(site: Path, tmp_path: Path):
    with Chromium(tmp_path) as browser:
        browser.resize(390, 844)
        wide = []
        for page in sorted(site.rglob("*.html")):
            browser.open(page)
            if (width := browser.ask("document.documentElement.scrollWidth")) > 390:
                wide.append(f"{page.name}: {width}")
        assert not wide
        assert not [address for address in browser.requests if not address.startswith(("file:", "data:"))]
        assert not browser.complaints


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", SEVERAL)
def test_axe_finds_nothing_but_what_the_theme_brings(name: str, scheme: str, site: Path, tmp_path: Path):
    with Chromium(tmp_path) as browser:
        browser.resize(1280, 900, scheme)
        browser.open(site / f"{name}.html")
        assert [one for one in browser.accessibility_problems() if not one.startswith(OF_THE_THEME)] == []
