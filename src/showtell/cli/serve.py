"""`showtell serve`: captioners behind HTTP, for a page in the browser and for other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from showtell.cli.arguments import CHECKPOINT_HELP, Dtype
from showtell.cli.settings_options import SettingsOptions
from showtell.errors import MissingDependencyError, install_command, notify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from showtell.captioners import Captioner

IF_INTERRUPTED = "what had been asked was answered"
_SETTINGS = SettingsOptions("showtell.serving.settings:ServeSettings", "Server", variables={"token": "SHOWTELL_TOKEN"})


def serve(
    checkpoints: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"{CHECKPOINT_HELP} Several are compared on the page.", metavar="CHECKPOINT...", show_default="small"
        ),
    ] = None,
    dtype: Dtype = None,
    *,
    settings: Annotated[dict[str, Any], _SETTINGS],
) -> None:
    """Serve a page on which photos get captions, and an API.

    It listens on this machine alone unless --host says otherwise. Ctrl-C or SIGTERM end it once what was asked is
    answered, or after 10 seconds.
    """
    import asyncio

    from showtell.serving.settings import ServeSettings

    checked = ServeSettings.checked(settings)
    try:
        from showtell.serving.app import create_app
        from showtell.serving.engine import Engine
        from showtell.serving.server import Server, addresses, listen
    except ImportError as error:
        raise MissingDependencyError(f"showtell serve needs {error.name}: {install_command('serve')}.") from error
    with listen(checked) as listener:
        urls = addresses(checked, listener)
        server = Server(create_app(Engine(_open(checkpoints or ["small"], dtype), checked), checked), checked)

        def announce() -> None:
            typer.echo("\n".join(urls))
            notify("ready; Ctrl-C ends it.")

        asyncio.run(server.run_on(listener, announce))
    if server.interrupted:
        raise KeyboardInterrupt


def _open(checkpoints: Sequence[str], dtype: str | None) -> dict[str, Captioner]:
    """The captioners by short names."""
    from showtell.cli.decoding_options import open_captioner, short_names
    from showtell.cores import describe_threads

    captioners = {}
    for name, checkpoint in zip(short_names(checkpoints), checkpoints, strict=True):
        notify(f"opening {checkpoint}, {describe_threads()} ...")
        captioners[name] = captioner = open_captioner(checkpoint, dtype=dtype)
        notify(f"{checkpoint} {captioner.about.knows}")
    return captioners
