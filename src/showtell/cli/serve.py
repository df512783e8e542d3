"""`showtell serve`: captioners behind HTTP, for a page in the browser and for other programs."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from showtell.cli.arguments import CHECKPOINT_HELP, Dtype
from showtell.cli.settings_options import SettingsOptions
from showtell.errors import MissingDependencyError, UsageError, notify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic.fields import FieldInfo

    from showtell.captioners import Captioner
    from showtell.config import Config
    from showtell.serving.engine import Engine
    from showtell.serving.settings import ServeSettings

IF_INTERRUPTED = "what had been asked was answered"
RUNS_UNTIL_STOPPED = True


class EngineName(StrEnum):
    """What answers."""

    plain = "plain"
    ray = "ray"


class ServeOptions(SettingsOptions):
    """The settings of a server."""

    panel = "Server"
    variables = {"token": "SHOWTELL_TOKEN"}  # noqa: RUF012

    def config(self) -> type[Config]:
        """The class of the settings."""
        from showtell.serving.settings import ServeSettings

        return ServeSettings

    def default_of(self, field: FieldInfo) -> str | bool:
        """The default that the help shows."""
        if isinstance(field.default, bool):
            return False  # a switch shows both its forms
        if field.default is None:
            return "none"
        return str(field.default)


def serve(
    checkpoints: Annotated[
        list[str],
        typer.Argument(
            help=f"{CHECKPOINT_HELP} Several can be compared on the page.",
            metavar="CHECKPOINT...",
            show_default=False,
        ),
    ],
    dtype: Dtype = None,
    engine: Annotated[
        EngineName, typer.Option(help="Answer in this process, or in replicas of Ray on one machine or many.")
    ] = EngineName.plain,
    replicas: Annotated[
        int | None, typer.Option(help="Number of replicas of --engine ray.", min=1, max=1000, show_default="1")
    ] = None,
    *,
    settings: Annotated[dict[str, Any], ServeOptions()],
) -> None:
    """Serve captioners: a page on which photos get captions, and an API for other programs.

    It listens on this machine alone unless --host says otherwise. Ctrl-C or SIGTERM end it once what was asked is
    answered.
    """
    import asyncio

    from showtell.serving.settings import ServeSettings

    if replicas is not None and engine is not EngineName.ray:
        raise UsageError("--replicas are of --engine ray; give that too.")
    checked = ServeSettings.checked(settings)
    try:
        from showtell.serving.app import create_app
        from showtell.serving.server import Server, addresses, listen
    except ImportError as error:
        raise MissingDependencyError(f'showtell serve needs {error.name}; pip install "showtell[serve]".') from error
    with listen(checked) as listener:
        urls = addresses(checked, listener)
        server = Server(create_app(_make_engine(engine, checkpoints, dtype, replicas, checked), checked), checked)

        def announce() -> None:
            typer.echo("\n".join(urls))
            notify("ready; Ctrl-C ends it.")

        asyncio.run(server.run_on(listener, announce))
    if server.interrupted:
        raise KeyboardInterrupt


def _make_engine(
    name: EngineName, checkpoints: Sequence[str], dtype: str | None, replicas: int | None, settings: ServeSettings
) -> Engine:
    """What answers questions to the captioners of some checkpoints."""
    from showtell.cli.explain import short_names
    from showtell.serving.batcher import LocalEngine
    from showtell.serving.ray_engine import RayEngine, require_ray_serve

    if name is EngineName.ray:
        require_ray_serve()
    captioners = _open(dict(zip(short_names(checkpoints), checkpoints, strict=True)), dtype)
    return (
        RayEngine(captioners, settings, replicas or 1) if name is EngineName.ray else LocalEngine(captioners, settings)
    )


def _open(checkpoints: Mapping[str, str], dtype: str | None) -> dict[str, Captioner]:
    """The captioners by name, with their calibrations where they have one."""
    from showtell.checkpoint import CALIBRATION
    from showtell.cli.decoding_options import open_captioner
    from showtell.cores import describe_threads
    from showtell.errors import CheckpointError

    captioners = {}
    for name, checkpoint in checkpoints.items():
        notify(f"opening {checkpoint}, {describe_threads()} ...")
        captioners[name] = captioner = open_captioner(checkpoint, dtype=dtype)
        folder = captioner.about.folder
        if folder is not None and (folder / CALIBRATION).is_file():
            try:
                captioner.load_calibration()
            except CheckpointError as error:
                notify(f"{error} Until then confidences are not calibrated.")
    return captioners
