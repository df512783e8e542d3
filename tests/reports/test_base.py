"""What all pages share: templates that escape, and pictures within pages."""

from __future__ import annotations

import base64

import pytest

from showtell.reports.base import data_url, templates


@pytest.mark.parametrize(
    "name", ["compare_searches_page.html.j2", "quickstart_page.html.j2", "run_page.html.j2", "explanation_page.html.j2"]
)
def test_the_templates_are_found(name):
    assert templates().get_template(name).name == name


def test_what_is_put_into_a_template_is_text():
    environment = templates()
    assert environment.from_string("{{ said }}").render(said="<b>a & b</b>") == "&lt;b&gt;a &amp; b&lt;/b&gt;"


def test_a_picture_is_held_by_its_address():
    content = bytes(range(256))
    head, _, text = data_url(content, "png").partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(text, validate=True) == content
