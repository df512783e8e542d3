"""Captions that are true of a scene, written at random.

A caption is written from content to wording: first facts of the scene are chosen (a relation, a count, a list of the
items), then one of several sentence forms, then the attributes that distinguish the items, then synonyms. Like
people's captions, they leave much out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from showtell.datasets.records import Grounding
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
    THERE,
    VERBS,
)
from showtell.scenes.relations import PAIRWISE, is_between
from showtell.scenes.world import Item, Scene

DOMINANCE = 1.3  # a direction is named where its difference is this many times that of the other one
MENTION_RATES = {"colour": 0.84, "small": 0.3, "medium": 0.05, "big": 0.36, "solid": 0.04, "marked": 0.44}
"""The probability that a caption mentions an attribute it does not need; doubled for an item that is alone."""
SECOND_FACT_RATE = 0.14  # the probability of a second relation, where there is one
SHORTEST, LONGEST = 5, 20  # number of words in a caption
FACT_WEIGHTS = {"inside": 6.0, "touching": 2.5, "between": 4.0, "between a pair": 6.0, "direction of several": 4.0}
"""The weight with which a relation is chosen; that of one item's direction from another is 1."""

Group = tuple[int, ...]  # indices into Scene.items


@dataclass(frozen=True, slots=True)
class SceneCaption:
    """One sentence about a scene. The boxes of its groundings are indices into `Scene.items`."""

    text: str
    groundings: tuple[Grounding, ...]


@dataclass(frozen=True, slots=True)
class _Fact:
    """A relation that holds: of every item of the subject to those of the object."""

    relation: str
    subject: Group
    object: Group
    second: Group = ()  # the other end of "between", unless the object has both
    weight: float = 1.0

    @property
    def objects(self) -> set[int]:
        """All items that the subject is related to."""
        return {*self.object, *self.second}


@dataclass(frozen=True, slots=True)
class _Phrase:
    """Words that name items."""

    words: str
    items: Group

    @property
    def is_plural(self) -> bool:
        """Whether it names several items."""
        return len(self.items) > 1


Part = str | _Phrase


def _choose_word(random: Random, words: Sequence[str], share: float = 0.7) -> str:
    """One of several synonyms, most often the first."""
    return words[0] if len(words) == 1 or random.random() < share else random.choice(words[1:])


def _choose_form(random: Random, words: Sequence[tuple[str, str]], is_plural: bool, share: float = 0.7) -> str:
    """One of several synonyms in the singular or the plural, most often the first."""
    return _choose_word(random, [pair[is_plural] for pair in words], share)


def _items_matching(scene: Scene, shape: str, attributes: dict[str, str]) -> Group:
    """The items that a description fits."""
    return tuple(
        index
        for index, item in enumerate(scene.items)
        if item.shape == shape and all(getattr(item, name) == value for name, value in attributes.items())
    )


def _common_attributes(scene: Scene, group: Group) -> dict[str, str]:
    """The attributes that all items of a group have in common."""
    first = scene.items[group[0]]
    return {
        name: getattr(first, name)
        for name in ("colour", "pattern", "size")
        if all(getattr(scene.items[index], name) == getattr(first, name) for index in group)
    }


def _groups(scene: Scene) -> list[Group]:
    """Groups of items of one shape, such that no other item has that shape and their other common attributes."""
    groups = []
    for count in range(2, len(scene.items) + 1):
        for group in itertools.combinations(range(len(scene.items)), count):
            if len({scene.items[index].shape for index in group}) == 1:
                shape = scene.items[group[0]].shape
                if _items_matching(scene, shape, _common_attributes(scene, group)) == group:
                    groups.append(group)
    return groups


def _direction(scene: Scene, subject: Group, other: Group) -> str | None:
    """The direction that a person would name, if it holds for all items."""

    def centre(group: Group) -> tuple[float, float]:
        items = [scene.items[index] for index in group]
        return sum(item.x for item in items) / len(items), sum(item.y for item in items) / len(items)

    (x1, y1), (x2, y2) = centre(subject), centre(other)
    across, down = x2 - x1, y2 - y1
    if abs(across) >= DOMINANCE * abs(down):
        name = "left" if across > 0 else "right"
    elif abs(down) >= DOMINANCE * abs(across):
        name = "above" if down > 0 else "below"
    else:
        return None
    holds = all(PAIRWISE[name](scene.items[a], scene.items[b]) for a in subject for b in other)
    return name if holds else None


