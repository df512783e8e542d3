"""Tokens and words of one text: each token is part of a word, whatever its tokenizer does with spaces and bytes."""

from typing import Any

import pytest
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from showtell.captioners.hugging_face_words import bad_sequences, encode, read_tokens, word_indices
from tests.captioners.tiny_transformers import byte_pieces, word_pieces

END = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}


def bytes_of_all_kinds() -> Any:
    """Every byte is a token, so that a letter may be several."""
    vocabulary = {piece: number for number, piece in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def sentence_pieces() -> Any:
    """As T5 and Llama have them."""
    pieces = ["<unk>", "▁", "▁a", "▁red", "▁do", "g", "▁cat", "s", ".", "▁b", "lu", "e"]
    tokenizer = Tokenizer(models.BPE({piece: number for number, piece in enumerate(pieces)}, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def parts(tokenizer: Any, ids: list[int]) -> tuple[str, list[int]]:
    text = tokenizer.decode(ids, skip_special_tokens=True).strip()
    return text, word_indices(tokenizer, ids, text)


def test_each_token_is_part_of_a_word() -> None:
    for tokenizer, pieces, text, indices in (
        (word_pieces(), "red circle ##s ##s above [SEP] x ##y", "red circless above xy", [0, 1, 1, 1, 2, 2, 3, 3]),
        (
            byte_pieces(("<s>", "</s>", "<unk>"), roles=END),
            "Ġred Ġdo g Ċ Ġ Ġcat </s> s Ċ",
            "red dog\n  cats",
            [0, 1, 1, 2, 2, 2, 2, 2, 2],
        ),
        (sentence_pieces(), "▁red ▁do g ▁ ▁b lu e .", "red dog  blue.", [0, 1, 1, 2, 2, 2, 2, 2]),
    ):
        ids = tokenizer.convert_tokens_to_ids(pieces.split())
        decoded, own = parts(tokenizer, ids)
        assert (decoded.split(), own) == (text.split(), indices)


@pytest.mark.parametrize("text", ["ein Café über 猫 und 🐕 da", "  two  spaces\n a\tb "])
def test_letters_of_several_tokens(text: str) -> None:
    tokenizer = bytes_of_all_kinds()
    ids = tokenizer(text).input_ids
    decoded, indices = parts(tokenizer, ids)
    assert decoded == text.strip()
    assert len(indices) == len(ids) == len(text.encode())
    spaces = len(ids) - sum(len(word.encode()) for word in decoded.split())
    for number, word in enumerate(decoded.split()):
        assert len(word.encode()) <= indices.count(number) <= len(word.encode()) + spaces


def test_texts_that_are_cleaned_up() -> None:
    """A space before a full stop is taken back when the stop is there: the text so far has another end then."""
    tokenizer = word_pieces()
    tokenizer.add_tokens([".", "'"])
    tokenizer.clean_up_tokenization_spaces = True
    ids = tokenizer.convert_tokens_to_ids(["the", "cat", "'", "s", "dog", "."])
    assert parts(tokenizer, ids) == ("the cat's dog.", [0, 1, 1, 1, 2, 2])


def test_nothing_but_special_tokens() -> None:
    tokenizer = word_pieces()
    text, words, _ = read_tokens(tokenizer, tokenizer.convert_tokens_to_ids(["[SEP]", "[CLS]"]), [-1.0, -2.0])
    assert (text, [(word.word, word.logprob) for word in words]) == ("", [("", -3.0)])
    assert read_tokens(tokenizer, [], []) == ("", (), ())


def test_texts_as_tokens() -> None:
    tokenizer = byte_pieces(("<s>", "</s>", "<unk>"), begin=True, end=True, roles=END)

    def pieces(ids: list[int]) -> list[str]:
        return [str(piece) for piece in tokenizer.convert_ids_to_tokens(ids)]

    assert pieces(encode(tokenizer, " red dog ", follows_word=False)) == ["r", "e", "d", "Ġdog"]
    assert pieces(encode(tokenizer, "red dog", follows_word=True)) == ["Ġred", "Ġdog"]
    assert pieces(encode(tokenizer, "red </s> dog", follows_word=True)) == ["Ġred", "Ġ", "Ġdog"]
    sentence = sentence_pieces()
    assert encode(sentence, "red", follows_word=True) == encode(sentence, "red", follows_word=False)
    bad = [pieces(list(ids)) for ids in bad_sequences(tokenizer, ["dog"], no_unknown=True)]
    assert sorted(bad) == sorted([["d", "o", "g"], ["Ġdog"], ["D", "o", "g"], ["Ġ", "D", "o", "g"], ["<unk>"]])
