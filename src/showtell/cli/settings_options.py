"""Settings as options of a verb, made from the fields that declare them."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from showtell.config import Config


@dataclass(frozen=True)
class SettingsOptions:
    """Marks a parameter of a verb that takes settings: `settings: Annotated[dict[str, Any], SettingsOptions(...)]`."""

    settings: str  # module and class, imported when the verb is called
    panel: str  # of the help
    without: tuple[str, ...] = ()  # settings that get no option
    shows_defaults: bool = True  # in the help, where they are not those of a checkpoint
    variables: Mapping[str, str] = field(default_factory=dict)  # settings that the environment has, too

    def fields(self) -> dict[str, FieldInfo]:
        """The settings that get an option."""
        module, name = self.settings.split(":")
        config: type[Config] = getattr(import_module(module), name)
        return {name: field for name, field in config.model_fields.items() if name not in self.without}


def with_settings_options(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb with options in place of its parameters of `SettingsOptions`, which get dictionaries of what was given."""
    hints = get_type_hints(verb, include_extras=True)
    marks = {name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated}
    marked = {name: mark for name, mark in marks.items() if isinstance(mark, SettingsOptions)}

    @functools.wraps(verb)
    def call(**arguments: Any) -> None:
        for parameter, options in marked.items():
            given = {name: arguments.pop(name) for name in options.fields()}
            arguments[parameter] = {name: value for name, value in given.items() if value not in (None, [], ())}
        verb(**arguments)

    parameters = [
        parameter.replace(annotation=hints[name], kind=parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(verb).parameters.items()
        if name not in marked
    ]
    parameters += [_parameter(name, field, mark) for mark in marked.values() for name, field in mark.fields().items()]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def option_name(name: str, setting: FieldInfo) -> str:
    """The option of a setting: a list is given one value at a time, and a switch has both its forms."""
    dashed = name.replace("_", "-")
    if get_origin(setting.annotation) is tuple:
        return f"--{dashed.removesuffix('s')}"
    if setting.annotation is bool:
        return f"--{dashed}/--{dashed.removeprefix('no-')}" if name.startswith("no_") else f"--{dashed}/--no-{dashed}"
    return f"--{dashed}"


def _parameter(name: str, setting: FieldInfo, options: SettingsOptions) -> inspect.Parameter:
    """A setting as a parameter that typer makes an option of."""
    kind: Any = setting.annotation
    help = re.sub(r"`(\w+)`", lambda named: f"--{named[1].replace('_', '-')}", setting.description or "")
    is_list = get_origin(kind) is tuple
    if is_list:
        kind, help = list[get_args(kind)[0]], f"{help} Can be repeated."  # type: ignore[misc]
    if NoneType in get_args(kind):
        (kind,) = (part for part in get_args(kind) if part is not NoneType)
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    default = "none" if setting.default is None else str(setting.default)
    option = typer.Option(
        option_name(name, setting),
        help=help,
        metavar="WORDS" if is_list else None,
        show_default=default if options.shows_defaults and kind is not bool else False,
        rich_help_panel=options.panel,
        envvar=options.variables.get(name),
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )
