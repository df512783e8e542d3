"""Parsing captions of the scenes language: phrases, the relations between them, a total count and a background.

The parser knows the words of the language (`lexicon.py`) and its grammar (`docs/scenes.md`), but not how captions are
written (`captions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from showtell.scenes import lexicon

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


def _by_text(texts: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The name of each text, from the texts of each name."""
    return {text: name for name, own in texts.items() for text in own}


def _attributes(kind: str, words: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, str]]:
    return {word: (kind, value) for word, value in _by_text(words).items()}


NOUNS = {
    form: (shape, form == names[1])
    for shape, synonyms in lexicon.SHAPE_WORDS.items()
    for names in synonyms
    for form in names
}
ADJECTIVES = {
    **_attributes("colour", lexicon.COLOUR_WORDS),
    **_attributes("size", lexicon.SIZE_WORDS),
    **_attributes("pattern", lexicon.PATTERN_WORDS),
}
PATTERN_NOUNS = _attributes("pattern", lexicon.PATTERN_NOUNS)
COUNTS = {word: count for count, word in lexicon.COUNT_WORDS.items()}
DETERMINERS = ("a", "an", *COUNTS)
BACKGROUNDS, RELATIONS = _by_text(lexicon.BACKGROUND_WORDS), _by_text(lexicon.RELATION_WORDS)
CONVERSES, OPENINGS = _by_text(lexicon.CONVERSE_WORDS), {text: text for text in lexicon.OPENINGS}
PRONOUNS = {  # by whether what they stand for is plural
    plural: {forms[plural]: relation for relation, texts in lexicon.PRONOUN_WORDS.items() for forms in texts}
    for plural in (False, True)
}
VERB_IS_PLURAL = {form: form == forms[1] for forms in lexicon.VERBS for form in forms}
MAX_EXPRESSION_WORDS = 5  # words of the longest fixed expression ("on the left side of")
PUNCTUATION = str.maketrans("", "", ".,;:!?\"'")


class _ParseError(Exception):
    """The next words do not fit the grammar. Alternatives catch it, and at last `parse_caption`."""


class _Head(NamedTuple):
    """A phrase with its grammatical number."""

    phrase: int  # index in `ParsedCaption.phrases`
    numbers: frozenset[bool]  # whether its verb or pronoun may be singular (False) or plural (True)


SINGULAR, PLURAL, EITHER = frozenset({False}), frozenset({True}), frozenset({False, True})
_Result = TypeVar("_Result")