def _look_the_same(a: Item, b: Item) -> bool:
    """Whether no words distinguish the two."""
    return (a.shape, a.colour, a.size, a.pattern) == (b.shape, b.colour, b.size, b.pattern)


def _facts(scene: Scene) -> list[_Fact]:
    """Every relation worth naming, the more striking ones with more weight."""
    items = scene.items
    groups = _groups(scene)
    facts = []
    for a, b in itertools.permutations(range(len(items)), 2):
        if PAIRWISE["inside"](items[a], items[b]):
            facts.append(_Fact("inside", (a,), (b,), weight=FACT_WEIGHTS["inside"]))
        elif PAIRWISE["touching"](items[a], items[b]):
            facts.append(_Fact("touching", (a,), (b,), weight=FACT_WEIGHTS["touching"]))
    for middle in range(len(items)):
        for a, b in itertools.combinations([index for index in range(len(items)) if index != middle], 2):
            if is_between(items[middle], items[a], items[b]):
                if (a, b) in groups:
                    facts.append(_Fact("between", (middle,), (a, b), weight=FACT_WEIGHTS["between a pair"]))
                if not _look_the_same(items[a], items[b]):
                    facts.append(_Fact("between", (middle,), (a,), (b,), weight=FACT_WEIGHTS["between"]))
    candidates: list[Group] = [*((index,) for index in range(len(items))), *groups]
    for one, other in itertools.permutations(candidates, 2):
        if not set(one) & set(other) and not _look_the_same(items[one[0]], items[other[0]]):
            name = _direction(scene, one, other)
            if name is not None:
                weight = FACT_WEIGHTS["direction of several"] if len(one) + len(other) > 2 else 1.0
                facts.append(_Fact(name, one, other, weight=weight))
    return facts


def _phrase(random: Random, scene: Scene, group: Group, allow_pattern_noun: bool = True) -> _Phrase:
    """Name a group: attributes drawn at random, and those needed to distinguish it from the other items."""
    shape = scene.items[group[0]].shape
    shared = _common_attributes(scene, group)
    is_alone = len(scene.items) == 1
    chosen = {}
    for name, value in shared.items():
        kind = "marked" if value in PATTERN_NOUNS else "colour" if name == "colour" else value
        if random.random() < MENTION_RATES[kind] * (1 + is_alone):
            chosen[name] = value
    for name, value in shared.items():
        matching = _items_matching(scene, shape, chosen)
        if matching != group and _items_matching(scene, shape, {**chosen, name: value}) != matching:
            chosen[name] = value

    noun = _choose_form(random, SHAPE_WORDS[shape], len(group) > 1, 0.8)
    words = []
    after = ""
    if "size" in chosen:
        words.append(_choose_word(random, SIZE_WORDS[chosen["size"]]))
    adjectives = []
    if "pattern" in chosen:
        if allow_pattern_noun and chosen["pattern"] in PATTERN_NOUNS and random.random() < 0.15:
            after = " with " + _choose_word(random, PATTERN_NOUNS[chosen["pattern"]])
        else:
            adjectives.append(_choose_word(random, PATTERN_WORDS[chosen["pattern"]], 0.85))
    if "colour" in chosen:
        adjectives.append(_choose_word(random, COLOUR_WORDS[chosen["colour"]], 0.8))
    if random.random() < 0.25:
        adjectives.reverse()
    text = " ".join([*words, *adjectives, noun]) + after
    if len(group) == 1:
        text = ("an " if text[0] in "aeiou" else "a ") + text
    elif len(group) == 2 and random.random() < 0.12:
        text = "a pair of " + text
    else:
        text = f"{COUNT_WORDS[len(group)]} {text}"
    return _Phrase(text, group)


