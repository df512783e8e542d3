"""Keywords of captions, and what finds a caption by words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from showtell.text.objects import keywords, matches

KEYWORDS = {
    "Two puppies play on a sofa": ["puppy", "dog", "sofa"],
    "a tennis player's racket, and geese": ["tennis player", "person", "racket", "goose", "bird"],
    "three men with glasses on skis in the woods": ["man", "person", "glasses", "skis", "woods"],
    "a baby elephant beside a toilet seat and a hot dog": ["elephant", "toilet seat", "hot dog"],
    "a close up of a group of people in the background": ["person"],
    "a man stands in front of an orange and black wall and watches": ["man", "person", "wall"],
    "the boy swings over the top of it with his hands and feet in the air": ["boy", "person"],
    "oranges, knives and wine glasses": ["orange", "knife", "wine glass"],
    "": [],
}
COLOURS = {"orange"}  # in the singular no thing
FINDS = {  # a query: captions that it finds, and captions that it does not
    "dog": (["two puppies", "a Dog."], ["a cat"]),
    "puppy": (["two puppies"], ["a dog"]),
    "people": (["a man", "two women on a bench"], ["a bench"]),
    "man": (["a man", "two men"], ["a woman", "people"]),
    "couches": (["a sofa", "a couch"], ["a chair"]),
    "mobile phone": (["she holds her cell phone"], ["a mobile home"]),
    "dogs on bea": (["a pug on the beach"], ["a pug on the grass", "a beach"]),
    "zauber": (["ein Zauberer"], ["ein Hund"]),
}


@pytest.mark.parametrize("caption", KEYWORDS)
def test_keywords_are_the_things_that_a_caption_names(caption: str) -> None:
    assert keywords(caption) == KEYWORDS[caption]


@pytest.mark.parametrize("query", FINDS)
def test_a_thing_is_found_by_its_plural_its_synonyms_and_its_kind(query: str) -> None:
    found, others = FINDS[query]
    assert all(matches(query, caption) for caption in found) and not any(matches(query, caption) for caption in others)


@given(caption=st.lists(st.sampled_from(" ".join(KEYWORDS).split()), max_size=8).map(" ".join))
def test_every_keyword_is_a_singular_that_finds_its_caption(caption: str) -> None:
    for word in keywords(caption):
        assert keywords(word)[:1] == ([] if word in COLOURS else [word]) and word == word.lower()
        assert matches(word, caption)
