"""Tokens of a language model as words, and texts as its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from showtell.captions import Token, Word


class TokenTexts:
    """The texts of the tokens of a tokenizer, alone and together; those of single tokens are kept."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special = set(tokenizer.all_special_ids)
        self._pieces: dict[int, tuple[str, ...]] = {}

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones and without space around it."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text.strip()

    def tokens_of(self, tokens: Sequence[int], logprobs: Sequence[float]) -> tuple[Token, ...]:
        """Each token with its own text."""
        texts = [self._piece(token)[0] for token in tokens]
        return tuple(Token(*triple) for triple in zip(tokens, texts, logprobs, strict=True))

    def words_of(self, tokens: Sequence[int], logprobs: Sequence[float]) -> tuple[str, tuple[Word, ...]]:
        """The text of tokens, and its words with the sums of the log-probabilities of their tokens."""
        text = self.decode(tokens)
        words = text.split() or ([""] if tokens else [])  # special tokens alone have no text, but a probability
        sums = [0.0] * len(words)
        for index, logprob in zip(self.word_indices(tokens, text), logprobs, strict=True):
            sums[index] += logprob
        return text, tuple(Word(*pair) for pair in zip(words, sums, strict=True))

    def word_indices(self, tokens: Sequence[int], text: str) -> list[int]:
        """For each token the index of the word of the text, between white space, that it is part of.

        A token belongs to the word that the text so far ends in; space belongs to the word after it.
        """
        words_before = [0]  # that begin within the first characters
        for index, character in enumerate(text):
            begins = not character.isspace() and (index == 0 or text[index - 1].isspace())
            words_before.append(words_before[-1] + begins)
        last = max(0, words_before[-1] - 1)
        indices, previous = [], 0
        for stop in self._stops(tokens, text):
            index = words_before[stop] - 1
            if 0 < stop < len(text) and text[stop - 1].isspace():
                index += 1
            previous = min(last, max(previous, index, 0))
            indices.append(previous)
        return indices

    def _stops(self, tokens: Sequence[int], text: str) -> list[int]:
        """For each token how many characters of the text there are with it and those before it."""
        pieces = [self._piece(token) for token in tokens]
        for form in range(3):
            joined = "".join(piece[form] for piece in pieces)
            if joined.strip() == text:
                lead = len(joined) - len(joined.lstrip())
                ends = accumulate(len(piece[form]) for piece in pieces)
                return [min(max(0, end - lead), len(text)) for end in ends]
        # The text of a token depends on those before it: they are decoded one more at a time.
        so_far = (self._tokenizer.decode(list(tokens[:count]), skip_special_tokens=True) for count in _counts(tokens))
        return [_common_length(decoded.lstrip(), text) for decoded in so_far]

    def _piece(self, token: int) -> tuple[str, ...]:
        """The text of a token as byte pieces, sentence pieces and word pieces have it within a text."""
        piece = self._pieces.get(token)
        if piece is None:
            text: str = self._tokenizer.decode([token])
            if token in self._special:
                piece = (text, "", "")
            else:
                begins = str(self._tokenizer.convert_ids_to_tokens(token)).startswith("▁")
                within = text.removeprefix("##") if text.startswith("##") else f" {text}"
                piece = (text, f"{' ' * begins}{text.lstrip()}", within)
            self._pieces[token] = piece
        return piece


def _counts(tokens: Sequence[int]) -> range:
    return range(1, len(tokens) + 1)


def _common_length(first: str, second: str) -> int:
    """How many characters two texts begin with in common."""
    pairs = zip(first, second, strict=False)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def encode(tokenizer: Any, text: str, *, follows_word: bool) -> list[int]:
    """The tokens of a text as a caption has them: without special ones.

    Args:
        tokenizer: of the model.
        text: is stripped.
        follows_word: whether it stands right behind a word of the prompt, so that it begins with a space.
    """
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    ids: list[int] = tokenizer(text.strip(), add_special_tokens=False).input_ids
    if follows_word and ids and not str(tokenizer.convert_ids_to_tokens(ids[0])).startswith("▁"):
        ids = tokenizer(f" {text.strip()}", add_special_tokens=False).input_ids
    return [token for token in ids if token not in special]


def bad_sequences(tokenizer: Any, texts: Sequence[str], *, no_unknown: bool) -> tuple[tuple[int, ...], ...]:
    """The token sequences of texts that captions must not contain: with and without a space before them, in lower
    case and with a capital."""
    sequences: dict[tuple[int, ...], None] = {}
    for text in texts:
        for form in dict.fromkeys((text, text.lower(), text.capitalize())):
            for follows_word in (False, True):
                sequences[tuple(encode(tokenizer, form, follows_word=follows_word))] = None
    if no_unknown and tokenizer.unk_token_id is not None:
        sequences[(tokenizer.unk_token_id,)] = None
    return tuple(sequence for sequence in sequences if sequence)
