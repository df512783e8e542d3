"""How much of a caption is true of a scene: the share of its elementary statements that hold.

`docs/scenes.md` says which statements there are. A caption that is not of the language (`docs/scenes.md` has its
grammar) is judged false as a whole: its share is 0, of 0 statements.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from showtell.scenes.lexicon import COUNT_WORDS
from showtell.scenes.parser import NounPhrase, ParsedCaption, ParsedRelation, parse_caption
from showtell.scenes.relations import PAIRWISE, is_between
from showtell.scenes.world import Scene

# What `statistics` returns for a caption, in this order.
STATISTICS = ("share", "statements", "whole", "relations held", "relations", "outside")


@dataclass(frozen=True, slots=True)
class Statement:
    """An elementary statement, which holds or not."""

    kind: str  # shape, colour, size, pattern, count, relation or background
    text: str  # "red circle", "circle left of square"; synonyms replaced by the first of each list
    holds: bool


@dataclass(frozen=True, slots=True)
class CaptionTruth:
    """The statements of a caption, under the assignment of phrases to items that is best for it."""

    statements: tuple[Statement, ...]
    outside_language: bool = False

    @property
    def held(self) -> int:
        """Number of statements that hold."""
        return sum(statement.holds for statement in self.statements)

    @property
    def share(self) -> float:
        """The share of statements that hold; 0 outside the language."""
        return self.held / len(self.statements) if self.statements else 0.0

    @property
    def whole(self) -> bool:
        """Whether the caption is of the language and all of it holds."""
        return bool(self.statements) and self.held == len(self.statements)


_Group = tuple[int, ...]  # indices into Scene.items


def _phrase_statements(phrase: NounPhrase, group: _Group, scene: Scene) -> list[Statement]:
    """The statements of a phrase about the items it is assigned to; a count is exact; nothing holds without items."""
    items = [scene.items[index] for index in group]
    has_shape = bool(group) and all(item.shape == phrase.shape for item in items)
    statements, held = [Statement("shape", phrase.shape, has_shape)], []
    for kind, value in phrase.attributes:
        holds = bool(group) and all(getattr(item, kind) == value for item in items)
        statements.append(Statement(kind, f"{value} {phrase.shape}", holds))
        if holds:
            held.append((kind, value))
    if phrase.count > 1:
        alike = [item for item in scene.items if all(getattr(item, kind) == value for kind, value in held)]
        matching = sum(item.shape == phrase.shape for item in alike)
        holds = has_shape and len(group) == matching == phrase.count
        statements.append(Statement("count", f"{COUNT_WORDS[phrase.count]} {phrase.shape}", holds))
    return statements


def _relation_holds(relation: ParsedRelation, groups: Sequence[_Group], scene: Scene) -> bool | None:
    """Whether a relation holds between the assigned items, each with each; None where it is ambiguous, and left out."""
    subject = [scene.items[index] for index in groups[relation.subject]]
    objects = [[scene.items[index] for index in groups[phrase]] for phrase in relation.objects]
    if relation.name == "between":
        sides = itertools.product(*objects) if len(objects) == 2 else itertools.combinations(objects[0], 2)
        verdicts = {is_between(item, *pair) for pair in sides for item in subject}
    else:
        verdicts = {PAIRWISE[relation.name](item, other) for item in subject for other in objects[0]}
    if not verdicts or False in verdicts:  # no verdicts: a phrase without items, or "between" a single item
        return False
    return None if None in verdicts else True


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


def _relation_text(relation: ParsedRelation, phrases: Sequence[NounPhrase]) -> str:
    name = {"left": "left of", "right": "right of"}.get(relation.name, relation.name)
    objects = " and ".join(phrases[index].shape for index in relation.objects)
    return f"{phrases[relation.subject].shape} {name} {objects}"


def _best_statements(parsed: ParsedCaption, scene: Scene) -> list[Statement]:
    """The statements under the best assignment: most hold, fewest fail, most shapes are right, most items are taken."""
    candidates: list[dict[_Group, list[Statement]]] = []
    for phrase in parsed.phrases:
        choices = [itertools.combinations(range(len(scene.items)), count) for count in range(phrase.count + 1)]
        groups = itertools.chain.from_iterable(choices)
        candidates.append({group: _phrase_statements(phrase, group, scene) for group in groups})
    relations = [(relation, _relation_text(relation, parsed.phrases)) for relation in parsed.relations]

    best: list[Statement] = []
    best_rank = (-1, 0, 0, 0)
    for assigned in _assignments([list(candidate) for candidate in candidates]):
        statements: list[Statement] = []
        for candidate, group in zip(candidates, assigned, strict=True):
            statements += candidate[group]
        for relation, text in relations:
            if (holds := _relation_holds(relation, assigned, scene)) is not None:
                statements.append(Statement("relation", text, holds))
        held = sum(statement.holds for statement in statements)
        shapes = sum(statement.holds for statement in statements if statement.kind == "shape")
        rank = (held, held - len(statements), shapes, sum(map(len, assigned)))
        if rank > best_rank:
            best, best_rank = statements, rank
    return best


def judge(caption: str, scene: Scene) -> CaptionTruth:
    """Compare a caption with a scene, statement by statement."""
    parsed = parse_caption(caption)
    if parsed is None:
        return CaptionTruth((), outside_language=True)
    statements = _best_statements(parsed, scene)
    if parsed.total is not None:
        holds = len(scene.items) == parsed.total
        statements.append(Statement("count", f"{COUNT_WORDS[parsed.total]} shapes", holds))
    if parsed.background is not None:
        statements.append(Statement("background", parsed.background, parsed.background == scene.background))
    return CaptionTruth(tuple(statements))


def statistics(caption: str, scene: Scene) -> tuple[float, ...]:
    """The numbers named in `STATISTICS` for one caption."""
    truth = judge(caption, scene)
    relations = [statement.holds for statement in truth.statements if statement.kind == "relation"]
    counts = (len(truth.statements), truth.whole, sum(relations), len(relations), truth.outside_language)
    return (truth.share, *map(float, counts))