def _relation_parts(random: Random, scene: Scene, fact: _Fact) -> list[Part]:
    """Relation and object of a fact: "above a blue square"."""
    parts: list[Part] = [_choose_word(random, RELATION_WORDS[fact.relation], 0.6), _phrase(random, scene, fact.object)]
    if fact.second:
        parts += ["and", _phrase(random, scene, fact.second)]
    return parts


def _fragment_parts(random: Random, scene: Scene, fact: _Fact, other: _Fact | None) -> list[Part]:
    """ "A above B", "A above B which is left of C"."""
    if fact.relation in CONVERSE_WORDS and random.random() < 0.25:
        around = _choose_word(random, CONVERSE_WORDS[fact.relation])
        return [_phrase(random, scene, fact.object, False), around, _phrase(random, scene, fact.subject)]
    parts = [_phrase(random, scene, fact.subject), *_relation_parts(random, scene, fact)]
    if other is not None:
        link = "which are" if len(other.subject) > 1 else "which is"
        parts += [link, *_relation_parts(random, scene, other)]
    return parts


def _sentence_parts(random: Random, scene: Scene, fact: _Fact, other: _Fact | None) -> list[Part]:
    """ "A is above B", "A is above B and left of C"."""
    subject = _phrase(random, scene, fact.subject)
    is_contact = "touching" in (fact.relation, other and other.relation)
    verb = _choose_form(random, VERBS[:1] if is_contact else VERBS, subject.is_plural, 0.75)
    parts: list[Part] = [subject, verb, *_relation_parts(random, scene, fact)]
    if other is not None:
        parts += ["and", *_relation_parts(random, scene, other)]
    return parts


def _pronoun_parts(random: Random, scene: Scene, fact: _Fact, other: _Fact | None) -> list[Part]:
    """ "B with A above it", "B with A above it and C to its left": the facts have one object."""
    whole = _phrase(random, scene, fact.object, False)
    parts: list[Part] = [whole]
    for link, stated in (("with", fact), ("and", other)):
        if stated is not None:
            pronoun = _choose_form(random, PRONOUN_WORDS[stated.relation], whole.is_plural, 0.65)
            parts += [link, _phrase(random, scene, stated.subject, False), pronoun]
    return parts


def _choose_fact(random: Random, facts: Sequence[_Fact]) -> _Fact:
    return random.choices(facts, [fact.weight for fact in facts])[0]


def _maybe_choose_fact(random: Random, facts: Sequence[_Fact]) -> _Fact | None:
    """A second fact for the caption, at a rate of `SECOND_FACT_RATE`."""
    return _choose_fact(random, facts) if facts and random.random() < SECOND_FACT_RATE else None


def _relation_caption_parts(random: Random, scene: Scene, facts: Sequence[_Fact]) -> tuple[list[Part], bool]:
    """A caption that names a relation, sometimes two; and whether it is a sentence with a verb."""
    fact = _choose_fact(random, facts)
    form = random.random()
    if form < 0.28:
        others = [other for other in facts if other.subject == fact.subject and not other.objects & fact.objects]
        return _sentence_parts(random, scene, fact, _maybe_choose_fact(random, others)), True
    if form < 0.5 and fact.relation in PRONOUN_WORDS:
        of_object = [other for other in facts if other.object == fact.object and other.relation in PRONOUN_WORDS]
        others = [other for other in of_object if not {*other.subject} & {*fact.subject}]
        return _pronoun_parts(random, scene, fact, _maybe_choose_fact(random, others)), False
    others = [other for other in facts if other.subject == fact.object and not other.objects & {*fact.subject}]
    if fact.second:
        others = []
    return _fragment_parts(random, scene, fact, _maybe_choose_fact(random, others)), False


def _group_items(random: Random, scene: Scene) -> list[Group]:
    """All items in random order, often several of a shape as a group, and always those that no words distinguish."""
    groups = _groups(scene)
    needed = any(_look_the_same(a, b) for a, b in itertools.combinations(scene.items, 2))
    group = random.choice(groups) if groups and (needed or random.random() < 0.6) else ()
    parts: list[Group] = [(index,) for index in range(len(scene.items)) if index not in group]
    random.shuffle(parts)
    return [group, *parts] if group else parts


