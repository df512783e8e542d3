"""The decode settings as options, for every verb that searches for captions: `DecodingConfig`, once more for people."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from showtell.captioner import Captioner
    from showtell.decoding import DecodingConfig


class Search(StrEnum):
    """How captions are searched for."""

    greedy = "greedy"
    beam = "beam"
    diverse_beam = "diverse-beam"
    sample = "sample"


class Normalisation(StrEnum):
    """How captions of different lengths are compared."""

    none = "none"
    average = "average"
    wu = "wu"


def _option(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, rich_help_panel="Search")


def _options(
    search: Annotated[
        Search | None, _option(help="How to search; what is not given here and below is as the checkpoint has it.")
    ] = None,
    num_return_sequences: Annotated[int | None, _option(help="Different captions per photo.")] = None,
    max_length: Annotated[int | None, _option(help="At most so many words.")] = None,
    min_length: Annotated[int | None, _option(help="At least so many words.")] = None,
    no_repeat_ngram_size: Annotated[
        int | None, _option(help="No so many words in a row occur twice in a caption; 0 allows all.")
    ] = None,
    bad_words: Annotated[
        list[str] | None,
        _option("--bad-word", metavar="WORDS", help="Never say this word or phrase; may be given several times."),
    ] = None,
    no_bad_endings: Annotated[
        bool | None, _option("--no-bad-endings/--bad-endings", help='End no caption on "a", "of", "with", ...')
    ] = None,
    no_unknown: Annotated[
        bool | None, _option("--no-unknown/--unknown", help="Never say the mark of words outside the vocabulary.")
    ] = None,
    stage: Annotated[
        int | None,
        _option(
            help="Of a model with stages from coarse to fine, whose caption; 0 is the first, and the last is usual."
        ),
    ] = None,
    num_beams: Annotated[int | None, _option(help="Width of the beam; 1 is greedy.")] = None,
    length_penalty: Annotated[
        float | None, _option(help="Beam: exponent on the length; more is longer, and 0 is none.")
    ] = None,
    length_normalisation: Annotated[
        Normalisation | None,
        _option(help="Beam: what is divided by: the length (average) or that of Wu et al., 2016 (wu)."),
    ] = None,
    force_words: Annotated[
        list[str] | None,
        _option("--force-word", metavar="WORDS", help="Beam: say this word or phrase; may be given several times."),
    ] = None,
    num_beam_groups: Annotated[
        int | None, _option(help="Diverse beam: groups that avoid each other's words; divides --num-beams.")
    ] = None,
    diversity_penalty: Annotated[
        float | None, _option(help="Diverse beam: what a word costs that an earlier group has just chosen.")
    ] = None,
    temperature: Annotated[float | None, _option(help="Sample: below 1 safer, above 1 bolder.")] = None,
    top_k: Annotated[int | None, _option(help="Sample: only of the so many likeliest words.")] = None,
    top_p: Annotated[
        float | None, _option(help="Sample: only of the likeliest words that together have this probability.")
    ] = None,
    seed: Annotated[int | None, _option(help="Sample: another one draws other captions.")] = None,
) -> None:
    """What `with_decoding_options` puts into the signature of a verb."""


ALL = tuple(inspect.signature(_options).parameters)


def with_decoding_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb an option for each of some decode settings, in place of its keyword `decoding`.

    The verb gets `decoding` as a dictionary of those that were given, ready for `settings_of`.

    Args:
        names: fields of `DecodingConfig`.
    """

    def give(verb: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(verb)
        def called(**arguments: Any) -> None:
            given = {name: arguments.pop(name) for name in names}
            verb(
                **arguments,
                decoding={
                    name: value.value if isinstance(value, StrEnum) else value
                    for name, value in given.items()
                    if value not in (None, [], ())
                },
            )

        kept = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
            for source, hints in ((verb, _hints(verb)), (_options, _hints(_options)))
            for parameter in inspect.signature(source).parameters.values()
            if parameter.name != "decoding" and (source is verb or parameter.name in names)
        ]
        called.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]  # what typer reads
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in kept}
        return called

    return give


def _hints(function: Callable[..., None]) -> dict[str, Any]:
    return get_type_hints(function, include_extras=True)


Ensemble = Annotated[
    list[str] | None,
    typer.Option(
        "--ensemble",
        help="Another checkpoint, whose probabilities are averaged with the first's; may be given several times.",
        metavar="CHECKPOINT",
        show_default=False,
    ),
]


def open_captioner(checkpoint: str | Path, ensemble: Sequence[str | Path] | None) -> Captioner:
    """A checkpoint, or the average of several."""
    from showtell.captioner import Captioner

    return Captioner.ensemble([checkpoint, *ensemble]) if ensemble else Captioner.from_pretrained(checkpoint)


def settings_of(captioner: Captioner, given: dict[str, Any]) -> DecodingConfig:
    """A checkpoint's decode settings with those that were given on the command line.

    A beam that is given to a checkpoint that draws samples or is greedy asks for a beam.

    Raises:
        UsageError: a value is out of range, or of no effect.
    """
    asked = dict(given)
    if "search" not in given and given.get("num_beams", 1) > 1 and captioner.decoding.search in ("greedy", "sample"):
        asked["search"] = "diverse-beam" if "num_beam_groups" in given else "beam"
    return captioner.settings(**asked)


def without(*names: str) -> Sequence[str]:
    """All decode settings but some."""
    return tuple(name for name in ALL if name not in names)
