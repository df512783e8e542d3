"""What all pages share: templates that escape, a policy that lets nothing be loaded, and pictures within pages."""

import base64
import hashlib

import jinja2
import pytest

from showtell.reports.base import content_policy, templates


def test_the_policy_allows_the_page_its_own_style_and_script_and_nothing_else():
    texts = ("b {}", "let a;")
    style, script = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    assert content_policy(*texts).split("; ") == [
        "default-src 'none'", "img-src data:", f"style-src 'sha256-{style}'", f"script-src 'sha256-{script}'",
        "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    assert "script-src" not in content_policy("b {}")


def test_what_is_put_into_a_template_is_text():
    page = templates().from_string("{{ text }}")
    assert page.render(text="<b>a & b</b>") == "&lt;b&gt;a &amp; b&lt;/b&gt;"
    with pytest.raises(jinja2.UndefinedError):
        page.render(words="")  # a misspelt name is an error, not an empty text
