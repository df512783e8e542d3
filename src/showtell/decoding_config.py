"""The settings of decoding, declared once for recipes, checkpoints, calls and the command line, and what they mean.

The module loads without torch, so that the command line can make its options and its help from it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from showtell.config import Config
from showtell.errors import UsageError, nearest
from showtell.registry import Registry
from showtell.text.endings import BAD_ENDINGS
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import SPECIAL, Vocabulary

# What a caption may repeat under `no_repeat_words`: of the 19 tokens in Peter Anderson's Up-Down-Captioner
# (`allowed_multiple`), those but the comma and quotation marks, which our tokenizer drops.
FUNCTION_WORDS = frozenset(
    ["a", "an", "and", "are", "at", "by", "in", "is", "it", "of", "on", "some", "that", "the", "to", "with"]
)


@dataclass(frozen=True)
class Rules:
    """What captions may contain, in ids of a vocabulary."""

    min_length: int = 0  # words before end is allowed
    no_repeat_ngram_size: int = 0  # no n-gram of this size occurs twice; 0 is no rule
    repeatable: tuple[int, ...] | None = None  # no other word occurs twice; None is no rule
    forbidden: tuple[tuple[int, ...], ...] = ()  # words and phrases that do not occur
    bad_endings: tuple[int, ...] = ()  # words that no caption ends on
    prefix: tuple[int, ...] = ()  # words that captions begin with, whatever the other rules say of them


@dataclass(frozen=True)
class Search:
    """A search, and the settings that it uses beside those that all searches share."""

    settings: tuple[str, ...]
    # (decoder, features, config, *, rules, image_ids, keep_outputs) to `decoding.Captions`; None of those of showtell,
    # which `decoding/searches.py` runs.
    run: Callable[..., Any] | None = None


SAMPLING = ("temperature", "top_k", "top_p", "seed")  # also the names in `decoding.sample`
SEARCHES: Registry[Search] = Registry(
    "showtell.searches",
    {"greedy": Search(()), "beam": Search(("num_beams", "length_penalty")), "sample": Search(SAMPLING)},
    expects="a showtell.decoding.Search whose settings are fields of DecodingConfig",
    accepts=lambda _, entry: isinstance(entry, Search) and DecodingConfig.model_fields.keys() >= set(entry.settings),
)


class DecodingConfig(Config):
    """How captions are searched for. The names are those of Hugging Face `generate`, where it has one."""

    search: str | None = Field(
        None,
        description="Search algorithm: greedy, beam, sample, or one that an installed package adds. If not set: "
        "`num_beams` above 1 selects beam search, otherwise greedy.",
    )
    num_return_sequences: int = Field(1, ge=1, le=1000, description="Number of different captions per image.")
    min_length: int = Field(
        0, ge=0, description="Minimum number of words (transformers: tokens), without the end token."
    )
    max_length: int = Field(
        20, ge=1, le=1000, description="Maximum number of words (transformers: tokens), without the end token."
    )
    no_repeat_ngram_size: int = Field(
        0, ge=0, le=1000, description="Forbid repeated n-grams of this size; 0 allows all."
    )
    no_repeat_words: bool = Field(
        False,
        description='Forbid repeated words, except "a", "of", "with" and other listed function words (the rule of the '
        "release of El Baz 2020).",
    )
    bad_words: tuple[str, ...] = Field((), description="Words and phrases that captions must not contain.")
    no_bad_endings: bool = Field(
        False, description='Forbid captions that end on "a", "of", "with" or another word that cannot end a sentence.'
    )
    no_unknown: bool = Field(False, description="Forbid the token of unknown words.")
    stage: int | None = Field(
        None, ge=0, description="Decoding stage of a multi-stage model, counted from 0 (default: the last)."
    )
    prompt: str | None = Field(
        None,
        description="Text that a captioner of transformers continues or answers (default: that of the model's family); "
        "the models of showtell take none.",
    )
    num_beams: int = Field(1, ge=1, le=1000, description="Beam width; 1 is greedy search.")
    length_penalty: float | None = Field(
        None, ge=-10, le=10,
        description="Exponent of the length by which beams divide the log-probability: 0 does not divide, 1 is the "
        "mean; higher values favour longer captions (default: 0; for a captioner of transformers its own).",
    )  # fmt: skip
    prefix: str | None = Field(None, description="Words that captions begin with; other rules hold after them.")
    temperature: float = Field(
        1.0, ge=1e-6, le=1e6, description="Sampling temperature, dividing the logits; below 1 safer, above more varied."
    )
    top_k: int | None = Field(None, ge=1, description="Sample from the k most likely tokens (default: all).")
    top_p: float = Field(
        1.0, ge=1e-6, le=1, description="Sample from the fewest top tokens of at least this probability; 1 keeps all."
    )
    seed: int = Field(0, description="Random seed of sampling.")

    @field_validator("bad_words", mode="before")
    @classmethod
    def _string_to_tuple(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("search")
    @classmethod
    def _is_known(cls, value: str | None) -> str | None:
        if value is not None and value not in SEARCHES:
            raise ValueError(f'there is no search "{value}"; {nearest(value, SEARCHES)}')
        return value

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        for problem in (*self._problems(), *self._contradictions()):
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        """Numbers that contradict each other, and settings that the search does not use."""
        if self.min_length > self.max_length:
            yield f"min_length={self.min_length} is above max_length={self.max_length}; lower one or raise the other"
        for name in _search_settings():
            value = getattr(self, name)
            is_default = value == type(self).model_fields[name].default
            if is_default or name == "seed" or name in SEARCHES[self.kind].settings:  # a seed is part of every call
                continue
            others = " or ".join(f"search={key}" for key, search in SEARCHES.items() if name in search.settings)
            shown = ",".join(value) if isinstance(value, tuple) else value
            yield f"{name}={shown} has no effect with search={self.kind}; use {others}"
        wanted = self.num_return_sequences
        if self.kind != "sample" and wanted > self.num_beams:
            yield (
                f"num_return_sequences={wanted} asks for more captions than num_beams={self.num_beams} finds; "
                "raise num_beams, or use search=sample"
            )

    def _contradictions(self) -> Iterator[str]:
        """Forbidden words in the prefix."""
        bad, begin = _phrases(self.bad_words), _phrases(() if self.prefix is None else (self.prefix,))
        for text, phrase in (bad | begin).items():
            if not phrase:
                yield f'"{text}" has no words in it; leave it out'
        for text, phrase in begin.items():
            for other, part in bad.items():
                if f" {' '.join(part)} " in f" {' '.join(phrase)} ":
                    yield f'"{text}" must occur and has "{other}" in it, which must not; leave one of them out'

    @property
    def kind(self) -> str:
        """The name of the search, which other settings imply where it is not set."""
        return self.search or ("beam" if self.num_beams > 1 else "greedy")

    def rules(self, vocabulary: Vocabulary) -> Rules:
        """The rules in ids of a vocabulary; a UsageError if the prefix is too long, or has other words."""
        begin = () if self.prefix is None else tuple(vocabulary.split(self.prefix))
        for word in begin:
            if word not in vocabulary or word in SPECIAL[: Vocabulary.unknown]:
                close = difflib.get_close_matches(word, vocabulary.words, n=1)
                hint = f'; the nearest is "{close[0]}"' if close else ""
                raise UsageError(
                    f'captions should begin with "{self.prefix}", but the model does not know "{word}"{hint}.'
                )
        if len(begin) > self.max_length:
            raise UsageError(f"prefix has {len(begin)} words and max_length is {self.max_length}; raise it.")
        # A phrase with a word that the vocabulary lacks cannot occur anyway.
        phrases = map(vocabulary.split, self.bad_words)
        known = [phrase for phrase in phrases if all(word in vocabulary for word in phrase)]
        forbidden = [_ids(phrase, vocabulary) for phrase in known] + [(Vocabulary.unknown,)] * self.no_unknown
        endings = sorted(word for word in BAD_ENDINGS if word in vocabulary) if self.no_bad_endings else ()
        repeatable = sorted(word for word in FUNCTION_WORDS if word in vocabulary)
        return Rules(
            min_length=self.min_length,
            no_repeat_ngram_size=self.no_repeat_ngram_size,
            repeatable=_ids(repeatable, vocabulary) if self.no_repeat_words else None,
            forbidden=tuple(forbidden),
            bad_endings=_ids(endings, vocabulary),
            prefix=_ids(begin, vocabulary),
        )

    def over(self, defaults: Self) -> Self:
        """These settings, those that were not given as in `defaults`; a UsageError if the two contradict each other."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return self if given.keys() == type(self).model_fields.keys() else defaults.changed(**given)

    def changed(self, **changes: Any) -> Self:
        """A copy with some settings changed; a UsageError for an unknown name, or a value out of range.

        A change of the search resets settings that the new one does not use. A beam width given to settings that sample
        or decode greedily selects beam search; a width of 1 alone is greedy.
        """
        fields = type(self).model_fields
        for name in changes:
            if name not in fields:
                raise UsageError(f'There is no decoding setting "{name}"; {nearest(name, fields)}.')
        if "search" not in changes and changes.get("num_beams", 1) != 1 and self.search in ("greedy", "sample"):
            changes["search"] = "beam"
        kind, kept = str(changes.get("search") or ""), self.model_dump()
        if changes.get("num_beams") == 1 and not (kind or self.search):
            kind = "greedy"
        if kind in SEARCHES and kind != self.kind:
            unused = {*_search_settings(), "num_return_sequences"} - set(SEARCHES[kind].settings)
            kept = {name: value for name, value in kept.items() if name not in unused}
        return self.checked({**type(self)().model_dump(), **kept, **changes})


def _phrases(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The words of each text."""
    return {text: tuple(tokenize(text)) for text in texts}


def _ids(words: Sequence[str], vocabulary: Vocabulary) -> tuple[int, ...]:
    return tuple(vocabulary.encode(words)[1:-1])


def _search_settings() -> list[str]:
    """The settings that not all searches use, in the order of the fields."""
    used = {name for search in SEARCHES.values() for name in search.settings}
    return [name for name in DecodingConfig.model_fields if name in used]