class _Parser:
    """Recursive descent: a method parses what it is named after and advances, or raises `_ParseError`.

    Only `optional` continues after a failure, from the state it started in; so all of the state is immutable."""

    def __init__(self, words: list[str]) -> None:
        self.words = tuple(words)
        self.position = 0
        self.phrases: tuple[NounPhrase, ...] = ()
        self.relations: tuple[ParsedRelation, ...] = ()
        self.total: int | None = None
        self.background: str | None = None

    # words

    def optional(self, method: Callable[..., _Result], *arguments: Any, after: str = "") -> _Result | None:
        """What the method parses behind the words `after`; None, with nothing consumed, where it fails."""
        state = dict(vars(self))
        try:
            for word in after.split():
                self.word(word)
            return method(*arguments)
        except _ParseError:
            vars(self).update(state)
            return None

    def joined(self, method: Callable[..., Any], *arguments: Any) -> bool:
        """What the method parses, once or several times with "and" between."""
        method(*arguments)
        while self.optional(method, *arguments, after="and"):
            pass
        return True

    def peek(self) -> str:
        """The next word, without consuming it; empty at the end."""
        return self.words[self.position] if self.position < len(self.words) else ""

    def require(self, condition: bool) -> None:
        """Fail unless a condition holds."""
        if not condition:
            raise _ParseError

    def word(self, *allowed: str) -> str:
        """The next word, which must be one of these."""
        word = self.peek()
        self.require(word in allowed)
        self.position += 1
        return word

    def expression(self, table: Mapping[str, str]) -> str:
        """The value of the longest expression of a table that comes next."""
        for length in range(MAX_EXPRESSION_WORDS, 0, -1):
            if value := table.get(" ".join(self.words[self.position : self.position + length])):
                self.position += min(length, len(self.words) - self.position)
                return value
        raise _ParseError

    # things

    def noun_phrase(self) -> _Head:
        """ "a small red circle", "two striped stars", "a pair of moons", "a heart with dots"."""
        first = self.word(*DETERMINERS)
        count, numbers = (COUNTS[first], PLURAL) if first in COUNTS else (1, SINGULAR)
        if first == "a" and self.optional(self.word, "of", after="pair") is not None:
            count, numbers = 2, EITHER
        elif count == 1:
            self.require((first == "an") == self.peek().startswith(tuple("aeiou")))
        attributes = []
        while self.peek() in ADJECTIVES:
            attributes.append(ADJECTIVES[self.word(self.peek())])
        shape, is_plural = NOUNS[self.word(*NOUNS)]
        if pattern := self.optional(self.word, *PATTERN_NOUNS, after="with"):
            attributes.append(PATTERN_NOUNS[pattern])
        self.require(is_plural == (count > 1) and len(dict(attributes)) == len(attributes))
        self.phrases += (NounPhrase(shape, tuple(attributes), count),)
        return _Head(len(self.phrases) - 1, numbers)

    def thing(self, follow: bool = True) -> _Head:
        """A phrase with its clauses; `follow`: also with a bare relation, "a star above a moon"."""
        head = self.noun_phrase()
        while (
            self.optional(self.joined, self.pronoun_phrase, head, after="with")
            or self.optional(self.which_clause, head, after="which")
            or (follow and self.optional(self.joined, self.relation, [head], True))
        ):
            pass
        return head

    def things(self, links: tuple[str, ...] = ("and", "together with", "with")) -> list[_Head]:
        """Things in a list: "a star and two moons", "a star with a moon"."""
        heads = [self.thing()]
        while head := next(filter(None, (self.optional(self.thing, after=link) for link in links)), None):
            heads.append(head)
        return heads

    def all_shapes(self) -> bool:
        """ "three shapes", "three shapes including a star and a moon"."""
        self.total = COUNTS[self.word(*COUNTS)]
        self.word(*lexicon.ANY_SHAPE)
        self.optional(self.things, after="including")
        return True

    # relations

    def pronoun_phrase(self, head: _Head) -> bool:
        """ "a star above it and to its left": relations of the head, behind "with"."""
        return self.joined(self.pronoun, self.noun_phrase(), head)

    def pronoun(self, subject: _Head, head: _Head) -> bool:
        """ "above it"; "inside" alone, unless a thing follows that it is inside of."""
        relation = self.expression({text: name for number in head.numbers for text, name in PRONOUNS[number].items()})
        self.require(self.peek() not in DETERMINERS)
        self.relations += (ParsedRelation(relation, subject.phrase, (head.phrase,)),)
        return True

    def which_clause(self, head: _Head) -> bool:
        """ "is above a star and left of a moon": relations of the head, behind "which"."""
        self.verb(head.numbers)
        return self.joined(self.relation, [head], True)

    def relation(self, heads: list[_Head], follow: bool) -> str:
        """ "above a star", for each head; returns the relation's name."""
        converse = self.optional(self.expression, CONVERSES)
        relation = converse or self.expression(RELATIONS)
        first = self.thing(follow).phrase
        objects: tuple[int, ...] = (first,)
        if relation == "between":
            second = self.optional(self.second_object, follow, after="and")
            self.require(second is not None or self.phrases[first].count == 2)
            objects = objects if second is None else (first, second.phrase)
        for head in heads:
            subject, others = (first, (head.phrase,)) if converse else (head.phrase, objects)
            self.relations += (ParsedRelation(relation, subject, others),)
        return relation

    def second_object(self, follow: bool) -> _Head:
        """The second thing of "between a star and a moon"; no verb may follow it."""
        head = self.thing(follow)
        self.require(self.peek() not in VERB_IS_PLURAL)
        return head

    # sentences

    def verb(self, numbers: frozenset[bool]) -> None:
        """A verb in one of the numbers."""
        self.require(VERB_IS_PLURAL[self.word(*VERB_IS_PLURAL)] in numbers)

    def sentence(self) -> bool:
        """ "a star is above a moon and left of a heart", "a star and a moon are above a heart"; joined by "and"."""
        heads = self.things(("and",))
        numbers = heads[0].numbers if len(heads) == 1 else PLURAL
        self.verb(numbers)
        relation = self.relation(heads, False)
        while not self.optional(self.sentence, after="and"):
            if name := self.optional(self.predicate, heads, numbers, after="and"):
                relation = name
            elif not self.optional(self.another_object, heads, relation, after="and"):
                break
        return True

    def predicate(self, heads: list[_Head], numbers: frozenset[bool]) -> str:
        """ "left of a heart", "is left of a heart"."""
        if self.peek() in VERB_IS_PLURAL:
            self.verb(numbers)
        return self.relation(heads, False)

    def another_object(self, heads: list[_Head], relation: str) -> bool:
        """The moon of "a heart is above a star and a moon"."""
        self.require(relation != "between")
        other = self.thing(False)
        self.relations += tuple(ParsedRelation(relation, head.phrase, (other.phrase,)) for head in heads)
        return True

    # captions

    def background_phrase(self) -> None:
        """ "on a white background"."""
        self.word(*lexicon.BEFORE_BACKGROUND)
        self.background = self.expression(BACKGROUNDS)

    def existence(self) -> None:
        """ "there is a star", "there are two stars", "there are a star and a moon"."""
        self.word("there")
        is_plural = self.word("is", "are") == "are"
        heads = [] if self.optional(self.all_shapes) else self.things()
        self.require(is_plural in (heads[0].numbers if heads else PLURAL) or (is_plural and len(heads) > 1))

    def fragment(self) -> None:
        """ "a picture of a star", "a star", "a picture of a grid with a star", "a grid with a star"."""
        self.optional(self.expression, OPENINGS)
        if self.background is None:
            self.background = self.optional(self.expression, BACKGROUNDS)
            if self.background is not None:
                self.word("with")
        if not self.optional(self.all_shapes):
            self.things()

    def whole(self, form: Callable[[], object]) -> ParsedCaption:
        """A caption of this form: the background, if it was not named before, and nothing more."""
        form()
        if self.background is None:
            self.optional(self.background_phrase)
        self.require(self.position == len(self.words))
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
