"""Is a caption true of a scene? The caption becomes elementary statements, each held against the scene.

A caption of the language (`docs/scenes.md` has its grammar) names things in phrases, "two small red circles", and
relates them. Its statements are

    shape       of every phrase: there is such a thing
    colour, size, pattern, count    of a phrase, as far as it names them
    relation    between phrases
    count       of everything: "three shapes"
    background

Phrases are assigned to items of the scene, different phrases to different items, in the way that makes the most
statements hold, the right shapes first where that makes no difference: "a red heart" of a picture with a red circle is
half true. Where no item is left for a phrase, all that it says is false, and so is every relation with it. A count
is exact, and a count of shapes: "two red circles" holds when two items share the shape
and those of the named attributes that hold, no more and no fewer; "a red circle" says nothing of the number. What
is said of several things must hold for each of them. A relation that is a border case in the scene (`world`) is
neither true nor false and is left out.

A caption that is not of the language is judged false as a whole: its share is 0, of 0 statements.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from showtell.errors import DataError
from showtell.scenes.language import (
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
from showtell.scenes.world import PAIRWISE, Scene, is_between

MOST_PHRASES = 8  # a caption with more is outside the language: no scene has more than four items

STATISTICS = ("share", "statements", "whole", "relations held", "relations", "outside")
"""What `statistics` returns for a caption, in this order."""


@dataclass(frozen=True, slots=True)
class Statement:
    """The least that can be true or false."""

    kind: str  # shape, colour, size, pattern, count, relation or background
    text: str  # "red circle", "circle left of square"; synonyms replaced by the usual word
    holds: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """The statements of a caption, under the assignment of phrases to items that is best for it."""

    statements: tuple[Statement, ...]
    outside_language: bool = False

    @property
    def held(self) -> int:
        """How many statements hold."""
        return sum(statement.holds for statement in self.statements)

    @property
    def share(self) -> float:
        """The share of statements that hold; 0 outside the language."""
        return self.held / len(self.statements) if self.statements else 0.0

    @property
    def whole(self) -> bool:
        """Whether the caption is of the language and all of it holds."""
        return bool(self.statements) and self.held == len(self.statements)

    @property
    def relations(self) -> tuple[Statement, ...]:
        """The statements about relations alone."""
        return tuple(statement for statement in self.statements if statement.kind == "relation")


# Reading a caption


@dataclass(frozen=True, slots=True)
class Phrase:
    """Some things of one shape, as a caption names them."""

    shape: str
    attributes: tuple[tuple[str, str], ...]  # (colour | size | pattern, its usual word)
    count: int  # 1 where the caption says "a"


@dataclass(frozen=True, slots=True)
class Relating:
    """A relation between phrases, by their places in `Reading.phrases`."""

    relation: str
    subject: int
    objects: tuple[int, ...]  # two for "between A and B", else one


@dataclass(frozen=True, slots=True)
class Reading:
    """What a caption says."""

    phrases: tuple[Phrase, ...]
    relations: tuple[Relating, ...]
    total: int | None  # "three shapes"
    background: str | None


def _by_word(lists: dict[str, tuple[str, ...]], kind: str) -> dict[str, tuple[str, str]]:
    return {word: (kind, usual) for usual, words in lists.items() for word in words}


def _by_phrase(lists: dict[str, tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    return {tuple(text.split()): name for name, texts in lists.items() for text in texts}


NOUNS = {
    forms[plural]: (shape, plural)
    for shape, names in SHAPE_WORDS.items()
    for forms in names
    for plural in (False, True)
}
ADJECTIVES = {
    **_by_word(COLOUR_WORDS, "colour"),
    **_by_word(SIZE_WORDS, "size"),
    **_by_word(PATTERN_WORDS, "pattern"),
}
COUNTS = {word: count for count, word in COUNT_WORDS.items()}
PATTERNS_BEHIND = _by_word(PATTERN_NOUNS, "pattern")
BACKGROUNDS_SAID = _by_phrase(BACKGROUND_WORDS)
RELATIONS_SAID = _by_phrase(RELATION_WORDS)
CONVERSES_SAID = _by_phrase(CONVERSE_WORDS)
PRONOUNS_SAID = {
    plural: {tuple(forms[plural].split()): relation for relation, texts in PRONOUN_WORDS.items() for forms in texts}
    for plural in (False, True)
}
VERBS_SAID = {forms[plural]: plural for forms in VERBS for plural in (False, True)}
OPENINGS_SAID = {tuple(text.split()): text for text in OPENINGS}
DETERMINERS = ("a", "an", *COUNTS)
LONGEST = 5  # words of the longest fixed expression ("on the left side of")
PUNCTUATION = str.maketrans("", "", ".,;:!?\"'")


class _UnreadableError(Exception):
    """The words do not go on as they would have to. Alternatives catch it, and at last `read`."""


@dataclass(frozen=True, slots=True)
class _Head:
    """A phrase as grammar sees it."""

    place: int  # in `Reading.phrases`
    numbers: frozenset[bool]  # whether its verb or pronoun may be singular (False) or plural (True)


SINGULAR, PLURAL, EITHER = frozenset({False}), frozenset({True}), frozenset({False, True})
_Result = TypeVar("_Result")


class _Parser:
    """Recursive descent: a method reads what it is named after and moves on, or raises `_UnreadableError`.

    After a failure only `maybe` and `first_of` go on, from where they were.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.at = 0
        self.phrases: list[Phrase] = []
        self.relations: list[Relating] = []
        self.total: int | None = None
        self.background: str | None = None

    # words

    def maybe(self, method: Callable[..., _Result], *arguments: Any) -> _Result | None:
        """What the method reads; None, and nothing read, where it cannot."""
        at, phrases, relations = self.at, len(self.phrases), len(self.relations)
        total, background = self.total, self.background
        try:
            return method(*arguments)
        except _UnreadableError:
            self.at, self.total, self.background = at, total, background
            del self.phrases[phrases:], self.relations[relations:]
            return None

    def first_of(self, *methods: Callable[[], _Result]) -> _Result:
        """What the first method reads that can."""
        for method in methods:
            found = self.maybe(method)
            if found is not None:
                return found
        raise _UnreadableError

    def peek(self, ahead: int = 0) -> str:
        """A word further on, without moving; empty behind the end."""
        return self.words[self.at + ahead] if self.at + ahead < len(self.words) else ""

    def word(self, *allowed: str) -> str:
        """One of some words."""
        found = self.peek()
        if found not in allowed:
            raise _UnreadableError
        self.at += 1
        return found

    def expression(self, table: Mapping[tuple[str, ...], _Result]) -> _Result:
        """The longest fixed expression of a table that comes next."""
        for length in range(LONGEST, 0, -1):
            words = tuple(self.words[self.at : self.at + length])
            if len(words) == length and words in table:
                self.at += length
                return table[words]
        raise _UnreadableError

    # things

    def phrase(self) -> _Head:
        """ "a small red circle", "two striped stars", "a pair of moons", "a heart with dots"."""
        first = self.word("a", "an", *COUNTS)
        numbers = SINGULAR if first in ("a", "an") else PLURAL
        count = COUNTS.get(first, 1)
        if first == "a" and self.peek() == "pair":
            self.word("pair")
            self.word("of")
            count, numbers = 2, EITHER
        elif numbers is SINGULAR and (first == "an") != (self.peek()[:1] in tuple("aeiou")):
            raise _UnreadableError
        attributes: dict[str, str] = {}
        while self.peek() in ADJECTIVES:
            self.attribute(attributes, ADJECTIVES[self.word(self.peek())])
        shape, is_plural = NOUNS.get(self.peek(), ("", count == 1))
        if is_plural != (count > 1):
            raise _UnreadableError
        self.at += 1
        if self.peek() == "with" and self.peek(1) in PATTERNS_BEHIND:
            self.word("with")
            self.attribute(attributes, PATTERNS_BEHIND[self.word(self.peek())])
        self.phrases.append(Phrase(shape, tuple(attributes.items()), count))
        return _Head(len(self.phrases) - 1, numbers)

    def attribute(self, attributes: dict[str, str], named: tuple[str, str]) -> None:
        """One more attribute; a phrase has at most one of a kind."""
        kind, value = named
        if kind in attributes:
            raise _UnreadableError
        attributes[kind] = value

    def thing(self, follow: bool = True) -> _Head:
        """A phrase with all that is said behind it; `follow`: also a bare relation, "a star above a moon"."""
        head = self.phrase()
        while True:
            read = self.maybe(self.with_pronouns, head) or self.maybe(self.which, head)
            if not read and follow:
                read = self.maybe(self.related, head)
            if not read:
                return head

    def things(self) -> list[_Head]:
        """Things in a row: "a star and two moons", "a star with a moon"."""
        heads = [self.thing()]
        while head := self.maybe(self.another_thing, ("and",), ("together", "with"), ("with",)):
            heads.append(head)
        return heads

    def another_thing(self, *links: tuple[str, ...]) -> _Head:
        """ "and a star"."""
        self.expression(dict.fromkeys(links, True))
        return self.thing()

    def everything(self) -> list[_Head]:
        """ "three shapes", "three shapes including a star and a moon"; no head stands for all."""
        self.total = COUNTS[self.word(*COUNTS)]
        self.word(*ANY_SHAPE)
        if self.peek() == "including":
            self.word("including")
            self.things()
        return []

    # relations

    def with_pronouns(self, head: _Head) -> bool:
        """ "with a star above it and a moon to its left", said of the head."""
        self.word("with")
        self.placed(head)
        while self.maybe(self.and_then, self.placed, head):
            pass
        return True

    def placed(self, head: _Head) -> bool:
        """ "a star above it and to its left"."""
        subject = self.phrase()
        self.pronoun(subject, head)
        while self.maybe(self.and_then, self.pronoun, subject, head):
            pass
        return True

    def pronoun(self, subject: _Head, head: _Head) -> bool:
        """ "above it"; "inside" alone, unless a thing follows that it is inside of."""
        tables = [PRONOUNS_SAID[number] for number in head.numbers]
        relation = self.expression({words: name for table in tables for words, name in table.items()})
        if self.peek() in DETERMINERS:
            raise _UnreadableError
        self.relations.append(Relating(relation, subject.place, (head.place,)))
        return True

    def which(self, head: _Head) -> bool:
        """ "which is above a star", said of the head."""
        self.word("which")
        self.verb(head.numbers)
        return self.related(head)

    def related(self, head: _Head) -> bool:
        """ "above a star", "above a star and left of a moon", said of the head."""
        self.relation([head], True)
        while self.maybe(self.and_then, self.relation, [head], True):
            pass
        return True

    def relation(self, heads: list[_Head], follow: bool) -> str:
        """ "above a star", said of each head; returns which relation it is."""
        converse = self.maybe(self.expression, CONVERSES_SAID)
        relation = converse or self.expression(RELATIONS_SAID)
        one = self.thing(follow)
        objects: tuple[int, ...] = (one.place,)
        if relation == "between":
            other = self.maybe(self.and_then, self.far_side, follow)
            if other is not None:
                objects = (one.place, other.place)
            elif self.phrases[one.place].count != 2:
                raise _UnreadableError
        for head in heads:
            if converse:
                self.relations.append(Relating(relation, one.place, (head.place,)))
            else:
                self.relations.append(Relating(relation, head.place, objects))
        return relation

    def far_side(self, follow: bool) -> _Head:
        """The second thing of "between a star and a moon": no verb goes with it."""
        head = self.thing(follow)
        if self.peek() in VERBS_SAID:
            raise _UnreadableError
        return head

    def and_then(self, method: Callable[..., _Result], *arguments: Any) -> _Result:
        """ "and", then what the method reads."""
        self.word("and")
        return method(*arguments)

    # sentences

    def verb(self, numbers: frozenset[bool]) -> None:
        """A verb in one of the numbers."""
        if VERBS_SAID[self.word(*VERBS_SAID)] not in numbers:
            raise _UnreadableError

    def sentence(self) -> bool:
        """ "a star is above a moon and left of a heart", "a star and a moon are above a heart"; joined by "and"."""
        heads = [self.thing()]
        while head := self.maybe(self.another_thing, ("and",)):
            heads.append(head)
        numbers = heads[0].numbers if len(heads) == 1 else PLURAL
        self.verb(numbers)
        relation = self.relation(heads, False)
        while not self.maybe(self.and_then, self.sentence):
            if found := self.maybe(self.and_then, self.predicate, heads, numbers):
                relation = found
            elif not self.maybe(self.and_then, self.another_object, heads, relation):
                break
        return True

    def predicate(self, heads: list[_Head], numbers: frozenset[bool]) -> str:
        """ "left of a heart", "is left of a heart"."""
        if self.peek() in VERBS_SAID:
            self.verb(numbers)
        return self.relation(heads, False)

    def another_object(self, heads: list[_Head], relation: str) -> bool:
        """The moon of "a heart is above a star and a moon"."""
        if relation == "between":
            raise _UnreadableError
        other = self.thing(False)
        self.relations += [Relating(relation, head.place, (other.place,)) for head in heads]
        return True

    # captions

    def behind(self) -> str:
        """ "on a white background"."""
        self.word(*BEFORE_BACKGROUND)
        self.background = self.expression(BACKGROUNDS_SAID)
        return self.background

    def end(self) -> bool:
        """The background, if it was not named before, and nothing more."""
        if self.background is None:
            self.maybe(self.behind)
        if self.at != len(self.words) or len(self.phrases) > MOST_PHRASES:
            raise _UnreadableError
        return True

    def there(self) -> bool:
        """ "there is a star", "there are two stars", "there are a star and a moon"."""
        self.word("there")
        is_plural = self.word("is", "are") == "are"
        heads = self.first_of(self.everything, self.things)
        if is_plural not in (heads[0].numbers if heads else PLURAL) and not (is_plural and len(heads) > 1):
            raise _UnreadableError
        return self.end()

    def opened(self) -> bool:
        """ "a picture of a star", "a star", "a picture of a grid with a star", "a grid with a star"."""
        self.maybe(self.expression, OPENINGS_SAID)
        if self.background is None:
            self.background = self.maybe(self.expression, BACKGROUNDS_SAID)
            if self.background is not None:
                self.word("with")
        self.first_of(self.everything, self.things)
        return self.end()

    def stated(self) -> bool:
        """A sentence."""
        self.sentence()
        return self.end()

    def caption(self) -> Reading:
        """A whole caption."""
        self.maybe(self.behind)
        self.first_of(self.there, self.opened, self.stated)
        return Reading(tuple(self.phrases), tuple(self.relations), self.total, self.background)


