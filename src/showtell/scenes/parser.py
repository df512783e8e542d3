"""Parsing captions of the scenes language: phrases, the relations between them, a total count and a background.

The parser knows the words of the language (`lexicon.py`) and its grammar (`docs/scenes.md`), but not how captions are
written (`captions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from showtell.scenes.lexicon import (
    ANY_SHAPE,
    BACKGROUND_WORDS,
    BEFORE_BACKGROUND,
    COLOUR_WORDS,
    CONVERSE_WORDS,
    COUNT_WORDS,
    OPENINGS,
    PATTERN_NOUNS,
    PATTERN_WORDS,
    PRONOUN_WORDS,
    RELATION_WORDS,
    SHAPE_WORDS,
    SIZE_WORDS,
    VERBS,
)

MAX_PHRASES = 8  # a caption with more is outside the language: no scene has more than four items


@dataclass(frozen=True, slots=True)
class NounPhrase:
    """One or several things of one shape, as a caption names them."""

    shape: str
    attributes: tuple[tuple[str, str], ...]  # (colour | size | pattern, value)
    count: int  # 1 where the caption says "a"


@dataclass(frozen=True, slots=True)
class ParsedRelation:
    """A relation between phrases, given by their indices in `ParsedCaption.phrases`."""

    name: str  # of `relations.PAIRWISE`, or between
    subject: int
    objects: tuple[int, ...]  # two for "between A and B", else one


@dataclass(frozen=True, slots=True)
class ParsedCaption:
    """The content of a caption."""

    phrases: tuple[NounPhrase, ...]
    relations: tuple[ParsedRelation, ...]
    total: int | None  # of "three shapes"; None where the caption has no such count
    background: str | None  # None where the caption names none


def _values_by_word(lists: dict[str, tuple[str, ...]], kind: str) -> dict[str, tuple[str, str]]:
    """(kind, value) of each word, from the words of each value."""
    return {word: (kind, value) for value, words in lists.items() for word in words}


def _names_by_expression(lists: dict[str, tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """The name of each expression, from the expressions of each name."""
    return {tuple(text.split()): name for name, texts in lists.items() for text in texts}


NOUNS = {
    forms[plural]: (shape, plural)
    for shape, names in SHAPE_WORDS.items()
    for forms in names
    for plural in (False, True)
}
ADJECTIVES = {
    **_values_by_word(COLOUR_WORDS, "colour"),
    **_values_by_word(SIZE_WORDS, "size"),
    **_values_by_word(PATTERN_WORDS, "pattern"),
}
COUNTS = {word: count for count, word in COUNT_WORDS.items()}
PATTERN_NOUN_VALUES = _values_by_word(PATTERN_NOUNS, "pattern")
BACKGROUND_EXPRESSIONS = _names_by_expression(BACKGROUND_WORDS)
RELATION_EXPRESSIONS = _names_by_expression(RELATION_WORDS)
CONVERSE_EXPRESSIONS = _names_by_expression(CONVERSE_WORDS)
PRONOUN_EXPRESSIONS = {
    plural: {tuple(forms[plural].split()): relation for relation, texts in PRONOUN_WORDS.items() for forms in texts}
    for plural in (False, True)
}
VERB_IS_PLURAL = {forms[plural]: plural for forms in VERBS for plural in (False, True)}
OPENING_EXPRESSIONS = {tuple(text.split()): text for text in OPENINGS}
DETERMINERS = ("a", "an", *COUNTS)
MAX_EXPRESSION_WORDS = 5  # words of the longest fixed expression ("on the left side of")
PUNCTUATION = str.maketrans("", "", ".,;:!?\"'")


class _ParseError(Exception):
    """The next words do not fit the grammar. Alternatives catch it, and at last `parse_caption`."""


class _Head(NamedTuple):
    """A phrase with its grammatical number."""

    phrase: int  # index in `ParsedCaption.phrases`
    numbers: frozenset[bool]  # whether its verb or pronoun may be singular (False) or plural (True)


SINGULAR, PLURAL, EITHER = frozenset({False}), frozenset({True}), frozenset({False, True})
AND: dict[tuple[str, ...], bool] = {("and",): True}
LINKS: dict[tuple[str, ...], bool] = {**AND, ("together", "with"): True, ("with",): True}
_Result = TypeVar("_Result")


class _Parser:
    """Recursive descent: a method parses what it is named after and advances, or raises `_ParseError`.

    Only `optional` continues after a failure, from the state it started in; so all of the state is immutable.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self.position = 0
        self.phrases: tuple[NounPhrase, ...] = ()
        self.relations: tuple[ParsedRelation, ...] = ()
        self.total: int | None = None
        self.background: str | None = None

    # words

    def optional(self, method: Callable[..., _Result], *arguments: Any) -> _Result | None:
        """What the method parses; None, with nothing consumed, where it fails."""
        state = dict(vars(self))
        try:
            return method(*arguments)
        except _ParseError:
            vars(self).update(state)
            return None

    def joined(self, method: Callable[..., Any], *arguments: Any) -> bool:
        """What the method parses, once or several times with "and" between."""
        method(*arguments)
        while self.optional(self.after_and, method, *arguments):
            pass
        return True

    def after_and(self, method: Callable[..., _Result], *arguments: Any) -> _Result:
        """ "and", then what the method parses."""
        self.word("and")
        return method(*arguments)

    def peek(self, ahead: int = 0) -> str:
        """A word ahead, without consuming it; empty beyond the end."""
        return self.words[self.position + ahead] if self.position + ahead < len(self.words) else ""

    def word(self, *allowed: str) -> str:
        """The next word, which must be one of these."""
        word = self.peek()
        if word not in allowed:
            raise _ParseError
        self.position += 1
        return word

    def expression(self, table: Mapping[tuple[str, ...], _Result]) -> _Result:
        """The value of the longest expression of a table that comes next."""
        for length in range(MAX_EXPRESSION_WORDS, 0, -1):
            words = self.words[self.position : self.position + length]
            if len(words) == length and words in table:
                self.position += length
                return table[words]
        raise _ParseError

    # things

    def noun_phrase(self) -> _Head:
        """ "a small red circle", "two striped stars", "a pair of moons", "a heart with dots"."""
        first = self.word(*DETERMINERS)
        count, numbers = (COUNTS[first], PLURAL) if first in COUNTS else (1, SINGULAR)
        if first == "a" and self.peek() == "pair":
            self.word("pair")
            self.word("of")
            count, numbers = 2, EITHER
        elif count == 1 and (first == "an") != self.peek().startswith(tuple("aeiou")):
            raise _ParseError
        attributes = []
        while self.peek() in ADJECTIVES:
            attributes.append(ADJECTIVES[self.word(self.peek())])
        shape, is_plural = NOUNS[self.word(*NOUNS)]
        if self.peek() == "with" and self.peek(1) in PATTERN_NOUN_VALUES:
            self.word("with")
            attributes.append(PATTERN_NOUN_VALUES[self.word(self.peek())])
        if is_plural != (count > 1) or len(dict(attributes)) < len(attributes):
            raise _ParseError
        self.phrases += (NounPhrase(shape, tuple(attributes), count),)
        return _Head(len(self.phrases) - 1, numbers)

    def thing(self, follow: bool = True) -> _Head:
        """A phrase with its clauses; `follow`: also with a bare relation, "a star above a moon"."""
        head = self.noun_phrase()
        clauses = [self.with_clause, self.which_clause, *([self.relations_of] if follow else [])]
        while any(self.optional(clause, head) for clause in clauses):
            pass
        return head

    def things(self, links: Mapping[tuple[str, ...], bool] = LINKS) -> list[_Head]:
        """Things in a list: "a star and two moons", "a star with a moon"."""
        heads = [self.thing()]
        while head := self.optional(self.further_thing, links):
            heads.append(head)
        return heads

    def further_thing(self, links: Mapping[tuple[str, ...], bool]) -> _Head:
        """ "and a star"."""
        self.expression(links)
        return self.thing()

    def all_shapes(self) -> bool:
        """ "three shapes", "three shapes including a star and a moon"."""
        self.total = COUNTS[self.word(*COUNTS)]
        self.word(*ANY_SHAPE)
        if self.peek() == "including":
            self.word("including")
            self.things()
        return True

    # relations

    def with_clause(self, head: _Head) -> bool:
        """ "with a star above it and a moon to its left": relations of the head."""
        self.word("with")
        return self.joined(self.pronoun_phrase, head)

    def pronoun_phrase(self, head: _Head) -> bool:
        """ "a star above it and to its left"."""
        return self.joined(self.pronoun, self.noun_phrase(), head)

    def pronoun(self, subject: _Head, head: _Head) -> bool:
        """ "above it"; "inside" alone, unless a thing follows that it is inside of."""
        tables = [PRONOUN_EXPRESSIONS[number] for number in head.numbers]
        relation = self.expression({words: name for table in tables for words, name in table.items()})
        if self.peek() in DETERMINERS:
            raise _ParseError
        self.relations += (ParsedRelation(relation, subject.phrase, (head.phrase,)),)
        return True

    def which_clause(self, head: _Head) -> bool:
        """ "which is above a star": relations of the head."""
        self.word("which")
        self.verb(head.numbers)
        return self.relations_of(head)

    def relations_of(self, head: _Head) -> bool:
        """ "above a star", "above a star and left of a moon": relations of the head."""
        return self.joined(self.relation, [head], True)

    def relation(self, heads: list[_Head], follow: bool) -> str:
        """ "above a star", for each head; returns the relation's name."""
        converse = self.optional(self.expression, CONVERSE_EXPRESSIONS)
        relation = converse or self.expression(RELATION_EXPRESSIONS)
        first = self.thing(follow).phrase
        objects: tuple[int, ...] = (first,)
        if relation == "between":
            second = self.optional(self.after_and, self.second_object, follow)
            if second is not None:
                objects = (first, second.phrase)
            elif self.phrases[first].count != 2:
                raise _ParseError
        for head in heads:
            subject, others = (first, (head.phrase,)) if converse else (head.phrase, objects)
            self.relations += (ParsedRelation(relation, subject, others),)
        return relation

    def second_object(self, follow: bool) -> _Head:
        """The second thing of "between a star and a moon"; no verb may follow it."""
        head = self.thing(follow)
        if self.peek() in VERB_IS_PLURAL:
            raise _ParseError
        return head

    # sentences

    def verb(self, numbers: frozenset[bool]) -> None:
        """A verb in one of the numbers."""
        if VERB_IS_PLURAL[self.word(*VERB_IS_PLURAL)] not in numbers:
            raise _ParseError

    def sentence(self) -> bool:
        """ "a star is above a moon and left of a heart", "a star and a moon are above a heart"; joined by "and"."""
        heads = self.things(AND)
        numbers = heads[0].numbers if len(heads) == 1 else PLURAL
        self.verb(numbers)
        relation = self.relation(heads, False)
        while not self.optional(self.after_and, self.sentence):
            if name := self.optional(self.after_and, self.predicate, heads, numbers):
                relation = name
            elif not self.optional(self.after_and, self.another_object, heads, relation):
                break
        return True

    def predicate(self, heads: list[_Head], numbers: frozenset[bool]) -> str:
        """ "left of a heart", "is left of a heart"."""
        if self.peek() in VERB_IS_PLURAL:
            self.verb(numbers)
        return self.relation(heads, False)

    def another_object(self, heads: list[_Head], relation: str) -> bool:
        """The moon of "a heart is above a star and a moon"."""
        if relation == "between":
            raise _ParseError
        other = self.thing(False)
        self.relations += tuple(ParsedRelation(relation, head.phrase, (other.phrase,)) for head in heads)
        return True

    # captions

    def background_phrase(self) -> None:
        """ "on a white background"."""
        self.word(*BEFORE_BACKGROUND)
        self.background = self.expression(BACKGROUND_EXPRESSIONS)

    def existence(self) -> None:
        """ "there is a star", "there are two stars", "there are a star and a moon"."""
        self.word("there")
        is_plural = self.word("is", "are") == "are"
        heads = [] if self.optional(self.all_shapes) else self.things()
        if is_plural not in (heads[0].numbers if heads else PLURAL) and not (is_plural and len(heads) > 1):
            raise _ParseError

    def fragment(self) -> None:
        """ "a picture of a star", "a star", "a picture of a grid with a star", "a grid with a star"."""
        self.optional(self.expression, OPENING_EXPRESSIONS)
        if self.background is None:
            self.background = self.optional(self.expression, BACKGROUND_EXPRESSIONS)
            if self.background is not None:
                self.word("with")
        if not self.optional(self.all_shapes):
            self.things()

    def whole(self, form: Callable[[], object]) -> ParsedCaption:
        """A caption of this form: the background, if it was not named before, and nothing more."""
        form()
        if self.background is None:
            self.optional(self.background_phrase)
        if self.position != len(self.words):
            raise _ParseError
        return ParsedCaption(self.phrases, self.relations, self.total, self.background)


@lru_cache(maxsize=65536)
def parse_caption(caption: str) -> ParsedCaption | None:
    """Parse a caption, ignoring capitals and punctuation; None if it is not of the language."""
    words = caption.lower().translate(PUNCTUATION).split()
    if sum(word in NOUNS for word in words) > MAX_PHRASES:  # each is the noun of a phrase; this bounds the recursion
        return None
    parser = _Parser(words)
    parser.optional(parser.background_phrase)
    parsed = (parser.optional(parser.whole, form) for form in (parser.existence, parser.fragment, parser.sentence))
    return next(filter(None, parsed), None)
