"""Templates of every package with a page, and pictures within pages."""

from __future__ import annotations

import base64

import pytest

from showtell.pages import data_url, templates


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("showtell.laboratory", "page.html.j2"),
        ("showtell.quickstart", "report.html.j2"),
        ("showtell.explanations", "run_page.html.j2"),
    ],
)
def test_templates_lie_in_their_packages(package, name):
    assert templates(package).get_template(name).name == name


def test_what_is_put_into_a_template_is_text():
    environment = templates("showtell.laboratory")
    assert environment.from_string("{{ said }}").render(said="<b>a & b</b>") == "&lt;b&gt;a &amp; b&lt;/b&gt;"


def test_a_picture_is_held_by_its_address():
    content = bytes(range(256))
    head, _, text = data_url(content, "png").partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(text, validate=True) == content
