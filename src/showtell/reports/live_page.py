"""The live page of a server: photos are dropped, captioned, explained and corrected in the browser.

It is one file that asks its own server alone, made of the parts of the written pages of explanations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from showtell.captions import Explanation
from showtell.decoding import SEARCHES, DecodingConfig
from showtell.images.photo_files import IMAGE_SUFFIXES, SYSTEM_FOLDERS
from showtell.reports.base import content_policy, render_page, resource, templates
from showtell.reports.explanation_view import view_photo
from showtell.text.vocabulary import SPECIAL, Vocabulary

STYLES = ("explanation_card.css", "live_page.css")
SCRIPTS = (
    "explanation_card.js", "live_server.js", "live_session.js", "live_settings.js", "live_files.js", "live_page.js",
)  # fmt: skip
NOT_SET_HERE = ("prefix",)  # settings that the page makes itself
# The settings that most people want, in their words, and the values that are offered; the others are folded away.
FIRST: dict[str, tuple[str, str, dict[str, str]]] = {
    "max_length": ("Words at most", "The longest caption. A higher number allows more detail.", {}),
    "num_beams": (
        "How careful",
        "How many captions are weighed against each other on the way; more takes longer.",
        {"1": "1: quick", "3": "3: careful", "5": "5: very careful"},
    ),
}
KEYS = {
    "↓ ↑ or J K": "the next, the previous photo",
    "A": "accept the caption and go to the next unchecked photo",
    "E": "edit the caption",
    "Enter": "in the caption: save it and go to the next unchecked photo",
    "Escape": "leave the caption; show the bare photo",
    "S": "skip the photo",
    "U": "undo: the photo is unchecked again",
    "← →": "on a word: the next word and where the model looked",
    "/": "search",
    "?": "this list",
}


def live_page(
    captioners: Sequence[Mapping[str, Any]],
    *,
    corrections: str | None,
    has_photos: bool,
    max_body: int,
    trainable: Mapping[str, str],
) -> str:
    """The page, one file of HTML; without a folder of corrections captions are shown and not corrected."""
    return render_page(
        "live_page.html.j2",
        "Captions for your photos",
        styles=[resource(name) for name in STYLES],
        script=_script(),
        is_live=True,
        fields=list(_fields()),
        keys=KEYS,
        has_corrections=corrections is not None,
        has_photos=has_photos,
        served={
            "captioners": list(captioners),
            "folder": corrections,
            "trainable": dict(trainable),
            "maxBody": max_body,
            "suffixes": sorted(IMAGE_SUFFIXES),
            "systemFolders": sorted(SYSTEM_FOLDERS),
            "unknown": SPECIAL[Vocabulary.unknown],
        },
    )


def live_policy() -> str:
    """The Content-Security-Policy of the page as a header, which also forbids frames around it."""
    style = "\n".join(resource(name) for name in ("base.css", *STYLES))
    return f"{content_policy(style, _script(), is_live=True)}; frame-ancestors 'none'"


def explanation_card(explanation: Explanation) -> str:
    """The HTML of the card of one photo, which the live page asks for."""
    macro = templates().get_template("explanation_card.html.j2").module.photo  # type: ignore[attr-defined]
    return str(macro(view_photo(1, explanation, explanation.image), has_name=False))


def _script() -> str:
    return "\n".join(resource(name) for name in SCRIPTS)


def _fields() -> Iterator[dict[str, Any]]:
    """The decoding settings as fields of a form, made from their declaration."""
    for name, schema in DecodingConfig.model_json_schema()["properties"].items():
        if name in NOT_SET_HERE:
            continue
        # an optional setting is a choice between its type and null
        kind = next((choice for choice in schema.get("anyOf", ()) if choice["type"] != "null"), schema)
        searches = [search for search, entry in SEARCHES.items() if name in entry.settings]
        used_by = f" With search {', '.join(searches)}." if searches else ""
        label, about, offered = FIRST.get(name, (name.replace("_", " "), schema["description"] + used_by, {}))
        yield {
            "name": name,
            "label": label,
            "is_first": name in FIRST,
            "choices": offered or {choice: choice for choice in _choices(name, kind)},
            "is_number": kind["type"] in ("integer", "number"),
            "is_list": kind["type"] == "array",
            "step": 1 if kind["type"] == "integer" else "any",
            "min": kind.get("minimum", kind.get("exclusiveMinimum")),
            "max": kind.get("maximum"),
            "about": about.replace("`", ""),
        }


def _choices(name: str, kind: Mapping[str, Any]) -> list[str]:
    if name == "search":
        return list(SEARCHES)
    return ["true", "false"] if kind["type"] == "boolean" else kind.get("enum", [])