def _list_parts(random: Random, scene: Scene, groups: Sequence[Group]) -> list[Part]:
    """ "A and B", "A together with B and C": items without a relation."""
    parts: list[Part] = [_phrase(random, scene, groups[0], False)]
    for index, group in enumerate(groups[1:]):
        link = _choose_word(random, ("and", "together with"), 0.75) if index == 0 else "and"
        parts += [link, _phrase(random, scene, group, False)]
    return parts


def _total_parts(random: Random, scene: Scene, groups: Sequence[Group]) -> list[Part]:
    """ "Three shapes including A and B"."""
    count = len(scene.items)
    parts: list[Part] = [
        _Phrase(f"{COUNT_WORDS[count]} {_choose_word(random, ANY_SHAPE)}", tuple(range(count))),
        "including",
        _phrase(random, scene, groups[0]),
    ]
    if 2 <= len(groups) < count:
        parts += ["and", _phrase(random, scene, groups[1])]
    return parts


def _add_frame(random: Random, scene: Scene, parts: list[Part], is_sentence: bool, background: float) -> list[Part]:
    """Put an opening before a caption and the background before or behind it, or leave it as it is."""
    first = parts[0]
    opening = ""
    if not is_sentence and random.random() < 0.3:
        with_there = isinstance(first, _Phrase) and random.random() < 0.5
        is_plural = isinstance(first, _Phrase) and first.is_plural and not first.words.startswith("a ")
        opening = THERE[is_plural] if with_there else random.choice(OPENINGS)
    if random.random() >= background:
        return [opening, *parts]
    paper = _choose_word(random, BACKGROUND_WORDS[scene.background])
    preposition = _choose_word(random, BEFORE_BACKGROUND, 0.85) if paper.endswith("background") else "on"
    if opening in ("", *THERE) and random.random() < 0.2:
        return [preposition, paper, opening, *parts]
    if opening == "" and not is_sentence and random.random() < 0.12:
        return [paper, "with", *parts]
    return [opening, *parts, preposition, paper]


def _join(parts: list[Part]) -> SceneCaption:
    """Join the parts to a caption, with the words of each phrase as its grounding."""
    words: list[str] = []
    groundings = []
    for part in parts:
        first = len(words)
        words += (part.words if isinstance(part, _Phrase) else part).split()
        if isinstance(part, _Phrase):
            groundings.append(Grounding(first, len(words), part.items))
    return SceneCaption(" ".join(words), tuple(groundings))


def _write_caption(random: Random, scene: Scene, facts: Sequence[_Fact]) -> SceneCaption:
    form = random.random()
    if facts and form < 0.82:
        parts, is_sentence = _relation_caption_parts(random, scene, facts)
        return _join(_add_frame(random, scene, parts, is_sentence, 0.2))
    groups = _group_items(random, scene)
    if len(groups) == 1:
        return _join(_add_frame(random, scene, [_phrase(random, scene, groups[0])], False, 0.8))
    if form < 0.92 or len(scene.items) == 2:  # "two shapes including a star" would say too little
        return _join(_add_frame(random, scene, _list_parts(random, scene, groups[:3]), False, 0.35))
    return _join(_add_frame(random, scene, _total_parts(random, scene, groups[:2]), False, 0.25))


def write_captions(random: Random, scene: Scene, count: int = 5) -> tuple[SceneCaption, ...]:
    """Different captions of a scene, all of them true.

    Args:
        random: where every choice comes from.
        scene: what is described; no relation in it is ambiguous (`relations.is_unambiguous`).
        count: how many.
    """
    facts = _facts(scene)
    captions: dict[str, SceneCaption] = {}
    while len(captions) < count:
        caption = _write_caption(random, scene, facts)
        if SHORTEST <= len(caption.text.split()) <= LONGEST:
            captions.setdefault(caption.text, caption)
    return tuple(captions.values())
