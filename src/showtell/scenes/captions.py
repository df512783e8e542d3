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
from showtell.scenes import lexicon
from showtell.scenes.relations import PAIRWISE, is_between
from showtell.scenes.world import Item, Scene

DOMINANCE = 1.3  # a direction is named where its difference is this many times that of the other one
# The probability that a caption mentions an attribute it does not need; doubled for an item that is alone.
MENTION_RATES = {"colour": 0.84, "small": 0.3, "medium": 0.05, "big": 0.36, "solid": 0.04, "marked": 0.44}
SECOND_FACT_RATE = 0.14  # the probability of a second relation, where there is one
SHORTEST, LONGEST = 5, 20  # number of words in a caption

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
    weight: float = 1.0  # with which it is chosen

    @property
    def objects(self) -> set[int]:
        """All items that the subject is related to."""
        return {*self.object, *self.second}


@dataclass(frozen=True, slots=True)
class _Phrase:
    """Words that name items."""

    words: str
    items: Group


Part = str | _Phrase


def _choose_word(random: Random, words: Sequence[str], share: float = 0.7) -> str:
    """One of several synonyms, most often the first."""
    return words[0] if len(words) == 1 or random.random() < share else random.choice(words[1:])


def _choose_form(random: Random, words: Sequence[tuple[str, str]], is_plural: bool, share: float) -> str:
    return _choose_word(random, [pair[is_plural] for pair in words], share)


def _items_matching(scene: Scene, shape: str, attributes: dict[str, str]) -> Group:
    """The items that a description fits."""
    return tuple(
        index
        for index, item in enumerate(scene.items)
        if item.shape == shape and all(getattr(item, name) == value for name, value in attributes.items())
    )


def _common_attributes(scene: Scene, group: Group) -> dict[str, str]:
    first, *others = (scene.items[index] for index in group)
    values = {name: getattr(first, name) for name in ("colour", "pattern", "size")}
    return {name: value for name, value in values.items() if all(getattr(item, name) == value for item in others)}


def _groups(scene: Scene) -> list[Group]:
    """Groups of items of one shape, such that no other item has that shape and their other common attributes."""
    indices, shapes = range(len(scene.items)), [item.shape for item in scene.items]
    return [
        group
        for count in range(2, len(indices) + 1)
        for group in itertools.combinations(indices, count)
        if len({shapes[index] for index in group}) == 1
        and _items_matching(scene, shapes[group[0]], _common_attributes(scene, group)) == group
    ]


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
    return name if all(PAIRWISE[name](scene.items[a], scene.items[b]) for a in subject for b in other) else None


def _look_the_same(a: Item, b: Item) -> bool:
    return (a.shape, a.colour, a.size, a.pattern) == (b.shape, b.colour, b.size, b.pattern)


def _facts(scene: Scene) -> list[_Fact]:
    """Every relation worth naming, the more striking ones with more weight."""
    items, groups, facts = scene.items, _groups(scene), []
    for a, b in itertools.permutations(range(len(items)), 2):
        if PAIRWISE["inside"](items[a], items[b]):
            facts.append(_Fact("inside", (a,), (b,), weight=6.0))
        elif PAIRWISE["touching"](items[a], items[b]):
            facts.append(_Fact("touching", (a,), (b,), weight=2.5))
    for middle in range(len(items)):
        for a, b in itertools.combinations([index for index in range(len(items)) if index != middle], 2):
            if is_between(items[middle], items[a], items[b]):
                if (a, b) in groups:
                    facts.append(_Fact("between", (middle,), (a, b), weight=6.0))
                if not _look_the_same(items[a], items[b]):
                    facts.append(_Fact("between", (middle,), (a,), (b,), weight=4.0))
    candidates: list[Group] = [*((index,) for index in range(len(items))), *groups]
    for subject, other in itertools.permutations(candidates, 2):
        if set(subject) & set(other) or _look_the_same(items[subject[0]], items[other[0]]):
            continue
        if name := _direction(scene, subject, other):
            facts.append(_Fact(name, subject, other, weight=4.0 if len(subject) + len(other) > 2 else 1.0))
    return facts


