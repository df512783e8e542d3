"""Captions: true, of the language, different from each other, and their words name the right boxes."""

from __future__ import annotations

import pytest

from showtell.scenes import Scene, SceneCaption
from showtell.scenes.dataset import sample_image
from showtell.scenes.lexicon import COUNT_WORDS, SHAPE_WORDS
from showtell.scenes.truth import judge

Drawn = list[tuple[Scene, tuple[SceneCaption, ...]]]
NOUNS = {form: shape for shape, names in SHAPE_WORDS.items() for forms in names for form in forms}


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return [sample_image(7, split, k) for split in ("train", "test_compositional") for k in range(200)]


def test_captions_are_true_different_and_of_five_to_twenty_words(drawn: Drawn) -> None:
    for scene, captions in drawn:
        assert len({caption.text for caption in captions}) == 5
        for caption in captions:
            assert judge(caption.text, scene).whole, caption.text
            assert 5 <= len(caption.text.split()) <= 20


def test_words_name_the_right_boxes(drawn: Drawn) -> None:
    for scene, captions in drawn:
        for caption in captions:
            words = caption.text.split()
            covered = [index for span in caption.groundings for index in range(span.first, span.end)]
            assert len(covered) == len({*covered}) and {i for i, word in enumerate(words) if word in NOUNS} <= {
                *covered
            }
            for span in caption.groundings:
                named = [NOUNS[word] for word in words[span.first : span.end] if word in NOUNS]
                shapes = {scene.items[index].shape for index in span.boxes}
                if named:
                    assert {*named} == shapes
                else:  # "three shapes"
                    assert span.boxes == tuple(range(len(scene.items)))
                count = next((n for n, word in COUNT_WORDS.items() if word == words[span.first]), None)
                if count is None:
                    count = 2 if words[span.first : span.first + 2] == ["a", "pair"] else 1
                assert len(span.boxes) == count