@lru_cache(maxsize=65536)
def read(caption: str) -> Reading | None:
    """What a caption says, capitals and punctuation aside; None when it is not of the language."""
    parser = _Parser(caption.lower().translate(PUNCTUATION).split())
    return parser.maybe(parser.caption)


# Holding it against a scene

_Group = tuple[int, ...]  # places in Scene.items


def _phrase_statements(phrase: Phrase, group: _Group, scene: Scene) -> list[Statement]:
    """What a phrase says, of the items it is assigned to; with none of them, nothing holds.

    A count is a count of shapes: it fails where the shape does.
    """
    items = [scene.items[place] for place in group]
    right_shape = bool(group) and all(item.shape == phrase.shape for item in items)
    statements = [Statement("shape", phrase.shape, right_shape)]
    held = []
    for kind, value in phrase.attributes:
        holds = bool(group) and all(getattr(item, kind) == value for item in items)
        statements.append(Statement(kind, f"{value} {phrase.shape}", holds))
        if holds:
            held.append((kind, value))
    if phrase.count > 1:
        such = [
            item
            for item in scene.items
            if item.shape == phrase.shape and all(getattr(item, kind) == value for kind, value in held)
        ]
        holds = right_shape and len(group) == len(such) == phrase.count
        statements.append(Statement("count", f"{COUNT_WORDS[phrase.count]} {phrase.shape}", holds))
    return statements


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    """False if any is, else None if any is, else True."""
    found = list(verdicts)
    return False if False in found else None if None in found else True


