from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from showtell.errors import CheckpointError, UsageError
from showtell.text.vocabulary import SPECIAL, Vocabulary

CAPTIONS = [["a", "dog", "runs"], ["a", "dog", "sits"], ["a", "cat", "sits"], ["the", "dog"]]


def test_words_are_ordered_by_count_and_then_by_alphabet():
    vocabulary = Vocabulary.build(CAPTIONS)
    assert vocabulary.words == (*SPECIAL, "a", "dog", "sits", "cat", "runs", "the")
    assert len(vocabulary) == 10
    with pytest.raises(UsageError, match='The vocabulary holds "a" twice'):
        Vocabulary(["a", "b", "a"])


def test_rare_words_and_words_beyond_the_limit_are_unknown():
    assert Vocabulary.build(CAPTIONS, min_count=2).words[4:] == ("a", "dog", "sits")
    assert Vocabulary.build(CAPTIONS, max_size=2).words[4:] == ("a", "dog")
    assert Vocabulary.build([["<end>", "a"]]).words[4:] == ("a",)  # no word that looks special
    few = Vocabulary.build(CAPTIONS, min_count=2)
    assert few.encode(["a", "cat", "sits"]) == [few.begin, 4, few.unknown, 6, few.end]
    assert few.encode(["a", "dog", "runs"], max_length=2) == [1, 4, 5, 2]  # cut, but with its end
    assert few.unknown_rate(CAPTIONS) == pytest.approx(3 / 11)
    assert few.unknown_rate([]) == 0


@given(st.lists(st.sampled_from(["a", "dog", "sits", "cat", "runs", "the"])))
def test_decoding_undoes_encoding(words):
    vocabulary = Vocabulary.build(CAPTIONS)
    assert vocabulary.decode([*vocabulary.encode(words), vocabulary.pad, 5]) == words


def test_the_fingerprint_changes_with_words_and_order_and_is_checked():
    one, other = Vocabulary(["a", "b"]), Vocabulary(["b", "a"])
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == Vocabulary(["a", "b"]).fingerprint
    content = one.to_json()
    assert Vocabulary.from_json(content, "config.json").words == one.words
    content["words"] = ["a", "c"]
    with pytest.raises(CheckpointError, match=r"The vocabulary in config.json has fingerprint .* words were changed"):
        Vocabulary.from_json(content, "config.json")
