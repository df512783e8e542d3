"""Settings as options of a verb, made from the fields that declare them."""

from __future__ import annotations

import abc
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

import typer

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from showtell.config import Config


class SettingsOptions(abc.ABC):
    """Marks the parameter of a verb that takes settings: `settings: Annotated[dict[str, Any], ...]`.

    Args:
        only: the settings that get an option; all of them if not given.
        without: settings that get none.
    """

    panel: ClassVar[str]  # of the help
    variables: ClassVar[Mapping[str, str]] = {}  # settings that are also read from variables of the environment

    def __init__(self, *only: str, without: Sequence[str] = ()) -> None:
        self._only = only
        self._without = without

    @abc.abstractmethod
    def config(self) -> type[Config]:
        """The class of the settings; called when the verb is."""

    def default_of(self, field: FieldInfo) -> str | bool:
        """The default that the help shows; False: none."""
        return False

    def fields(self) -> dict[str, FieldInfo]:
        """The settings that get an option."""
        fields = self.config().model_fields
        return {name: fields[name] for name in self._only or fields if name not in self._without}


def with_settings_options(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb with an option for each setting in place of the parameters that `SettingsOptions` marks.

    The verb gets dictionaries of the settings that were given. A verb without such a parameter is returned as it is.
    """
    hints = get_type_hints(verb, include_extras=True)
    parameters = [
        parameter.replace(annotation=hints[name]) for name, parameter in inspect.signature(verb).parameters.items()
    ]
    marked = {one.name: mark for one in parameters if (mark := _mark(one.annotation))}
    if not marked:
        return verb

    @functools.wraps(verb)
    def call(**arguments: Any) -> None:
        for parameter, options in marked.items():
            given = {name: arguments.pop(name) for name in options.fields()}
            arguments[parameter] = {name: value for name, value in given.items() if value not in (None, [], ())}
        verb(**arguments)

    kept = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters if one.name not in marked]
    made = [_parameter(name, field, mark) for mark in marked.values() for name, field in mark.fields().items()]
    signature = inspect.Signature([*kept, *made])
    call.__signature__ = signature  # type: ignore[attr-defined]  # what typer reads
    call.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return call


def _mark(annotation: Any) -> SettingsOptions | None:
    parts = get_args(annotation) if get_origin(annotation) is Annotated else ()
    return next((part for part in parts if isinstance(part, SettingsOptions)), None)


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


def _parameter(name: str, field: FieldInfo, options: SettingsOptions) -> inspect.Parameter:
    kind: Any = field.annotation
    config = options.config()
    help = re.sub(r"`(\w+)`", lambda match: _option_of(match, config), field.description or "")
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
        show_default=options.default_of(field),
        rich_help_panel=options.panel,
        envvar=options.variables.get(name),
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def _option_of(match: re.Match[str], config: type[Config]) -> str:
    """A setting that a description names, as the command line has it."""
    field = config.model_fields.get(match[1])
    return match[0] if field is None else option_name(match[1], field)