def _relation_holds(relating: Relating, groups: Sequence[_Group], scene: Scene) -> bool | None:
    """Whether a relation holds between the assigned items, each with each; None in a border case."""
    subject = [scene.items[place] for place in groups[relating.subject]]
    objects = [[scene.items[place] for place in groups[phrase]] for phrase in relating.objects]
    if not subject or not all(objects):
        return False
    if relating.relation != "between":
        holds = PAIRWISE[relating.relation]
        return _all(holds(item, other) for item in subject for other in objects[0])
    sides = list(itertools.product(*objects) if len(objects) == 2 else itertools.combinations(objects[0], 2))
    if not sides:  # "between two stars" of which there is one
        return False
    return _all(is_between(item, one, other) for item in subject for one, other in sides)


def _assignments(candidates: Sequence[Sequence[_Group]]) -> Iterator[tuple[_Group, ...]]:
    """Every choice of one group for each phrase such that no item is taken twice."""
    if not candidates:
        yield ()
        return
    for others in _assignments(candidates[:-1]):
        taken = set(itertools.chain.from_iterable(others))
        for group in candidates[-1]:
            if taken.isdisjoint(group):
                yield (*others, group)


def _relation_text(relating: Relating, phrases: Sequence[Phrase]) -> str:
    name = {"left": "left of", "right": "right of"}.get(relating.relation, relating.relation)
    objects = " and ".join(phrases[place].shape for place in relating.objects)
    return f"{phrases[relating.subject].shape} {name} {objects}"


