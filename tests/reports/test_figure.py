"""The figure of an explanation shows every word, lit where the word looked."""

import numpy as np
import pytest
import torch
from PIL import Image

from showtell.captions import ExplainedCaption, ExplainedWord, Explanation, ModelExplanation, WordValues
from showtell.errors import UsageError
from showtell.reports.figure import DARK, draw

QUARTERS = torch.tensor([[0.0, 0, 40, 20], [40, 0, 80, 20], [0, 20, 40, 40], [40, 20, 80, 40]])


def word(text: str, **more: object) -> ExplainedWord:
    return ExplainedWord(text, 0.5, (("cat", 0.25),), **more)


def caption(
    *words: ExplainedWord, attention: torch.Tensor | None, title: str = "", word_values: tuple[WordValues, ...] = ()
) -> ExplainedCaption:
    text = " ".join(one.word for one in words if one.word)
    return ExplainedCaption(text, words, -1.0, True, 0.6, None, title, attention, word_values)


def explanation(*by: ModelExplanation) -> Explanation:
    return Explanation("photo.jpg", (80, 40), Image.new("RGB", (80, 40), "white"), by)


def brightness(axes) -> np.ndarray:
    return np.asarray(axes.images[0].get_array())[..., 0]


def test_each_word_has_a_panel_lit_where_it_looked():
    attention = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 1.0], [0.25, 0.25, 0.25, 0.25]])
    explained = caption(word("a"), word("dog"), word(""), attention=attention)
    figure = draw(explanation(ModelExplanation("sat", (explained,), QUARTERS, (2, 2))))
    photo, first, second, end, bar = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["", "a 50%", "dog 50%", "(end) 50%", ""]
    assert brightness(photo).min() == 255
    assert brightness(first)[0, 0] == pytest.approx(1, abs=1e-3)
    assert brightness(second)[-1, -1] == pytest.approx(1, abs=1e-3)
    assert brightness(first)[-1, -1] == brightness(first).min()
    assert DARK <= brightness(first).min() < 0.6
    assert brightness(end).min() > 0.9  # it looked everywhere
    notes = ["peak 100%, even 25%", "peak 100%, even 25%", "nearly even: 25%, even 25%"]
    assert [axes.texts[0].get_text() for axes in (first, second, end)] == notes
    assert [text.get_text() for text in figure.texts] == ["a dog"]
    assert [text.get_text() for text in bar.texts] == ["attention 0", "the word's highest weight"]


def test_chosen_words_on_one_scale_with_nothing_cut():
    attention = torch.tensor([[0.8, 0.2, 0, 0], [0.02, 0.02, 0.5, 0.06], [0.25] * 4])  # a sentinel has 0.4
    saliency = [torch.tensor([0.5, -0.1, 0.0, 0.0]), torch.tensor([-2.0, 0.0, 0.0, 2.0]), torch.zeros(4)]
    words = [word(text, saliency=values) for text, values in zip(["a", "dog", ""], saliency, strict=True)]
    gates = (WordValues("gate", torch.tensor([[0.9], [0.1], [0.4]])),)
    by = ModelExplanation(
        "sat", (caption(*words, attention=attention, word_values=gates),), QUARTERS, (2, 2), saliency="pixels"
    )
    figure = explanation(by).figure(words=["dog", ""], scale="absolute", size=2.0)
    _, dog, _, gate, _, raised, _, *bars = figure.axes
    assert gate.lines[0].get_ydata() == pytest.approx([0.1, 0.4])
    colours = np.asarray(dog.images[0].get_array())  # white under a map whose highest weight is that of the figure
    assert colours[-1, 0] == pytest.approx(1, abs=2e-2)
    blue, orange = (np.asarray(raised.images[0].get_array())[corner] for corner in ((0, 0), (-1, -1)))
    assert blue[2] > blue[0] + 0.3 and orange[0] > orange[2] + 0.2
    assert [text.get_text() for text in figure.texts] == ["sat: a dog", "sat, pixels: a dog"]
    ends = [text.get_text() for bar in bars for text in bar.texts]
    assert ends == ["attention 0", "50%", "-2", "+2 of the log-probability"]
    figure.canvas.draw()
    inside = figure.bbox.padded(1)
    texts = [text for axes in figure.axes for text in [axes.title, *axes.texts, *axes.get_xticklabels()]]
    for text in [*texts, *figure.texts]:
        edges = text.get_window_extent()
        assert not text.get_text() or (inside.containsx(edges.x0) and inside.containsx(edges.x1) and edges.y0 >= -1)
    with pytest.raises(UsageError, match="has one of the words"):
        explanation(by).figure(words=["cat"])


def test_captioners_and_stages_are_rows_with_their_names():
    even = torch.full((1, 4), 0.25)
    stages = tuple(caption(word("dog"), attention=even, title=f"stage {n} of 2") for n in (1, 2))
    nic = ModelExplanation("nic", (caption(word("cat"), attention=None),), QUARTERS, (2, 2))
    figure = draw(explanation(ModelExplanation("stack", stages, QUARTERS, (2, 2)), nic))
    headings = ["stack, stage 1 of 2: dog", "stack, stage 2 of 2: dog", "nic: cat"]
    assert [text.get_text() for text in figure.texts] == headings
    assert len(figure.axes) == 2 + 2 + 2 + 1
    bottoms = [axes.get_position().y0 for axes in figure.axes]
    assert bottoms[0] == bottoms[1] > bottoms[2] == bottoms[3] > bottoms[4] == bottoms[5] > bottoms[6] > 0


def test_regions_are_boxes_by_weight_and_the_heaviest_is_named():
    explained = caption(word("dog"), attention=torch.tensor([[0.1, 0.6, 0.3, 0.0]]))
    by = ModelExplanation("updown", (explained,), QUARTERS, labels=("sky", "dog", "", "cat"))
    _, panel, _ = draw(explanation(by)).axes
    shares = [brightness(panel)[row, column] for row, column in ((5, 5), (5, 45), (25, 5), (25, 45))]
    assert shares == pytest.approx([DARK + (1 - DARK) * share for share in (1 / 6, 1, 1 / 2, 0)])
    (outline,) = panel.patches
    assert outline.get_bbox().bounds == (40, 0, 40, 20)
    assert [text.get_text() for text in panel.texts] == ["dog", "peak 60%, even 25%"]
