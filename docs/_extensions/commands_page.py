"""The page of every command and option, made from the declarations of the options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from types import NoneType
from typing import get_args, get_origin

from annotated_types import Ge, Le
from settings_tables import row, shown, table, values
from typer.models import ArgumentInfo, OptionInfo

from showtell.cli import main
from showtell.cli.app import VERBS, function_of
from showtell.cli.settings_options import with_settings_options

OPTION = re.compile(r"--[a-z][\w-]*(?:/--[a-z][\w-]*)*")
HEAD = """# Every command and option

What each command takes; `showtell VERB --help` prints the same in the terminal:

```bash
showtell caption --help
```

{exits} Results go to standard output, progress and messages to standard error.
"""
Parameter = tuple[inspect.Parameter, ArgumentInfo | OptionInfo]


def commands_page() -> str:
    """The page."""
    exits = " ".join((inspect.getdoc(main) or "").partition("\n\n")[2].split())
    panels = _shared_panels()
    parts = [HEAD.format(exits=exits)]
    for verb in VERBS:
        parts.append("\n\n".join([f"## `showtell {verb}`", *_verb(verb, panels)]) + "\n")
    for panel, options in panels.items():
        title, _, note = panel.partition(" (")
        note = f"{note[:1].upper()}{note[1:].removesuffix(')')}.\n\n" if note else ""
        parts.append(f"## {title}\n\n{note}{_options(list(options.values()))}\n")
    return "\n".join(parts)


def parameters(verb: str) -> list[Parameter]:
    """The arguments and options of a verb as they are declared."""
    signature = inspect.signature(with_settings_options(function_of(verb)), eval_str=True)
    return [(one, get_args(one.annotation)[1]) for one in signature.parameters.values()]


def _shared_panels() -> dict[str, dict[str, Parameter]]:
    """The panels of options that several verbs have, with all of their options by name."""
    verbs: dict[str, set[str]] = {}
    options: dict[str, dict[str, Parameter]] = {}
    for verb in VERBS:
        for parameter, info in parameters(verb):
            if info.rich_help_panel:
                verbs.setdefault(info.rich_help_panel, set()).add(verb)
                options.setdefault(info.rich_help_panel, {}).setdefault(parameter.name, (parameter, info))
    return {panel: options[panel] for panel, users in verbs.items() if len(users) > 1}


def _verb(verb: str, panels: dict[str, dict[str, Parameter]]) -> Iterator[str]:
    """The paragraphs about a verb."""
    yield _with_code(inspect.getdoc(function_of(verb)) or "")
    every = parameters(verb)
    arguments = [info.metavar or one.name.upper() for one, info in every if isinstance(info, ArgumentInfo)]
    yield f"```text\nshowtell {' '.join([verb, *arguments, '[OPTIONS]'])}\n```"
    yield _options([option for option in every if option[1].rich_help_panel not in panels])
    for panel, options in panels.items():
        names = {parameter.name for parameter, info in every if info.rich_help_panel == panel}
        if names:
            title = panel.partition(" (")[0]
            missing = ", ".join(_names(*options[name]) for name in options if name not in names)
            without = f", but for {missing}" if missing else ""
            yield f"And the options of [{title.lower()}](#{title.lower().replace(' ', '-')}){without}."


def _options(options: Sequence[Parameter]) -> str:
    return table(("argument or option", "value", "default", "description"), [_row(*option) for option in options])


def _row(parameter: inspect.Parameter, info: ArgumentInfo | OptionInfo) -> str:
    variable = f" Environment variable: `{info.envvar}`." if info.envvar else ""
    text = _with_code((info.help or "").replace("\\[", "[")) + variable
    return row(_names(parameter, info), _value(parameter, info), _default(parameter, info), text)


def _names(parameter: inspect.Parameter, info: ArgumentInfo | OptionInfo) -> str:
    """How it is written on the command line; an argument stands for itself."""
    if isinstance(info, ArgumentInfo):
        return f"`{(info.metavar or parameter.name.upper())}`"
    given = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)]
    dashed = parameter.name.replace("_", "-")
    is_switch = get_args(parameter.annotation)[0] is bool
    return ", ".join(f"`{name}`" for name in given or [f"--{dashed}/--no-{dashed}" if is_switch else f"--{dashed}"])


def _value(parameter: inspect.Parameter, info: ArgumentInfo | OptionInfo) -> str:
    kind = get_args(parameter.annotation)[0]
    (kind,) = [one for one in get_args(kind) if one is not NoneType] if NoneType in get_args(kind) else [kind]
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    if isinstance(info, ArgumentInfo) or kind is bool:
        return ""
    if info.metavar:
        return f"`{info.metavar}`"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{one.value}`" for one in kind)
    return values(kind, [make(limit) for make, limit in ((Ge, info.min), (Le, info.max)) if limit is not None])


def _default(parameter: inspect.Parameter, info: ArgumentInfo | OptionInfo) -> str:
    if isinstance(info.show_default, str):
        return _with_code(info.show_default)
    if parameter.default is parameter.empty:
        return "required"
    default = getattr(parameter.default, "value", parameter.default)
    return f"`{shown(default)}`" if info.show_default and default is not None and default is not False else ""


def _with_code(text: str) -> str:
    """A text with its options between backticks."""
    parts = text.split("`")
    parts[::2] = [OPTION.sub(r"`\g<0>`", part) for part in parts[::2]]
    return "`".join(parts)
