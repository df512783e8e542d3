"""The settings of decoding as options of a verb, made from the fields of `DecodingConfig`."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer

from showtell.errors import UsageError, notify

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from showtell.captioners import Captioner
    from showtell.decoding_config import DecodingConfig
    from showtell.features.store import FeatureStore


class DecodingOptions:
    """Marks the parameter of a verb that takes decoding settings: `decoding: Annotated[dict[str, Any], ...]`.

    Args:
        only: the settings that get an option; all of them if not given.
        without: settings that get none.
    """

    def __init__(self, *only: str, without: Sequence[str] = ()) -> None:
        self._only = only
        self._without = without

    def fields(self) -> dict[str, FieldInfo]:
        """The settings that get an option."""
        from showtell.decoding_config import DecodingConfig

        fields = DecodingConfig.model_fields
        return {name: fields[name] for name in self._only or fields if name not in self._without}


Decoding = Annotated[dict[str, Any], DecodingOptions()]  # all settings
DecodingOfOne = Annotated[dict[str, Any], DecodingOptions(without=["num_return_sequences"])]  # one caption per image


def with_decoding_options(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb with an option for each decoding setting in place of the parameter that `DecodingOptions` marks.

    The verb gets a dictionary of the settings that were given, ready for `settings_of`. A verb without such a parameter
    is returned as it is.
    """
    hints = get_type_hints(verb, include_extras=True)
    parameters = [
        parameter.replace(annotation=hints[name]) for name, parameter in inspect.signature(verb).parameters.items()
    ]
    marked = next((one for one in parameters if _mark(one.annotation) is not None), None)
    if marked is None:
        return verb
    fields = _mark(marked.annotation).fields()  # type: ignore[union-attr]

    @functools.wraps(verb)
    def call(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in fields}
        settings = {name: value for name, value in given.items() if value not in (None, [], ())}
        verb(**arguments, **{marked.name: settings})

    kept = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters if one is not marked]
    signature = inspect.Signature([*kept, *(_parameter(name, field) for name, field in fields.items())])
    call.__signature__ = signature  # type: ignore[attr-defined]  # what typer reads
    call.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return call


def _mark(annotation: Any) -> DecodingOptions | None:
    parts = get_args(annotation) if get_origin(annotation) is Annotated else ()
    return next((part for part in parts if isinstance(part, DecodingOptions)), None)


def option_name(name: str, field: FieldInfo) -> str:
    """The option of a setting: a list is given one value at a time, and a switch has both its forms.

    >>> from showtell.decoding_config import DecodingConfig
    >>> fields = DecodingConfig.model_fields
    >>> [option_name(name, fields[name]) for name in ("num_beams", "force_words", "no_unknown")]
    ['--num-beams', '--force-word', '--no-unknown/--unknown']
    """
    dashed = name.replace("_", "-")
    if get_origin(field.annotation) is tuple:
        return f"--{dashed.removesuffix('s')}"
    if field.annotation is bool:
        return f"--{dashed}/--{dashed.removeprefix('no-')}" if name.startswith("no_") else f"--{dashed}/--no-{dashed}"
    return f"--{dashed}"


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    kind: Any = field.annotation
    help = re.sub(r"`(\w+)`", _option_of, field.description or "")
    metavar = None
    if get_origin(kind) is tuple:
        kind, metavar = list[get_args(kind)[0]], "WORDS"  # type: ignore[misc]
        help += " Can be repeated."
    if NoneType in get_args(kind):
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    option = typer.Option(
        option_name(name, field),
        help=help,
        metavar=metavar,
        show_default=False,
        rich_help_panel="Decoding (default: the settings of the checkpoint)",
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _option_of(match: re.Match[str]) -> str:
    """A setting that a description names, as the command line has it."""
    from showtell.decoding_config import DecodingConfig

    field = DecodingConfig.model_fields.get(match[1])
    return match[0] if field is None else option_name(match[1], field)


def open_captioner(checkpoint: str, ensemble: Sequence[str] | None = None, dtype: str | None = None) -> Captioner:
    """A captioner, or the average of several checkpoints.

    Raises:
        UsageError: a precision is given for an ensemble.
    """
    from showtell.captioners import Captioner

    if not ensemble:
        return Captioner.from_pretrained(checkpoint, dtype=dtype)
    if dtype is not None:
        raise UsageError("--ensemble averages checkpoints of showtell, which compute in fp32; leave --dtype out.")
    return Captioner.ensemble([checkpoint, *ensemble])


def looks_at_photos(captioner: Captioner, title: str, store: FeatureStore | None) -> bool:
    """Whether a captioner does not read a store that others read; then it looks at the photos, and that is said."""
    if store is None or captioner.reads(store):
        return False
    notify(f"{title} does not read the features in {store.path}; it looks at the photos.")
    return True


def settings_of(captioner: Captioner, given: Mapping[str, Any]) -> DecodingConfig:
    """A checkpoint's decoding settings with those that were given on the command line.

    A beam width given to a checkpoint that samples or decodes greedily selects beam search.

    Raises:
        UsageError: a value is out of range, or without effect.
    """
    return captioner.settings(**captioner.decoding.with_implied_search(given))