def _phrase(random: Random, scene: Scene, group: Group, allow_pattern_noun: bool = True) -> _Phrase:
    """Name a group: attributes drawn at random, and those needed to distinguish it from the other items."""
    shape, shared, chosen = scene.items[group[0]].shape, _common_attributes(scene, group), {}
    for name, value in shared.items():
        kind = "marked" if value in lexicon.PATTERN_NOUNS else "colour" if name == "colour" else value
        if random.random() < MENTION_RATES[kind] * (1 + (len(scene.items) == 1)):
            chosen[name] = value
    for name, value in shared.items():
        matching = _items_matching(scene, shape, chosen)
        if matching != group and _items_matching(scene, shape, {**chosen, name: value}) != matching:
            chosen[name] = value

    noun = _choose_form(random, lexicon.SHAPE_WORDS[shape], len(group) > 1, 0.8)
    size, adjectives, after = [], [], ""
    if "size" in chosen:
        size.append(_choose_word(random, lexicon.SIZE_WORDS[chosen["size"]]))
    if "pattern" in chosen:
        if allow_pattern_noun and chosen["pattern"] in lexicon.PATTERN_NOUNS and random.random() < 0.15:
            after = " with " + _choose_word(random, lexicon.PATTERN_NOUNS[chosen["pattern"]])
        else:
            adjectives.append(_choose_word(random, lexicon.PATTERN_WORDS[chosen["pattern"]], 0.85))
    if "colour" in chosen:
        adjectives.append(_choose_word(random, lexicon.COLOUR_WORDS[chosen["colour"]], 0.8))
    if random.random() < 0.25:
        adjectives.reverse()
    text = " ".join([*size, *adjectives, noun]) + after
    if len(group) == 1:
        determiner = "an" if text[0] in "aeiou" else "a"
    elif len(group) == 2 and random.random() < 0.12:
        determiner = "a pair of"
    else:
        determiner = lexicon.COUNT_WORDS[len(group)]
    return _Phrase(f"{determiner} {text}", group)


def _relation_parts(random: Random, scene: Scene, fact: _Fact) -> list[Part]:
    """Relation and object of a fact: "above a blue square"."""
    relation = _choose_word(random, lexicon.RELATION_WORDS[fact.relation], 0.6)
    parts: list[Part] = [relation, _phrase(random, scene, fact.object)]
    return [*parts, "and", _phrase(random, scene, fact.second)] if fact.second else parts


def _choose_fact(random: Random, facts: Sequence[_Fact]) -> _Fact:
    return random.choices(facts, [fact.weight for fact in facts])[0]


def _second_facts(random: Random, facts: Sequence[_Fact]) -> list[_Fact]:
    """One of the facts at a rate of `SECOND_FACT_RATE`, else none."""
    return [_choose_fact(random, facts)] if facts and random.random() < SECOND_FACT_RATE else []


def _sentence(random: Random, scene: Scene, fact: _Fact, facts: Sequence[_Fact]) -> list[Part]:
    """ "A is above B", "A is above B and left of C"."""
    others = [other for other in facts if other.subject == fact.subject and not other.objects & fact.objects]
    second = _second_facts(random, others)
    subject = _phrase(random, scene, fact.subject)
    is_contact = "touching" in [stated.relation for stated in (fact, *second)]  # nothing lies or sits touching another
    verbs = lexicon.VERBS[:1] if is_contact else lexicon.VERBS
    verb = _choose_form(random, verbs, len(fact.subject) > 1, 0.75)
    parts: list[Part] = [subject, verb, *_relation_parts(random, scene, fact)]
    for other in second:
        parts += ["and", *_relation_parts(random, scene, other)]
    return parts


def _pronoun_fragment(random: Random, scene: Scene, fact: _Fact, facts: Sequence[_Fact]) -> list[Part]:
    """ "B with A above it", "B with A above it and C to its left": the facts have one object."""
    of_object = [other for other in facts if other.object == fact.object and other.relation in lexicon.PRONOUN_WORDS]
    second = _second_facts(random, [other for other in of_object if not {*other.subject} & {*fact.subject}])
    parts: list[Part] = [_phrase(random, scene, fact.object, False)]
    for link, stated in zip(("with", "and"), (fact, *second), strict=False):
        pronoun = _choose_form(random, lexicon.PRONOUN_WORDS[stated.relation], len(fact.object) > 1, 0.65)
        parts += [link, _phrase(random, scene, stated.subject, False), pronoun]
    return parts


def _fragment(random: Random, scene: Scene, fact: _Fact, facts: Sequence[_Fact]) -> list[Part]:
    """ "A above B", "A above B which is left of C", "B containing A"."""
    others = [other for other in facts if other.subject == fact.object and not other.objects & {*fact.subject}]
    second = _second_facts(random, [] if fact.second else others)
    if fact.relation in lexicon.CONVERSE_WORDS and random.random() < 0.25:
        around = _choose_word(random, lexicon.CONVERSE_WORDS[fact.relation])
        return [_phrase(random, scene, fact.object, False), around, _phrase(random, scene, fact.subject)]
    parts = [_phrase(random, scene, fact.subject), *_relation_parts(random, scene, fact)]
    for other in second:
        link = "which are" if len(other.subject) > 1 else "which is"
        parts += [link, *_relation_parts(random, scene, other)]
    return parts


