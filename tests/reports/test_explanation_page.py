"""What all pages share; the page of explanations: what it says, and in a real Chromium what it draws and answers."""

import base64
import hashlib
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from showtell.captions import ExplainedCaption, ExplainedWord, Explanation, ModelExplanation
from showtell.explanations.geometry import attention_map
from showtell.explanations.verdict import has_collapsed
from showtell.images.boxes import scale_boxes
from showtell.reports.base import content_policy, templates
from showtell.reports.explanation_page import fragment, page, write_page
from showtell.reports.explanation_view import MAX_DROP, describe_location
from tests.chromium import Chromium

WIDTH, HEIGHT = 320, 240  # of the photo in the page, a quarter of the photo in full
SIZE = (4 * WIDTH, 4 * HEIGHT)
MAX_SHADE = 0.88  # of the script
HOSTILE = "</script><script>alert(1)</script><b>&"


def grid(rows: int, columns: int, window: tuple[float, float, float, float] = (0, 0, *SIZE)) -> Tensor:
    left, top, right, bottom = window
    x = torch.linspace(left, right, columns + 1).tolist()
    y = torch.linspace(top, bottom, rows + 1).tolist()
    return torch.tensor([[x[c], y[r], x[c + 1], y[r + 1]] for r in range(rows) for c in range(columns)])


def hot(regions: int, *peaks: int) -> Tensor:
    """All attention of word t on region peaks[t]."""
    return torch.eye(regions)[list(peaks)]


def say(text: str, attention: Tensor | None, **of_words: Any) -> ExplainedCaption:
    """A finished caption; of_words gives a field of ExplainedWord for every word, the end included."""
    words = [*text.split(), ""]
    others = (("dog", 0.2), ("", 0.05))
    made = tuple(
        ExplainedWord(word, 0.5, others, **{name: values[index] for name, values in of_words.items()})
        for index, word in enumerate(words)
    )
    return ExplainedCaption(text, made, -3.0, True, 0.5, attention=attention)


def explain(image: str, *by: ModelExplanation, **others: Any) -> Explanation:
    return Explanation(image, SIZE, Image.new("RGB", (WIDTH, HEIGHT), (200, 100, 50)), by, **others)


def soft(text: str = "a dog", name: str = "soft", **scores: float) -> ModelExplanation:
    """Over a grid of 3 x 4, the first word at the upper left, each other one cell further."""
    cells = range(len(text.split()) + 1)
    return ModelExplanation(name, (say(text, hot(12, *cells)),), grid(3, 4), (3, 4), scores=scores)


def regions() -> ModelExplanation:
    boxes = torch.tensor([[0.0, 0, 640, 480], [640, 480, 1280, 960], [320, 240, 960, 720]])
    weights = torch.tensor([[0.6, 0.3, 0.1], [0.0, 1, 0], [0, 0, 1]])
    return ModelExplanation("updown", (say("two dogs", weights),), boxes, None, ("dog", "", "cat"))


# --- what all pages share ---


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


# --- what it says ---


def test_where_a_word_looked_in_words():
    def locations(weights: Tensor, rows: int, columns: int) -> list[str]:
        model = ModelExplanation("m", (), grid(rows, columns), (rows, columns))
        return [describe_location(row, model, SIZE) for row in weights]

    # a cell of a 4 x 4 grid reaches over ninths of the photo: it has all of the weight nevertheless
    assert locations(hot(9, 5, 0), 3, 3) == [
        "the right (peak 100%, even 11%, at row 2, column 3)",
        "the upper left (peak 100%, even 11%, at row 1, column 1)",
    ]
    assert locations(hot(16, 1), 4, 4) == ["the top (peak 100%, even 6.2%, at row 1, column 2)"]
    corner = "the lower right (peak 60%, even 25%, at row 2, column 2)"
    assert locations(torch.tensor([[0.1, 0.2, 0.1, 0.6]]), 2, 2) == [corner]
    even = "no location in particular (nearly even: 11%, even 11%, at row 1, column 1)"
    assert locations(torch.full((1, 9), 1 / 9), 3, 3) == [even]
    of_region = describe_location(torch.tensor([0.7, 0.2, 0.1]), regions(), SIZE)
    assert of_region == "the upper left (peak 70%, even 33%, at dog)"


