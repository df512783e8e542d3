"""What a captioner says of photos kept apart, before and after it was trained further: photo by photo, and in sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.errors import ImageError
from showtell.evaluation import FEW, Evaluation
from showtell.images.photo import to_photo
from showtell.reports.explanation_view import picture
from showtell.scores import Comparison, compare, diagnose
from showtell.text.endings import BAD_ENDINGS
from showtell.text.tokenizer import tokenize

SCORES = {"cider": "CIDEr-D", "meteor": "METEOR"}  # that judge a change
THUMBNAIL = 240  # pixels of the longer side
COMMON = 12  # words that came or went which are listed

Marked = tuple[tuple[str, bool], ...]  # the words of a caption, and whether the other caption lacks each


@dataclass(frozen=True)
class Change:
    """The captions of one photo."""

    name: str
    picture: str | None  # a small one as a data URL; None where there is no photo
    before: Marked
    after: Marked
    references: tuple[str, ...]
    scores: dict[str, tuple[float, float]]  # number: before and after
    verdict: str  # gained, lost, mixed (one score up, the other down) or same


@dataclass(frozen=True)
class BeforeAfter:
    """The changes of a split, those that lost most first."""

    split: str
    changes: tuple[Change, ...]
    differences: tuple[Comparison, ...]  # of the scores, after minus before
    before: Evaluation
    after: Evaluation
    alike: tuple[int, int]  # captions that another photo has too, before and after

    def count(self, verdict: str) -> int:
        """How many photos gained, lost, or have the same or a mixed result."""
        return sum(change.verdict == verdict for change in self.changes)

    @property
    def is_few(self) -> bool:
        """Whether they are too few photos to judge by."""
        return len(self.changes) < FEW

    @property
    def summary(self) -> str:
        """A sentence."""
        scores = ", ".join(
            f"{title} {self.before.scores[name] or 0:.3f} -> {self.after.scores[name] or 0:.3f}"
            for name, title in SCORES.items()
        )
        return (
            f"{len(self.changes)} photos of {self.split}, before and after: {self.count('gained')} gained, "
            f"{self.count('lost')} lost; {scores}; captions that another photo has too: {self.alike[0]} -> "
            f"{self.alike[1]}"
        )

    def words(self, *, came: bool) -> list[tuple[str, int]]:
        """The words that came into captions, or went out of them, with the number of photos, most frequent first.

        Words such as "a" and "with" are left out.
        """
        sides = (dict(change.after if came else change.before) for change in self.changes)
        changed = (word for side in sides for word, is_changed in side.items() if is_changed)
        return Counter(word for word in changed if word not in BAD_ENDINGS).most_common(COMMON)


def before_after(before: Evaluation, after: Evaluation, records: CaptionDataset, split: str) -> BeforeAfter:
    """Compare two evaluations by `SCORES`.

    Args:
        before: of the captioner that training started from.
        after: of the one that was trained.
        records: the photos of both, from which nothing was learned.
        split: their name.
    """
    changes = [_change(record, before, after) for record in records]
    changes.sort(key=lambda change: change.scores["cider"][1] - change.scores["cider"][0])
    pairs = compare({"after": after, "before": before})
    differences = tuple(pair for name in SCORES for pair in pairs[name])
    return BeforeAfter(split, tuple(changes), differences, before, after, (_alike(before), _alike(after)))


def _alike(evaluation: Evaluation) -> int:
    captions = [caption.text for caption in evaluation.captions.values()]
    return round(len(captions) * diagnose(captions)["identical"])


def _change(record: CaptionRecord, before: Evaluation, after: Evaluation) -> Change:
    image = record.image_id
    words = [tokenize(one.captions[image].text) for one in (before, after)]
    scores = {name: (before.per_image[image][name] or 0.0, after.per_image[image][name] or 0.0) for name in SCORES}
    signs = {(new > old) - (new < old) for old, new in scores.values()}
    verdict = "mixed" if {1, -1} <= signs else "gained" if 1 in signs else "lost" if -1 in signs else "same"
    return Change(
        record.path.name, _thumbnail(record), _marked(words[0], words[1]), _marked(words[1], words[0]),
        tuple(record.captions), scores, verdict,
    )  # fmt: skip


def _marked(words: Sequence[str], other: Sequence[str]) -> Marked:
    return tuple((word, word not in other) for word in words)


def _thumbnail(record: CaptionRecord) -> str | None:
    try:
        photo = to_photo(record.path, lambda _: (THUMBNAIL, THUMBNAIL)).image
    except ImageError:  # features without photos
        return None
    photo.thumbnail((THUMBNAIL, THUMBNAIL))
    return picture(photo)
