"""Captions into words, as caption evaluation counts them.

The published scores of this field all rest on one tokenizer, the Penn Treebank rules of Stanford CoreNLP
3.4.1 with lower-casing, after which punctuation is dropped. Training and scoring share this one, so that a
word of the vocabulary is a word of the scores.
"""

from __future__ import annotations

import regex

TOKENIZER_VERSION = "ptb-1"

# Dropped from every caption. Brackets stay and count as words (-lrb- and friends): the reference's list has
# them in capitals, and it compares after lower-casing.
PUNCTUATION = frozenset(["''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"])

_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_PLAIN = regex.compile(r"[A-Za-z ]+[ .]*")  # what most captions are made of: nothing to decide but a few compounds
_COMPOUNDS = {
    "cannot": ("can", "not"),
    "gonna": ("gon", "na"),
    "gotta": ("got", "ta"),
    "wanna": ("wan", "na"),
    "lemme": ("lem", "me"),
    "gimme": ("gim", "me"),
}
_TOKEN = regex.compile(
    r"""
      (?:Mr|Mrs|Ms|Dr|St|Ave|Jr|Sr|vs|etc|ft|Inc|Co|Corp|Ltd|No|Fig|Jan|Feb)\.   # abbreviations keep their
      dot
    | (?:\p{L}\.)+(?=\s*\S)                                                    # U.S., p.m.
    | '\d\ds?                                                                     # '90s
    | '(?:s|m|d|ll|re|ve|n)\b | n't\b
    | \p{L}+?(?=n't\b) | \p{L}+?(?='(?:s|m|d|ll|re|ve)\b)
    | [+-]?\d+(?:[.,:/]\d+)*(?:st|nd|rd|th|s)?
    | \p{L}[\p{L}\p{M}\p{N}]*(?:[-/]\p{L}[\p{L}\p{M}\p{N}]*)*
    | \.\.+ | --+ | [?!]+ | [\p{S}\p{P}\p{N}]
    """,
    regex.VERBOSE | regex.IGNORECASE,
)


def tokenize(caption: str) -> list[str]:
    """The words of a caption: lower case, punctuation dropped.

    >>> tokenize("The boy's dog can't swim.")
    ['the', 'boy', "'s", 'dog', 'ca', "n't", 'swim']
    """
    if _PLAIN.fullmatch(caption):
        words = caption.lower().replace(".", " ").split()
    else:
        found = _TOKEN.findall(caption.replace("’", "'"))
        words = [_BRACKETS.get(word, word.lower()) for word in found if word.strip('-.?!"“”') or word == "?!"]
    if not _COMPOUNDS.keys().isdisjoint(words):
        words = [part for word in words for part in _COMPOUNDS.get(word, (word,))]
    return [word for word in words if word not in PUNCTUATION]