def test_attention_that_always_peaks_at_one_region_has_collapsed():
    same, other = hot(12, 4, 4, 4), hot(12, 4, 4, 5)
    even = torch.full((3, 12), 1 / 12)
    assert [has_collapsed(say("a dog", weights)) for weights in (same, other, even)] == [True, False, False]
    assert not has_collapsed(say("dog", same[:2]))  # two words may well look at one thing
    assert not has_collapsed(say("a dog", None))
    hard = [ModelExplanation("hard", (say("a dog", one),), grid(3, 4), (3, 4)) for one in (other, same, same)]
    content = page([explain(f"{number}.jpg", one) for number, one in enumerate(hard)])
    assert "hard: in 2 of 3 photos every word looks most at one and the same region: attention has" in content
    assert content.count("Every word looks most at the same region, so the maps say nothing about single words") == 2
    assert "penalty" not in content  # it was measured to flatten attention


def test_a_screen_reader_is_told_the_word_its_probability_and_where_it_looks():
    content = page([explain("x.jpg", soft("a dog"))])
    labels = re.findall(r'<button type="button" class="(?:|end)" aria-pressed="false" aria-label="([^"]*)"', content)
    assert labels[0] == (
        "a, probability 50 percent; looks at the upper left (peak 100%, even 8.3%, at row 1, column 1); "
        "next most likely dog, 20 percent"
    )
    assert labels[2].startswith("end of the caption, probability 50 percent; ")


def test_a_word_that_names_what_is_not_there_and_a_model_without_attention_are_marked():
    caption = say("a puppy", None, hallucinated=(None, "dog", None))
    by = ModelExplanation("nic", (caption,), grid(1, 1), (1, 1))
    body = page([explain("x.jpg", soft(), by)]).partition("<main>")[2].partition("</main>")[0]
    first, second = body.split('<section class="model"')[1:]
    assert "hallucinated: dog" not in first and '<span class="bad">hallucinated: dog</span>' in second
    assert "This model has no attention over the photo." in second and "<canvas" not in second


def test_the_overview_says_which_captions_are_doubted():
    doubted = replace(soft("a cat"), captions=(replace(say("a cat", None), doubt="probably wrong"),))
    overview = page([explain("a.jpg", soft()), explain("b.jpg", doubted)]).partition("<tbody")
    assert "All photos (1 of 2 with a doubtful caption)" in overview[0]
    assert '<td class="caption">a cat <span class="bad">probably wrong</span></td>' in overview[2]
    assert '<td class="caption">a dog</td>' in overview[2]


def test_the_page_is_written_whole_and_needs_nothing_else(tmp_path):
    file = tmp_path / "new" / "report.html"
    write_page(file, [explain("x.jpg", soft(), regions())])
    content = file.read_text(encoding="utf-8")
    assert not re.search(r'(src|href)="(?!data:|#)', content)
    assert content.count("data:image/") == 1  # the photo is there once, whatever the number of captions
    assert "default-src 'none'; img-src data:; style-src 'sha256-" in content


# --- in a browser ---


@pytest.fixture
def show(browser: Chromium, tmp_path: Path) -> Any:
    """Opens explanations in the browser; at the end nothing may have been asked for or complained of."""
    browser.call("Emulation.setDeviceMetricsOverride", width=1000, height=900, deviceScaleFactor=1, mobile=False)
    file = tmp_path / "report.html"

    def opened(*explanations: Explanation) -> Chromium:
        write_page(file, explanations)
        browser.open(file)
        browser.wait_for("document.documentElement.dataset.ready")
        return browser

    yield opened
    assert {address for address in browser.requests if not address.startswith("data:")} <= {file.resolve().as_uri()}
    assert browser.complaints == []


def pixels(browser: Chromium, selector: str = "canvas.attention") -> np.ndarray:
    """(height, width, 4) of a canvas, colours and opacity from 0 to 255."""
    content = browser.ask(f"document.querySelector({json.dumps(selector)}).toDataURL('image/png')")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content.partition(",")[2]))).convert("RGBA"))


def brightness(picture: np.ndarray) -> np.ndarray:
    """What the shade leaves of the photo, 0 where it is darkest and 1 where there is none."""
    return 1 - picture[..., 3] / 255 / MAX_SHADE


