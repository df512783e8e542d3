"""`showtell compare-searches`: all searches on one photo, side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from showtell.captioners import Captioner, EncoderDecoderCaptioner
from showtell.compare_searches import PRESETS
from showtell.scores.diagnostics import diversity
from showtell.text.vocabulary import SPECIAL, Vocabulary
from tests.cli.test_caption import run


@pytest.fixture
def photo(tiny_scenes: Path) -> Path:
    return min((tiny_scenes / "images").iterdir())


def test_each_row_is_what_caption_says_with_those_settings(capsys, tiny_checkpoint, photo):
    status, out, err = run(capsys, "compare-searches", tiny_checkpoint, photo, "--json", "--seed", 5, "--min-length", 3)
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert report["image"] == str(photo)
    assert [trial["name"] for trial in report["searches"]] == list(PRESETS)
    for trial in report["searches"]:
        options = [
            part for name, value in PRESETS[trial["name"]].items() for part in (f"--{name.replace('_', '-')}", value)
        ]
        out = run(capsys, "caption", tiny_checkpoint, photo, "--json", "--seed", 5, "--min-length", 3, *options)[1]
        expected = json.loads(out)[0]["captions"]
        assert [one["text"] for one in trial["captions"]] == [one["text"] for one in expected]
        assert [one["score"] for one in trial["captions"]] == pytest.approx([one["score"] for one in expected])
        assert trial["settings"]["max_length"] == 8
        assert trial["milliseconds"] > 0
        texts = [one["text"] for one in trial["captions"]]
        assert trial["words"] == pytest.approx(sum(len(text.split()) for text in texts) / len(texts))
        if len(texts) > 1:
            rates = diversity({"": texts})
            assert trial["diversity"] == {name: rates[name] for name in ("mbleu_4", "distinct_1", "distinct_2")}
        else:
            assert trial["diversity"] is None


def test_the_table_and_the_page_have_every_caption(capsys, tiny_checkpoint, photo, tmp_path):
    page = tmp_path / "page.html"
    options = ["--max-length", 4, "--force-word", "red circle"]
    searches = json.loads(run(capsys, "compare-searches", tiny_checkpoint, photo, *options, "--json")[1])["searches"]
    assert searches[-1]["name"] == "beam 5 with red circle"
    assert all("red circle" in caption["text"] for caption in searches[-1]["captions"])
    status, table, _ = run(capsys, "compare-searches", tiny_checkpoint, photo, *options)
    assert status == 0
    status, printed, _ = run(capsys, "compare-searches", tiny_checkpoint, photo, *options, "--out", page)
    assert (status, printed) == (0, f"{page}\n")
    html = page.read_text()
    assert f"{photo.name}, captioned by {tiny_checkpoint}" in html
    assert "data:image/jpeg;base64," in html
    for trial in searches:
        assert trial["name"] in table
        assert trial["name"] in html
        for caption in trial["captions"]:
            assert caption["text"] in table
            assert f"{caption['score']:.2f}" in table
            text = caption["text"].replace("<", "&lt;").replace(">", "&gt;")
            assert f'<td class="caption">{text}' in html


def test_words_are_no_markup_and_no_control_of_the_terminal(capsys, tiny_checkpoint, photo, tmp_path):
    captioner = Captioner.from_pretrained(tiny_checkpoint)
    odd = ["[/b]", "[red]x", "\u202e", "y" * 900]
    count = len(captioner.vocabulary.words) - len(SPECIAL)
    changed = Vocabulary([f"{odd[number % len(odd)]}{number}" for number in range(count)])
    EncoderDecoderCaptioner(
        encoder=captioner.encoder, decoder=captioner.decoder, vocabulary=changed, decoding=captioner.decoding
    ).save_pretrained(tmp_path / "odd")
    status, table, err = run(capsys, "compare-searches", tmp_path / "odd", photo, "--max-length", 3)
    assert (status, err) == (0, "")
    assert "[/b]" in table or "[red]x" in table
    assert "\u202e" not in table  # which would turn the direction of the line around


def test_wrong_use_is_a_sentence(capsys, tiny_checkpoint, photo, tmp_path):
    for arguments, sentence in (
        ([photo, "--force-word", "zebra"], '"zebra" must occur, but "zebra" is none of the'),
        (
            [photo, "--out", tmp_path / "page.pdf"],
            f'--out writes a page; give "{tmp_path / "page.pdf"}" the suffix .html',
        ),
        ([tmp_path / "none.jpg"], "There is no file"),
        ([photo, "--min-length", 9], "min_length=9 is above max_length=8"),
    ):
        status, out, err = run(capsys, "compare-searches", tiny_checkpoint, *arguments)
        assert (status, out) == (2, "")
        assert err.startswith(f"showtell: {sentence}")
    assert not list(tmp_path.iterdir())