def _group_items(random: Random, scene: Scene) -> list[Group]:
    """All items in random order, often several of a shape as a group, and always those that no words distinguish."""
    groups = _groups(scene)
    needed = any(_look_the_same(a, b) for a, b in itertools.combinations(scene.items, 2))
    group = random.choice(groups) if groups and (needed or random.random() < 0.6) else ()
    singles: list[Group] = [(index,) for index in range(len(scene.items)) if index not in group]
    random.shuffle(singles)
    return [group, *singles] if group else singles


def _list(random: Random, scene: Scene, groups: Sequence[Group]) -> list[Part]:
    """ "A and B", "A together with B and C": items without a relation."""
    parts: list[Part] = [_phrase(random, scene, groups[0], False)]
    for index, group in enumerate(groups[1:]):
        link = _choose_word(random, ("and", "together with"), 0.75) if index == 0 else "and"
        parts += [link, _phrase(random, scene, group, False)]
    return parts


def _total(random: Random, scene: Scene, groups: Sequence[Group]) -> list[Part]:
    """ "Three shapes including A and B"."""
    count = len(scene.items)
    everything = f"{lexicon.COUNT_WORDS[count]} {_choose_word(random, lexicon.ANY_SHAPE)}"
    parts: list[Part] = [_Phrase(everything, tuple(range(count))), "including", _phrase(random, scene, groups[0])]
    return [*parts, "and", _phrase(random, scene, groups[1])] if 2 <= len(groups) < count else parts


def _add_frame(random: Random, scene: Scene, parts: list[Part], is_sentence: bool, background: float) -> list[Part]:
    """Put an opening before a caption, and the background before or behind it at the rate `background`."""
    first, opening = parts[0], ""
    if not is_sentence and random.random() < 0.3:
        with_there = isinstance(first, _Phrase) and random.random() < 0.5
        is_plural = isinstance(first, _Phrase) and len(first.items) > 1 and not first.words.startswith("a ")
        opening = lexicon.THERE[is_plural] if with_there else random.choice(lexicon.OPENINGS)
    if random.random() >= background:
        return [opening, *parts]
    paper = _choose_word(random, lexicon.BACKGROUND_WORDS[scene.background])
    is_named = paper.endswith("background")
    preposition = _choose_word(random, lexicon.BEFORE_BACKGROUND, 0.85) if is_named else "on"
    if opening in ("", *lexicon.THERE) and random.random() < 0.2:
        return [preposition, paper, opening, *parts]
    if opening == "" and not is_sentence and random.random() < 0.12:
        return [paper, "with", *parts]
    return [opening, *parts, preposition, paper]


def _content(random: Random, scene: Scene, facts: Sequence[_Fact]) -> tuple[list[Part], bool, float]:
    """What a caption says; whether it is a sentence with a verb; and how often the background is added to it."""
    kind = random.random()
    if facts and kind < 0.82:
        fact, form = _choose_fact(random, facts), random.random()
        if form < 0.28:
            return _sentence(random, scene, fact, facts), True, 0.2
        with_pronoun = form < 0.5 and fact.relation in lexicon.PRONOUN_WORDS
        return (_pronoun_fragment if with_pronoun else _fragment)(random, scene, fact, facts), False, 0.2
    groups = _group_items(random, scene)
    if len(groups) == 1:
        return [_phrase(random, scene, groups[0])], False, 0.8
    if kind < 0.92 or len(scene.items) == 2:  # "two shapes including a star" would say too little
        return _list(random, scene, groups[:3]), False, 0.35
    return _total(random, scene, groups[:2]), False, 0.25


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


def write_captions(random: Random, scene: Scene, count: int = 5) -> tuple[SceneCaption, ...]:
    """Different captions of a scene, all of them true. No relation in the scene may be ambiguous."""
    facts = _facts(scene)
    captions: dict[str, SceneCaption] = {}
    while len(captions) < count:
        caption = _join(_add_frame(random, scene, *_content(random, scene, facts)))
        if SHORTEST <= len(caption.text.split()) <= LONGEST:
            captions.setdefault(caption.text, caption)
    return tuple(captions.values())
