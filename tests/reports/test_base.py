"""What all pages share: templates that escape, a policy that lets nothing be loaded, and pictures within pages."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import jinja2
import pytest

from showtell.errors import UsageError
from showtell.reports import base
from showtell.reports.base import content_policy, data_url, refuse_foreign, templates
from showtell.reports.explanation_page import write_page

TEMPLATES = sorted(path.name for path in Path(base.__file__).parent.glob("*_page.html.j2"))


def test_every_page_is_made_from_the_base():
    assert TEMPLATES == [
        "explanation_page.html.j2", "live_page.html.j2",
        "quickstart_page.html.j2", "run_page.html.j2",
    ]  # fmt: skip
    for name in TEMPLATES:
        source = templates().loader.get_source(templates(), name)[0]
        assert re.search(r"\{% extends \"(base|explanation_page)\.html\.j2\" %\}", source), name
        assert "<head>" not in source and "<style" not in source and "Content-Security-Policy" not in source


def test_the_policy_allows_the_page_its_own_style_and_script_and_nothing_else():
    page = (
        templates()
        .from_string("{% extends 'base.html.j2' %}")
        .render(title="<Title>", policy=content_policy("b {}", "let a;"), style="b {}", script="let a;")
    )
    assert "<title>&lt;Title&gt;</title>" in page
    digests = {
        kind: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for kind, text in (("style", "b {}"), ("script", "let a;"))
    }
    policy = content_policy("b {}", "let a;")
    assert policy.split("; ") == [
        "default-src 'none'", "img-src data:", f"style-src 'sha256-{digests['style']}'",
        f"script-src 'sha256-{digests['script']}'", "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    assert "script-src" not in content_policy("b {}")


def test_only_what_showtell_wrote_is_replaced(tmp_path):
    recipe, own = tmp_path / "r.yaml", tmp_path / "page.html"
    recipe.write_text("training: {epochs: 3}\n")
    write_page(own, [])
    refuse_foreign(own, "--out")
    refuse_foreign(tmp_path / "new.html", "--out")
    with pytest.raises(UsageError, match=r"--out would replace .*r\.yaml, which showtell has not written; choose"):
        refuse_foreign(recipe, "--out")


def test_what_is_put_into_a_template_is_text():
    page = templates().from_string("{{ text }}")
    assert page.render(text="<b>a & b</b>") == "&lt;b&gt;a &amp; b&lt;/b&gt;"
    with pytest.raises(jinja2.UndefinedError):
        page.render(words="")  # a misspelt name is an error, not an empty text


def test_a_picture_is_held_by_its_address():
    content = bytes(range(256))
    head, _, text = data_url(content, "png").partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(text, validate=True) == content