def _best(reading: Reading, scene: Scene) -> list[Statement]:
    """The statements of phrases and relations under the assignment that makes the most of them hold.

    Among equals the one where the fewest fail (fewer are decided where a relation is a border case), then the one
    with the most shapes right, then the one that takes the most items.
    """
    candidates: list[dict[_Group, list[Statement]]] = []
    for phrase in reading.phrases:
        choices = [itertools.combinations(range(len(scene.items)), count) for count in range(phrase.count + 1)]
        candidates.append(
            {group: _phrase_statements(phrase, group, scene) for group in itertools.chain.from_iterable(choices)}
        )
    texts = [_relation_text(relating, reading.phrases) for relating in reading.relations]

    best: list[Statement] = []
    best_rank = (-1, 0, 0, 0)
    for groups in _assignments([list(candidate) for candidate in candidates]):
        statements = [
            statement for candidate, group in zip(candidates, groups, strict=True) for statement in candidate[group]
        ]
        for relating, text in zip(reading.relations, texts, strict=True):
            holds = _relation_holds(relating, groups, scene)
            if holds is not None:
                statements.append(Statement("relation", text, holds))
        held = sum(statement.holds for statement in statements)
        shapes = sum(statement.holds for statement in statements if statement.kind == "shape")
        rank = (held, held - len(statements), shapes, sum(map(len, groups)))
        if rank > best_rank:
            best, best_rank = statements, rank
    return best