def word(number: int) -> str:
    return f".words button:nth-child({number + 1})"


def selected(browser: Chromium) -> list[int]:
    words = "[...document.querySelectorAll('.words button')]"
    return browser.ask(f"{words}.flatMap((one, i) => one.ariaPressed == 'true' ? [i] : [])")


def test_the_smooth_map_is_that_of_geometry(show):
    window = (160, 0, 1120, 960)
    weights = torch.rand(3, 20, generator=torch.Generator().manual_seed(0)).softmax(-1) ** 4
    by = ModelExplanation("m", (say("a dog", weights / weights.sum(-1, keepdim=True)),), grid(4, 5, window), (4, 5))
    browser = show(explain("x.jpg", by))
    browser.click(word(0))
    picture = brightness(pixels(browser))
    size = picture.shape[1], picture.shape[0]
    expected = attention_map(weights[0], scale_boxes(by.boxes, SIZE, size), size, grid=(4, 5), style="smooth")
    expected /= expected.max()
    # 160 samples a side in bytes, stretched over 640 pixels: not compared beside the sharp edge of what was cropped
    # away, and at the outline of the cell of the peak
    left, top, right, bottom = scale_boxes(by.boxes, SIZE, size)[weights[0].argmax()].round().int().tolist()
    is_outline = np.zeros(picture.shape, bool)
    is_outline[max(0, top - 5) : bottom + 5, max(0, left - 5) : right + 5] = True
    is_outline[top + 5 : bottom - 5, left + 5 : right - 5] = False
    columns = np.arange(size[0])[:, None] * SIZE[0] / size[0]
    is_edge = np.abs(columns - [window[0], window[2]]).min(1) < 20
    is_map = ~is_outline & ~is_edge
    differences = np.abs(picture - expected)[is_map]
    assert (differences >= 0.03).mean() < 0.02 and differences.mean() < 0.01
    assert browser.ask("document.querySelector('.legend').textContent").startswith("peak ")


def test_the_keyboard_moves_from_word_to_word_and_the_map_with_it(show):
    browser = show(explain("x.jpg", soft("a dog runs"), soft("a cat", "other")))
    browser.ask("document.querySelector('.words button').focus()")
    heatmaps = []
    for key, expected in (("ArrowRight", 1), ("ArrowRight", 2), ("End", 3), ("ArrowLeft", 2), ("Home", 0)):
        browser.press(key)
        assert selected(browser) == [expected]
        heatmaps.append(pixels(browser).tobytes())
    assert len(set(heatmaps)) == 4  # four words, four maps
    browser.press("Escape")
    assert selected(browser) == []
    browser.press("Tab")  # the words of a caption are one stop; then the button that enlarges the next photo
    browser.press("Tab")
    browser.press("Enter")
    assert selected(browser) == [4]


def test_occlusion_has_one_scale_for_all_words_and_no_colour_where_little_changes(show):
    drops = torch.tensor([[MAX_DROP, -MAX_DROP, 0, 0], [MAX_DROP / 4, 0, 0, 0], [0.04, 0, 0, 0]])
    caption = say("a dog", hot(4, 3, 3, 3), saliency=drops)
    for attention in (caption.attention, None):
        by = ModelExplanation("m", (replace(caption, attention=attention),), grid(2, 2), (2, 2))
        browser = show(explain("x.jpg", by))
        browser.click("button.smooth")
        red = []
        for index in range(3):
            browser.click(word(index))
            picture = pixels(browser, "canvas.saliency").astype(int)
            red.append(picture[100, 100, 0])
            if index == 0:  # orange supports the word, blue speaks against it
                assert picture[100, 100, 0] > picture[100, 100, 2] + 80
                assert picture[100, 500, 2] > picture[100, 500, 0] + 80
        assert red[0] > red[1] + 60 and red[1] > 40 and red[2] == 0


