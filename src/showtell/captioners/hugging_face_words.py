"""Tokens of a language model as words, and texts as its tokens."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from showtell.captions import Token, Word


def read_tokens(
    tokenizer: Any, tokens: Sequence[int], logprobs: Sequence[float]
) -> tuple[str, tuple[Word, ...], tuple[Token, ...]]:
    """The text of tokens, its words with the sums of the log-probabilities of their tokens, and the tokens."""
    text: str = tokenizer.decode(list(tokens), skip_special_tokens=True).strip()
    words = text.split() or ([""] if tokens else [])  # special tokens alone have no text, but a probability
    sums = [0.0] * len(words)
    for index, logprob in zip(word_indices(tokenizer, tokens, text), logprobs, strict=True):
        sums[index] += logprob
    pieces = (Token(token, tokenizer.decode([token]), logprob) for token, logprob in zip(tokens, logprobs, strict=True))
    return text, tuple(map(Word, words, sums)), tuple(pieces)


def word_indices(tokenizer: Any, tokens: Sequence[int], text: str) -> list[int]:
    """For each token the index of the word of the text that it is part of; space belongs to the word after it.
    A token's text depends on those before it, so they are decoded one more at a time."""
    last = max(0, len(text.split()) - 1)
    indices, previous = [], 0
    for count in range(1, len(tokens) + 1):
        so_far = tokenizer.decode(list(tokens[:count]), skip_special_tokens=True).lstrip()
        begun = os.path.commonprefix([so_far, text])  # noqa: RUF071 (no paths)
        is_between = begun[-1:].isspace() and begun != text
        previous = min(last, max(previous, len(begun.split()) - 1 + is_between))
        indices.append(previous)
    return indices


def encode(tokenizer: Any, text: str, *, follows_word: bool) -> list[int]:
    """The tokens of a text as a caption has them, without special ones; behind a word it begins with a space."""
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    ids: list[int] = tokenizer(text.strip(), add_special_tokens=False).input_ids
    if follows_word and ids and not str(tokenizer.convert_ids_to_tokens(ids[0])).startswith("▁"):
        ids = tokenizer(f" {text.strip()}", add_special_tokens=False).input_ids
    return [token for token in ids if token not in special]


def bad_sequences(tokenizer: Any, texts: Sequence[str], *, no_unknown: bool) -> list[list[int]]:
    """The token sequences of forbidden texts: as given, lower-case and capitalised, with and without a space."""
    forms = [form for text in texts for form in (text, text.lower(), text.capitalize())]
    sequences = {tuple(encode(tokenizer, form, follows_word=behind)) for form in forms for behind in (False, True)}
    if no_unknown and tokenizer.unk_token_id is not None:
        sequences.add((tokenizer.unk_token_id,))
    return sorted(list(sequence) for sequence in sequences if sequence)