def judge(caption: str, scene: Scene) -> Judgement:
    """Hold a caption against a scene.

    >>> from showtell.scenes import Item, Scene
    >>> star = Item("star", "red", "big", "solid", x=48, y=48, extent=46)
    >>> [(s.text, s.holds) for s in judge("a blue star", Scene("white", (star,))).statements]
    [('star', True), ('blue star', False)]
    """
    reading = read(caption)
    if reading is None:
        return Judgement((), outside_language=True)
    statements = _best(reading, scene)
    if reading.total is not None:
        holds = len(scene.items) == reading.total
        statements.append(Statement("count", f"{COUNT_WORDS[reading.total]} shapes", holds))
    if reading.background is not None:
        statements.append(Statement("background", reading.background, reading.background == scene.background))
    return Judgement(tuple(statements))


def statistics(caption: str, scene: Scene) -> tuple[float, ...]:
    """What the scores of a set are made of, one caption at a time: the numbers named in `STATISTICS`."""
    judgement = judge(caption, scene)
    relations = judgement.relations
    return (
        judgement.share,
        float(len(judgement.statements)),
        float(judgement.whole),
        float(sum(statement.holds for statement in relations)),
        float(len(relations)),
        float(judgement.outside_language),
    )


def summarise(rows: Sequence[Sequence[float]]) -> dict[str, float | None]:
    """The scores of a set of captions from the `statistics` of each.

    Returns:
        truth, the mean share of statements that hold; truth_statements, their mean number; truth_whole, the share
        of captions that are true as a whole; truth_relations, the share of all relations that hold, None if none
        is named.

    Raises:
        DataError: there is no caption at all.
    """
    if len(rows) == 0:
        raise DataError("There are no captions to judge; truth needs at least one.")
    share, statements, whole, held, relations, _ = (sum(column) for column in zip(*rows, strict=True))
    return {
        "truth": share / len(rows),
        "truth_statements": statements / len(rows),
        "truth_whole": whole / len(rows),
        "truth_relations": held / relations if relations else None,
    }