def test_the_overview_filters_and_sorts_the_photos(show):
    first, second = soft("a cat", truth=0.1, cider=2.0), soft("a cow", truth=0.5, cider=0.5)
    third = soft("a dog runs", truth=0.9, cider=1.0)
    browser = show(explain("b.jpg", first), explain("dog.jpg", second), explain("a.jpg", third))
    shown = "[...document.querySelectorAll('article')].filter(one => !one.hidden)"
    names = f"{shown}.map(one => one.querySelector('h2').title)"
    assert browser.ask(names) == ["b.jpg", "dog.jpg", "a.jpg"]
    browser.click("th:nth-child(5) button")
    assert browser.ask(names) == ["dog.jpg", "a.jpg", "b.jpg"]
    browser.click(".filter")
    browser.type("DOG runs")
    assert browser.ask(names) == ["a.jpg"]
    assert browser.ask("document.querySelector('.bar [role=status]').textContent") == "1 of 3 photos"


def test_models_stand_beside_each_other_and_on_a_phone_below(show):
    name = "a/very/long/name/" + 40 * "x" + ".jpg"
    tops = "[...document.querySelectorAll('.explained')].map(one => one.getBoundingClientRect().top)"
    browser = show(explain(name, soft(cider=1.0), regions()))
    first, second = browser.ask(tops)
    assert first == second
    browser.call("Emulation.setDeviceMetricsOverride", width=360, height=700, deviceScaleFactor=1, mobile=True)
    first, second = browser.ask(tops)
    assert first < second
    assert browser.ask("document.documentElement.scrollWidth") <= 360


def test_regions_are_lit_by_their_weight_and_named(show):
    browser = show(explain("x.jpg", regions()))
    browser.click(word(0))
    picture = pixels(browser)
    height, width = picture.shape[:2]

    def at(x: float, y: float) -> float:
        return float(brightness(picture)[int(y * height), int(x * width)])

    assert at(0.1, 0.4) == pytest.approx(1, abs=0.01)  # the first region alone, of the highest weight
    assert at(0.9, 0.9) == pytest.approx(0.5, abs=0.01)  # the second alone: 0.3 of 0.6
    assert at(0.7, 0.4) == pytest.approx(1 / 6, abs=0.01)  # the third alone
    assert at(0.4, 0.4) == pytest.approx(1, abs=0.01)  # the first and the third: the higher of them
    assert at(0.9, 0.1) == pytest.approx(0, abs=0.01)
    details = browser.ask("document.querySelector('.details').textContent")
    assert "Highest weights: dog 60%, region 2 30%, cat 10%." in details


def test_html_in_captions_and_names_is_text(show):
    by = ModelExplanation(HOSTILE, (say(f"a {HOSTILE.replace(' ', '')} dog", hot(12, 0, 1, 2, 3)),), grid(3, 4), (3, 4))
    browser = show(explain(HOSTILE, by, references=(HOSTILE,)), explain("other.jpg", by))
    browser.click(word(1))
    assert browser.ask("document.querySelector('.words button:nth-child(2)').textContent") == HOSTILE
    assert browser.ask("document.querySelector('.details li span').textContent") == HOSTILE
    assert browser.ask("document.querySelector('h2').title") == HOSTILE
    assert browser.ask("document.querySelector('article > details li').textContent") == HOSTILE
    assert browser.ask("document.querySelectorAll('b b, article > b, h2 b, button b').length") == 0


def test_fragments_of_one_document_do_not_meet(browser, tmp_path):
    browser.complaints.clear()
    file = tmp_path / "notebook.html"
    both = fragment(explain("x.jpg", soft("a dog"))) + fragment(explain(f'"{HOSTILE}', soft("a cat")))
    file.write_text(f"<!doctype html><title>notebook</title>{both}", encoding="utf-8")
    browser.open(file)
    inside = "[...document.querySelectorAll('iframe')].map(one => one.contentDocument)"
    browser.wait_for(f"{inside}.every(one => one.documentElement.dataset.ready)")
    browser.ask(f"{inside}[1].querySelector('.words button').click()")
    pressed = f"{inside}.map(one => one.querySelectorAll('[aria-pressed=true]').length)"
    assert browser.ask(pressed) == [0, 1]
    assert browser.ask(f"{inside}.map(one => one.querySelector('h2').title)") == ["x.jpg", f'"{HOSTILE}']
    frames = "[...document.querySelectorAll('iframe')]"
    browser.wait_for(f"{frames}.every((one, i) => one.offsetHeight >= {inside}[i].body.scrollHeight)")
    assert browser.complaints == []
