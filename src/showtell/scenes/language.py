"""The language of scenes: its word lists, and captions that are true of a scene.

A caption is written from what it says to how it says it: first facts of the scene are chosen (a relation, a count,
a list of what there is), then one of several grammars, then the attributes that tell the things apart, then
synonyms. Like people's, captions leave much out. `truth.py` reads the language with a parser of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from showtell.datasets.records import Grounding
from showtell.scenes.world import PAIRWISE, Item, Scene, is_between

LANGUAGE_VERSION = "1"
"""Changes whenever a picture, a caption or the truth of a caption may change for the same seed."""

SHAPE_WORDS: dict[str, tuple[tuple[str, str], ...]] = {
    "circle": (("circle", "circles"), ("disc", "discs")),
    "square": (("square", "squares"),),
    "triangle": (("triangle", "triangles"),),
    "star": (("star", "stars"),),
    "heart": (("heart", "hearts"),),
    "cross": (("cross", "crosses"), ("plus", "pluses")),
    "diamond": (("diamond", "diamonds"), ("rhombus", "rhombuses")),
    "moon": (("moon", "moons"), ("crescent", "crescents")),
}
"""Singular and plural of each name; the first is the usual one, here and in the lists below."""

COLOUR_WORDS: dict[str, tuple[str, ...]] = {
    "red": ("red",),
    "orange": ("orange",),
    "yellow": ("yellow",),
    "green": ("green",),
    "cyan": ("cyan", "turquoise"),
    "blue": ("blue",),
    "purple": ("purple", "violet"),
    "pink": ("pink",),
}
SIZE_WORDS: dict[str, tuple[str, ...]] = {
    "small": ("small", "little", "tiny"),
    "medium": ("medium",),
    "big": ("big", "large", "huge"),
}
PATTERN_WORDS: dict[str, tuple[str, ...]] = {
    "solid": ("solid", "plain"),
    "striped": ("striped", "stripy"),
    "dotted": ("dotted", "spotted"),
}
PATTERN_NOUNS: dict[str, tuple[str, ...]] = {"striped": ("stripes",), "dotted": ("dots", "spots")}
"""Behind the noun: "a star with stripes"."""

COUNT_WORDS: dict[int, str] = {2: "two", 3: "three", 4: "four"}
ANY_SHAPE = ("shapes", "objects", "figures")
"""What counts all items: "three shapes including a star"."""

BACKGROUND_WORDS: dict[str, tuple[str, ...]] = {
    "white": ("a white background", "white paper"),
    "grey": ("a grey background", "grey paper"),
    "beige": ("a beige background", "beige paper"),
    "mint": ("a mint background", "mint paper"),
    "squared": ("a squared background", "squared paper", "a grid"),
}
BEFORE_BACKGROUND = ("on", "against")

RELATION_WORDS: dict[str, tuple[str, ...]] = {
    "left": ("to the left of", "left of", "on the left of", "on the left side of"),
    "right": ("to the right of", "right of", "on the right of", "on the right side of"),
    "above": ("above", "over", "higher than"),
    "below": ("below", "under", "beneath", "lower than"),
    "inside": ("inside", "within", "in the middle of"),
    "touching": ("touching", "in contact with"),
    "between": ("between", "in between"),
}
CONVERSE_WORDS: dict[str, tuple[str, ...]] = {"inside": ("containing", "around", "surrounding")}
"""The relation with its subject last: "a square containing a star"."""

PRONOUN_WORDS: dict[str, tuple[tuple[str, str], ...]] = {
    "left": (("to its left", "to their left"), ("on its left", "on their left")),
    "right": (("to its right", "to their right"), ("on its right", "on their right")),
    "above": (("above it", "above them"), ("over it", "over them")),
    "below": (("below it", "below them"), ("under it", "under them"), ("beneath it", "beneath them")),
    "inside": (("inside it", "inside them"), ("inside", "inside"), ("within it", "within them")),
    "touching": (("touching it", "touching them"),),
}
"""The relation to what was named before, one thing or several: "a square with a star to its left"."""

VERBS: tuple[tuple[str, str], ...] = (("is", "are"), ("lies", "lie"), ("sits", "sit"))
THERE = ("there is", "there are")
OPENINGS = ("a picture of", "an image of", "a drawing of", "we see", "you can see", "this picture shows")

DOMINANCE = 1.3  # a direction is said where it is this much greater than the other one
MENTION = {"colour": 0.84, "small": 0.3, "medium": 0.05, "big": 0.36, "solid": 0.04, "marked": 0.44}
"""How often a caption mentions an attribute that it does not need; of a lone thing it may do so twice as often."""
SECOND_FACT = 0.14  # how often a caption tells a second relation, where there is one
SHORTEST, LONGEST = 5, 20  # words of a caption
STRIKING = {"inside": 6.0, "touching": 2.5, "between": 4.0, "between a pair": 6.0, "direction of several": 4.0}
"""How much sooner a relation is told than the direction of one thing from another."""

Group = tuple[int, ...]  # places in Scene.items


@dataclass(frozen=True, slots=True)
class Caption:
    """One sentence about a scene. The boxes of its groundings are places in `Scene.items`."""

    text: str
    groundings: tuple[Grounding, ...]


@dataclass(frozen=True, slots=True)
class _Fact:
    """A relation that holds: of every item of the subject to those of the object."""

    relation: str
    subject: Group
    object: Group
    second: Group = ()  # the other side of "between", unless the object has both
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
    def plural(self) -> bool:
        return len(self.items) > 1


Part = str | _Phrase


def _usual(random: Random, words: Sequence[str], share: float = 0.7) -> str:
    """One of several synonyms, most often the first."""
    return words[0] if len(words) == 1 or random.random() < share else random.choice(words[1:])


def _usual_pair(random: Random, words: Sequence[tuple[str, str]], plural: bool, share: float = 0.7) -> str:
    return _usual(random, [pair[plural] for pair in words], share)


def _matching(scene: Scene, shape: str, attributes: dict[str, str]) -> Group:
    """The items that a description fits."""
    return tuple(
        place
        for place, item in enumerate(scene.items)
        if item.shape == shape and all(getattr(item, name) == value for name, value in attributes.items())
    )


def _shared(scene: Scene, group: Group) -> dict[str, str]:
    """The attributes that all items of a group have in common."""
    first = scene.items[group[0]]
    return {
        name: getattr(first, name)
        for name in ("colour", "pattern", "size")
        if all(getattr(scene.items[place], name) == getattr(first, name) for place in group)
    }


def _groups(scene: Scene) -> list[Group]:
    """Several items that have a shape in common, and no other item has that and their other common attributes."""
    found = []
    for count in range(2, len(scene.items) + 1):
        for group in itertools.combinations(range(len(scene.items)), count):
            if len({scene.items[place].shape for place in group}) == 1:
                shape = scene.items[group[0]].shape
                if _matching(scene, shape, _shared(scene, group)) == group:
                    found.append(group)
    return found


def _direction(scene: Scene, subject: Group, other: Group) -> str | None:
    """The direction that a person would name, if it holds for all items."""

    def centre(group: Group) -> tuple[float, float]:
        items = [scene.items[place] for place in group]
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


def _alike(a: Item, b: Item) -> bool:
    """Whether no words tell the two apart."""
    return (a.shape, a.colour, a.size, a.pattern) == (b.shape, b.colour, b.size, b.pattern)


def _facts(scene: Scene) -> list[_Fact]:
    """Every relation worth saying, the striking ones with more weight."""
    items = scene.items
    groups = _groups(scene)
    facts = []
    for a, b in itertools.permutations(range(len(items)), 2):
        if PAIRWISE["inside"](items[a], items[b]):
            facts.append(_Fact("inside", (a,), (b,), weight=STRIKING["inside"]))
        elif PAIRWISE["touching"](items[a], items[b]):
            facts.append(_Fact("touching", (a,), (b,), weight=STRIKING["touching"]))
    for middle in range(len(items)):
        for a, b in itertools.combinations([place for place in range(len(items)) if place != middle], 2):
            if is_between(items[middle], items[a], items[b]):
                if (a, b) in groups:
                    facts.append(_Fact("between", (middle,), (a, b), weight=STRIKING["between a pair"]))
                if not _alike(items[a], items[b]):
                    facts.append(_Fact("between", (middle,), (a,), (b,), weight=STRIKING["between"]))
    sides: list[Group] = [*((place,) for place in range(len(items))), *groups]
    for one, other in itertools.permutations(sides, 2):
        if not set(one) & set(other) and not _alike(items[one[0]], items[other[0]]):
            name = _direction(scene, one, other)
            if name is not None:
                weight = STRIKING["direction of several"] if len(one) + len(other) > 2 else 1.0
                facts.append(_Fact(name, one, other, weight=weight))
    return facts


def _article(words: str) -> str:
    return ("an " if words[0] in "aeiou" else "a ") + words


def _phrase(random: Random, scene: Scene, group: Group, behind: bool = True) -> _Phrase:
    """Name a group: the attributes that come to mind, and those that it takes to tell it from the rest.

    Args:
        random: where the choices come from.
        scene: what is described.
        group: the items to name; more than one only from `_groups`.
        behind: whether a pattern may stand behind the noun ("with stripes").
    """
    shape = scene.items[group[0]].shape
    shared = _shared(scene, group)
    alone = len(scene.items) == 1
    chosen = {}
    for name, value in shared.items():
        kind = "marked" if value in PATTERN_NOUNS else "colour" if name == "colour" else value
        if random.random() < MENTION[kind] * (1 + alone):
            chosen[name] = value
    for name, value in shared.items():
        found = _matching(scene, shape, chosen)
        if found != group and _matching(scene, shape, {**chosen, name: value}) != found:
            chosen[name] = value

    noun = _usual_pair(random, SHAPE_WORDS[shape], len(group) > 1, 0.8)
    words = []
    after = ""
    if "size" in chosen:
        words.append(_usual(random, SIZE_WORDS[chosen["size"]]))
    marks = []
    if "pattern" in chosen:
        if behind and chosen["pattern"] in PATTERN_NOUNS and random.random() < 0.15:
            after = " with " + _usual(random, PATTERN_NOUNS[chosen["pattern"]])
        else:
            marks.append(_usual(random, PATTERN_WORDS[chosen["pattern"]], 0.85))
    if "colour" in chosen:
        marks.append(_usual(random, COLOUR_WORDS[chosen["colour"]], 0.8))
    if random.random() < 0.25:
        marks.reverse()
    text = " ".join([*words, *marks, noun]) + after
    if len(group) == 1:
        text = _article(text)
    elif len(group) == 2 and random.random() < 0.12:
        text = "a pair of " + text
    else:
        text = f"{COUNT_WORDS[len(group)]} {text}"
    return _Phrase(text, group)


def _related(random: Random, scene: Scene, fact: _Fact) -> list[Part]:
    """Relation and object of a fact: "above a blue square"."""
    parts: list[Part] = [_usual(random, RELATION_WORDS[fact.relation], 0.6), _phrase(random, scene, fact.object)]
    if fact.second:
        parts += ["and", _phrase(random, scene, fact.second)]
    return parts


def _verb(random: Random, phrase: _Phrase, facts: Sequence[_Fact]) -> str:
    verbs = VERBS if all(fact.relation != "touching" for fact in facts) else VERBS[:1]
    return _usual_pair(random, verbs, phrase.plural, 0.75)


def _fragment(random: Random, scene: Scene, fact: _Fact, other: _Fact | None) -> list[Part]:
    """ "A above B", "A above B which is left of C"."""
    if fact.relation in CONVERSE_WORDS and random.random() < 0.25:
        around = _usual(random, CONVERSE_WORDS[fact.relation])
        return [_phrase(random, scene, fact.object, False), around, _phrase(random, scene, fact.subject)]
    parts = [_phrase(random, scene, fact.subject), *_related(random, scene, fact)]
    if other is not None:
        link = "which are" if len(other.subject) > 1 else "which is"
        parts += [link, *_related(random, scene, other)]
    return parts


def _sentence(random: Random, scene: Scene, fact: _Fact, other: _Fact | None) -> list[Part]:
    """ "A is above B", "A is above B and left of C"."""
    subject = _phrase(random, scene, fact.subject)
    told = [fact] if other is None else [fact, other]
    parts: list[Part] = [subject, _verb(random, subject, told), *_related(random, scene, fact)]
    if other is not None:
        parts += ["and", *_related(random, scene, other)]
    return parts


def _with_pronoun(random: Random, scene: Scene, fact: _Fact, other: _Fact | None) -> list[Part]:
    """ "B with A above it", "B with A above it and C to its left": the facts have one object."""
    whole = _phrase(random, scene, fact.object, False)
    parts: list[Part] = [whole]
    for link, told in (("with", fact), ("and", other)):
        if told is not None:
            pronoun = _usual_pair(random, PRONOUN_WORDS[told.relation], whole.plural, 0.65)
            parts += [link, _phrase(random, scene, told.subject, False), pronoun]
    return parts


def _pick(random: Random, facts: Sequence[_Fact]) -> _Fact:
    return random.choices(facts, [fact.weight for fact in facts])[0]


def _maybe_pick(random: Random, facts: Sequence[_Fact]) -> _Fact | None:
    """A second fact to tell, now and then."""
    return _pick(random, facts) if facts and random.random() < SECOND_FACT else None


def _relation_caption(random: Random, scene: Scene, facts: Sequence[_Fact]) -> tuple[list[Part], bool]:
    """A caption that names a relation, sometimes two; and whether it is a sentence with a verb."""
    fact = _pick(random, facts)
    form = random.random()
    if form < 0.28:
        others = [other for other in facts if other.subject == fact.subject and not other.objects & fact.objects]
        return _sentence(random, scene, fact, _maybe_pick(random, others)), True
    if form < 0.5 and fact.relation in PRONOUN_WORDS:
        others = [
            other
            for other in facts
            if other.object == fact.object
            and other.relation in PRONOUN_WORDS
            and not {*other.subject} & {*fact.subject}
        ]
        return _with_pronoun(random, scene, fact, _maybe_pick(random, others)), False
    others = [
        other
        for other in facts
        if other.subject == fact.object and not fact.second and not other.objects & {*fact.subject}
    ]
    return _fragment(random, scene, fact, _maybe_pick(random, others)), False


def _partition(random: Random, scene: Scene) -> list[Group]:
    """All items, often several of a shape together, and always those that no words tell apart."""
    groups = _groups(scene)
    needed = any(_alike(a, b) for a, b in itertools.combinations(scene.items, 2))
    group = random.choice(groups) if groups and (needed or random.random() < 0.6) else ()
    parts: list[Group] = [(place,) for place in range(len(scene.items)) if place not in group]
    random.shuffle(parts)
    return [group, *parts] if group else parts


def _list_caption(random: Random, scene: Scene, groups: Sequence[Group]) -> list[Part]:
    """ "A and B", "A together with B and C": things without a relation."""
    parts: list[Part] = [_phrase(random, scene, groups[0], False)]
    for place, group in enumerate(groups[1:]):
        link = _usual(random, ("and", "together with"), 0.75) if place == 0 else "and"
        parts += [link, _phrase(random, scene, group, False)]
    return parts


def _total_caption(random: Random, scene: Scene, groups: Sequence[Group]) -> list[Part]:
    """ "Three shapes including A and B"."""
    count = len(scene.items)
    parts: list[Part] = [
        _Phrase(f"{COUNT_WORDS[count]} {_usual(random, ANY_SHAPE)}", tuple(range(count))),
        "including",
        _phrase(random, scene, groups[0]),
    ]
    if 2 <= len(groups) < count:
        parts += ["and", _phrase(random, scene, groups[1])]
    return parts


def _framed(random: Random, scene: Scene, parts: list[Part], is_sentence: bool, background: float) -> list[Part]:
    """Put an opening before a caption and the background before or behind it, or leave it as it is."""
    first = parts[0]
    opening = ""
    if not is_sentence and random.random() < 0.3:
        there = isinstance(first, _Phrase) and random.random() < 0.5
        plural = isinstance(first, _Phrase) and first.plural and not first.words.startswith("a ")
        opening = THERE[plural] if there else random.choice(OPENINGS)
    if random.random() >= background:
        return [opening, *parts]
    paper = _usual(random, BACKGROUND_WORDS[scene.background])
    place = _usual(random, BEFORE_BACKGROUND, 0.85) if paper.endswith("background") else "on"
    if opening in ("", *THERE) and random.random() < 0.2:
        return [place, paper, opening, *parts]
    if opening == "" and not is_sentence and random.random() < 0.12:
        return [paper, "with", *parts]
    return [opening, *parts, place, paper]


def _written(parts: list[Part]) -> Caption:
    """Join the parts; note which words each phrase takes."""
    words: list[str] = []
    groundings = []
    for part in parts:
        first = len(words)
        words += (part.words if isinstance(part, _Phrase) else part).split()
        if isinstance(part, _Phrase):
            groundings.append(Grounding(first, len(words), part.items))
    return Caption(" ".join(words), tuple(groundings))


def _one(random: Random, scene: Scene, facts: Sequence[_Fact]) -> Caption:
    form = random.random()
    if facts and form < 0.82:
        parts, is_sentence = _relation_caption(random, scene, facts)
        return _written(_framed(random, scene, parts, is_sentence, 0.2))
    groups = _partition(random, scene)
    if len(groups) == 1:
        return _written(_framed(random, scene, [_phrase(random, scene, groups[0])], False, 0.8))
    if form < 0.92 or len(scene.items) == 2:  # "two shapes including a star" would say too little
        return _written(_framed(random, scene, _list_caption(random, scene, groups[:3]), False, 0.35))
    return _written(_framed(random, scene, _total_caption(random, scene, groups[:2]), False, 0.25))


def captions(random: Random, scene: Scene, count: int = 5) -> tuple[Caption, ...]:
    """Different captions of a scene, all of them true.

    Args:
        random: where every choice comes from.
        scene: what is described; it has no border case (`world.is_clear`).
        count: how many.
    """
    facts = _facts(scene)
    found: dict[str, Caption] = {}
    while len(found) < count:
        caption = _one(random, scene, facts)
        if SHORTEST <= len(caption.text.split()) <= LONGEST:
            found.setdefault(caption.text, caption)
    return tuple(found.values())


def vocabulary() -> frozenset[str]:
    """Every word that a caption can have."""
    return frozenset(word for phrase in _phrases() for word in phrase.split())


def _phrases() -> Iterator[str]:
    for pairs in (*SHAPE_WORDS.values(), *PRONOUN_WORDS.values(), VERBS, (THERE,)):
        yield from itertools.chain.from_iterable(pairs)
    lists = (COLOUR_WORDS, SIZE_WORDS, PATTERN_WORDS, PATTERN_NOUNS, BACKGROUND_WORDS, RELATION_WORDS, CONVERSE_WORDS)
    for words in lists:
        yield from itertools.chain.from_iterable(words.values())
    yield from itertools.chain(COUNT_WORDS.values(), ANY_SHAPE, BEFORE_BACKGROUND, OPENINGS)
    yield "a pair of and an with together including which"
