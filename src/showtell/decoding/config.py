"""How captions are searched for: the settings, their checks in words, and what they mean in a vocabulary."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from showtell.config import Config
from showtell.decoding.ranking import LengthPenalty
from showtell.decoding.rules import Rules, contains
from showtell.errors import UsageError, nearest
from showtell.text.endings import BAD_ENDINGS
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import Vocabulary

Search = Literal["greedy", "beam", "diverse-beam", "sample"]
# The settings that only one search, or the two beams, look at.
OF_BEAMS = ("num_beams", "length_penalty", "length_normalisation", "force_words")
OF_GROUPS = ("num_beam_groups", "diversity_penalty")
OF_SAMPLES = ("temperature", "top_k", "top_p")


class DecodingConfig(Config):
    """How captions are searched for. The names are those of Hugging Face `generate`, where it has one."""

    search: Search | None = None  # None: what the other settings ask for; greedy if nothing
    num_return_sequences: int = Field(1, ge=1, le=1000)  # captions per image, each different
    min_length: int = Field(0, ge=0)  # words, end not counted
    max_length: int = Field(20, ge=1, le=1000)  # words, end not counted
    no_repeat_ngram_size: int = Field(0, ge=0)  # no n words occur twice in a caption; 0 allows all
    bad_words: tuple[str, ...] = ()  # words and phrases that are never said
    no_bad_endings: bool = False  # no caption ends on "a", "of", "with", ... (`text/endings.py`)
    no_unknown: bool = False  # the mark of words outside the vocabulary is never said
    stage: int | None = Field(None, ge=0)  # of a model with several, whose caption; None: the last

    num_beams: int = Field(1, ge=1, le=1000)  # width of the beam; 1 is greedy
    length_normalisation: Literal["none", "average", "wu"] | None = None  # None: average where length_penalty is given
    length_penalty: float | None = Field(None, ge=-10, le=10)  # exponent; None: 1 for average, 0.65 for wu
    force_words: tuple[str, ...] = ()  # words and phrases that must occur

    num_beam_groups: int | None = Field(None, ge=1)  # divides num_beams; None in a diverse beam: a group per beam
    diversity_penalty: float = Field(0.5, ge=0)  # cost of a word that an earlier group has just chosen

    temperature: float = Field(1.0, gt=0)  # logits are divided by it before a word is drawn
    top_k: int | None = Field(None, ge=1)  # only the k likeliest words are drawn; None: all
    top_p: float = Field(1.0, gt=0, le=1)  # only the likeliest words that together have this probability
    seed: int = 0  # of samples

    @field_validator("bad_words", "force_words", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for problem in (self._lengths(), self._other_search(), self._numbers(), self._words()):
            if problem:
                raise ValueError(problem)
        return self

    def _lengths(self) -> str | None:
        if self.min_length > self.max_length:
            return f"min_length={self.min_length} is above max_length={self.max_length}; lower one or raise the other"
        if self.length_normalisation == "none" and self.length_penalty is not None:
            return (
                f"length_penalty={self.length_penalty} has no effect with length_normalisation=none; use average or wu"
            )
        return None

    def _other_search(self) -> str | None:
        """Settings that the search would not look at."""
        if self.search in ("greedy", "sample") and self.num_beams > 1:
            return f"search={self.search} has one beam, not num_beams={self.num_beams}; use search=beam"
        for name in (*OF_BEAMS, *OF_GROUPS, *OF_SAMPLES):
            value = getattr(self, name)
            if name not in _USED[self.kind] and value != type(self).model_fields[name].default:
                others = " or ".join(f"search={kind}" for kind, used in _USED.items() if name in used)
                shown = ",".join(value) if isinstance(value, tuple) else value
                return f"{name}={shown} has no effect with search={self.kind}; use {others}"
        return None

    def _numbers(self) -> str | None:
        wanted = self.num_return_sequences
        if self.kind != "sample" and wanted > self.num_beams:
            return (
                f"num_return_sequences={wanted} asks for more captions than num_beams={self.num_beams} finds; "
                "raise num_beams, or use search=sample"
            )
        if self.num_beam_groups is not None and self.num_beams % self.num_beam_groups:
            return (
                f"num_beam_groups={self.num_beam_groups} does not divide num_beams={self.num_beams}; choose a divisor"
            )
        return None

    def _words(self) -> str | None:
        """Required words that the other rules rule out."""
        forced, bad = self._phrases("force_words"), self._phrases("bad_words")
        for rule, phrases in (("must", forced), ("must not", bad)):
            if () in phrases.values():
                return f"a text that {rule} occur has no words in it; leave it out"
        for text, phrase in forced.items():
            for other, part in bad.items():
                if contains(phrase, part):
                    return f'"{text}" must occur and has "{other}" in it, which must not; leave one of them out'
            size = self.no_repeat_ngram_size
            grams = [phrase[start : start + size] for start in range(len(phrase) - size + 1)] if size else []
            if len(set(grams)) < len(grams):
                return (
                    f'"{text}" must occur and repeats what no_repeat_ngram_size={size} forbids; raise it or change '
                    "the text"
                )
        needed = sum(map(len, forced.values()))
        if needed > self.max_length:
            return f"what must occur needs {needed} words of room and max_length is {self.max_length}; raise it"
        return None

    def _phrases(self, name: str) -> dict[str, tuple[str, ...]]:
        return {text: tuple(tokenize(text)) for text in getattr(self, name)}

    @property
    def kind(self) -> Search:
        """The name of the search."""
        if self.search:
            return self.search
        if self.num_beam_groups is not None and self.num_beam_groups > 1:
            return "diverse-beam"
        return "beam" if self.num_beams > 1 or self.force_words else "greedy"

    @property
    def groups(self) -> int:
        """How many groups the beam has."""
        if self.kind != "diverse-beam":
            return 1
        return self.num_beam_groups or self.num_beams

    @property
    def ranking(self) -> LengthPenalty:
        """How captions of different lengths are compared."""
        form = self.length_normalisation or ("none" if self.length_penalty is None else "average")
        # Wu et al. found 0.6 to 0.7 best.
        exponent = (
            {"none": 0.0, "average": 1.0, "wu": 0.65}[form] if self.length_penalty is None else self.length_penalty
        )
        return LengthPenalty(form, exponent)

    def rules(self, vocabulary: Vocabulary) -> Rules:
        """What may be said, in the ids of a vocabulary.

        Raises:
            UsageError: a required word is not in the vocabulary.
        """
        forced, bad = self._phrases("force_words"), self._phrases("bad_words")
        for text, phrase in forced.items():
            for word in phrase:
                if word not in vocabulary:
                    close = difflib.get_close_matches(word, vocabulary.words, n=1)
                    hint = f'; the nearest is "{close[0]}"' if close else ""
                    raise UsageError(
                        f'"{text}" must occur, but "{word}" is none of the {len(vocabulary)} words that the model '
                        f"knows{hint}."
                    )
        # What has a word that the vocabulary lacks is never said anyway.
        sayable = [phrase for phrase in bad.values() if all(word in vocabulary for word in phrase)]
        endings = sorted(word for word in BAD_ENDINGS if word in vocabulary) if self.no_bad_endings else ()
        return Rules(
            min_length=self.min_length,
            no_repeat_ngram_size=self.no_repeat_ngram_size,
            forbidden=(
                *(_ids(phrase, vocabulary) for phrase in sayable),
                *(((Vocabulary.unknown,),) if self.no_unknown else ()),
            ),
            bad_endings=_ids(endings, vocabulary),
            required=tuple(_ids(phrase, vocabulary) for phrase in forced.values()),
        )

    def changed(self, **changes: Any) -> Self:
        """The settings with some of them changed. Where the change names another search, what only the old one looks
        at goes back to its default.

        Raises:
            UsageError: an unknown name, or a value out of range.
        """
        fields = type(self).model_fields
        for name in changes:
            if name not in fields:
                raise UsageError(f'There is no decode setting "{name}"; {nearest(name, fields)}.')
        kept = self.model_dump()
        if changes.get("search") in _USED and changes["search"] != self.kind:
            gone = {*OF_BEAMS, *OF_GROUPS, *OF_SAMPLES, "num_return_sequences"} - set(_USED[changes["search"]])
            kept = {name: value for name, value in kept.items() if name not in gone}
        return self.checked({**kept, **changes})

    @classmethod
    def checked(cls, content: dict[str, Any]) -> Self:
        """The settings of some content; a bad value is a UsageError in words."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            problem = error.errors()[0]
            where = f"{problem['loc'][0]}: " if problem["loc"] else ""
            raise UsageError(f"{where}{problem['msg'].removeprefix('Value error, ')}.") from error


def _ids(words: Sequence[str], vocabulary: Vocabulary) -> tuple[int, ...]:
    return tuple(vocabulary.encode(words)[1:-1])


# search: which of the settings that not all searches share it looks at
_USED: dict[str, tuple[str, ...]] = {
    "greedy": (),
    "beam": OF_BEAMS,
    "diverse-beam": (*(name for name in OF_BEAMS if name != "force_words"), *OF_GROUPS),
    "sample": OF_SAMPLES,
}
