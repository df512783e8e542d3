"""`showtell serve` under load: overhead, throughput, other servers, overload.

    python benchmarks/serve.py [one many others overload]
                               [--litserve PYTHON] [--bentoml PYTHON] [--checkpoint FOLDER PHOTOS] [--json]

  one       one client against the captioner in this process, on the same photos in turn
  many      32 clients against `caption_photos` over the same photos in a folder, in turn
  others    32 clients of servers that caption in batches of up to 32 with the same captioner: LitServe and BentoML,
            by pythons of their own that can import showtell, too; without one of them it is skipped aloud
  overload  128 clients that ask again at once whatever they get, and a queue of 32

Without --checkpoint the captioner has random weights: a small CNN and Show, Attend and Tell, five beams, photos of
500 x 375. Clients and server share the machine. Ratios are medians of --repeats rounds in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caption_folder import write_photos
from rows import show
from showtell.captioners import Captioner, EncoderDecoderCaptioner
from showtell.decoding import DecodingConfig
from showtell.features.small_cnn import SmallCnn, SmallCnnConfig
from showtell.models.sat import SatConfig, SatDecoder
from showtell.text.vocabulary import SPECIAL, Vocabulary

import psutil
import torch

HERE = Path(__file__).parent
CLIENTS = 32
WORDS = 1000


def write_checkpoint(folder: Path) -> Path:
    """A captioner with random weights."""
    torch.manual_seed(0)
    vocabulary = Vocabulary([f"word{number}" for number in range(WORDS - len(SPECIAL))])
    encoder = SmallCnn(SmallCnnConfig(image_size=96))
    decoder = SatDecoder(SatConfig(), feature_size=encoder.feature_size, vocabulary_size=len(vocabulary))
    captioner = EncoderDecoderCaptioner(
        encoder=encoder.eval(), decoder=decoder.eval(), vocabulary=vocabulary, decoding=DecodingConfig(num_beams=5)
    )
    captioner.save_pretrained(folder)
    return folder


# --- servers and clients ---


@dataclass
class Server:
    """A process that serves."""

    process: psutil.Popen
    port: int
    path: str = "/v1/captions"
    field: str | None = None  # of the form in which photos are sent; None: they are the body

    def cpu(self) -> float:
        """Seconds of processor that it and its children have used."""
        tree = [self.process, *self.process.children(recursive=True)]
        return sum(sum(process.cpu_times()[:2]) for process in tree)

    async def post(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], photo: bytes) -> tuple[int, float]:
        """Post a photo with little more than its bytes, so that it costs little; status and seconds."""
        began, (reader, writer) = time.perf_counter(), streams
        body, kind = photo, "image/jpeg"
        if self.field is not None:
            head = f'--b\r\nContent-Disposition: form-data; name="{self.field}"; filename="a.jpg"\r\n'
            body = f"{head}Content-Type: image/jpeg\r\n\r\n".encode() + photo + b"\r\n--b--\r\n"
            kind = "multipart/form-data; boundary=b"
        head = f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
        writer.write(f"{head}Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        (length,) = [int(line.partition(":")[2]) for line in lines if line.startswith("content-length:")]
        await reader.readexactly(length)
        return int(lines[0].split()[1]), time.perf_counter() - began


@contextlib.contextmanager
def serving(*command: str, port: int, environment: dict[str, str] | None = None, **about: Any) -> Iterator[Server]:
    """A server, once it takes connections."""
    with tempfile.TemporaryFile() as log:
        variables = {**os.environ, **(environment or {})}
        process = psutil.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=variables, cwd=HERE)
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                if process.poll() is not None:
                    log.seek(0)
                    raise SystemExit(f"{' '.join(command)} ended: {log.read().decode(errors='replace')[-2000:]}")
                time.sleep(0.2)
            yield Server(process, port, **about)
        finally:
            children = process.children(recursive=True)
            process.terminate()
            for one in psutil.wait_procs([process, *children], timeout=20)[1]:
                one.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def showtell_server(setup: Setup, *options: str) -> contextlib.AbstractContextManager[Server]:
    """`showtell serve`."""
    port = free_port()
    command = (sys.executable, "-m", "showtell", "serve", str(setup.checkpoint), "--port", str(port), *options)
    return serving(*command, port=port)


@dataclass
class Load:
    """What clients met."""

    seconds: float
    statuses: Counter[int]
    times: list[float]  # of the photos that were captioned, in ascending order

    @property
    def rate(self) -> float:
        """Captioned photos per second."""
        return len(self.times) / self.seconds

    def quantile(self, share: float) -> float:
        """Milliseconds within which this share of the captions came."""
        return 1e3 * self.times[min(len(self.times) - 1, int(share * len(self.times)))]


def load(server: Server, photos: Sequence[bytes], clients: int = CLIENTS) -> Load:
    """Clients that each ask for a photo once the one before is answered."""

    async def run() -> Load:
        remaining, answers = iter(photos), []

        async def client() -> None:
            streams = await asyncio.open_connection("127.0.0.1", server.port)
            for photo in remaining:
                answers.append(await server.post(streams, photo))
            streams[1].close()

        began = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(clients)))
        statuses = Counter(status for status, _ in answers)
        return Load(time.perf_counter() - began, statuses, sorted(took for status, took in answers if status == 200))

    return asyncio.run(run())


# --- parts ---


@dataclass
class Setup:
    """What is measured with."""

    checkpoint: Path
    captioner: Captioner
    paths: list[Path]
    photos: list[bytes]
    repeats: int
    litserve: str | None
    bentoml: str | None


def row(name: str, value: float, unit: str, against: str, base: float) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "against": against, "ratio": value / base}


def measure_one(setup: Setup) -> list[dict[str, Any]]:
    """One client."""
    own, asked = [], []
    with showtell_server(setup) as server:
        for photo in setup.photos[:1] + setup.photos[:100] * setup.repeats:
            began = time.perf_counter()
            setup.captioner.caption(photo)
            own.append(1e3 * (time.perf_counter() - began))
            asked.append(load(server, [photo], 1).quantile(0.5))
    alone, served = statistics.median(own[1:]), statistics.median(asked[1:])
    return [row("one_client", served, "ms", f"the captioner alone, {alone:.1f} ms", alone)]


def measure_many(setup: Setup) -> list[dict[str, Any]]:
    """Many clients against a folder."""
    folder, served = [], []
    with showtell_server(setup) as server:
        load(server, setup.photos[:CLIENTS])  # to warm up
        for _ in range(setup.repeats):
            began = time.perf_counter()
            count = sum(1 for _ in setup.captioner.caption_photos(setup.paths, batch_size=CLIENTS, first_alone=False))
            folder.append(count / (time.perf_counter() - began))
            served.append(load(server, setup.photos))
    rate = statistics.median(one.rate for one in served)
    share = statistics.median(one.rate / base for one, base in zip(served, folder, strict=True))
    p99 = statistics.median(one.quantile(0.99) for one in served)
    against = f"a folder, {statistics.median(folder):.0f}/s (median of ratios; p99 {p99:.0f} ms)"
    return [row("32_clients", rate, "photos/s", against, rate / share)]


def measure_others(setup: Setup) -> list[dict[str, Any]]:
    """The same clients, captioner and largest batch with other servers, in turn."""
    environment = {"CHECKPOINT": str(setup.checkpoint), "MAX_BATCH": str(CLIENTS)}
    loads: dict[str, list[tuple[Load, float]]] = {}
    for _ in range(setup.repeats):
        servers = {"showtell": showtell_server(setup)}
        for name, python in (("LitServe", setup.litserve), ("BentoML", setup.bentoml)):
            port = free_port()
            if python is None:
                print(f"{name} is skipped: --{name.lower()} names no python that has it.", file=sys.stderr)
            elif name == "LitServe":
                command = (python, str(HERE / "serve_litserve.py"), str(port))
                servers[name] = serving(*command, port=port, environment=environment, path="/predict", field="request")
            else:
                command = (python, "-m", "bentoml", "serve", "serve_bentoml:Front", "--port", str(port))
                servers[name] = serving(*command, port=port, environment=environment, path="/caption", field="image")
        for name, one in servers.items():
            with one as server:
                wait_until_it_answers(server, setup.photos[0])
                load(server, setup.photos[: 2 * CLIENTS])  # to warm up
                before, met = server.cpu(), load(server, setup.photos)
                print(name, dict(met.statuses), file=sys.stderr)
                loads.setdefault(name, []).append((met, 1e3 * (server.cpu() - before) / len(setup.photos)))
    rows, own = [], loads["showtell"]
    for name, met in loads.items():
        rate, own_rate = (statistics.median(one.rate for one, _ in some) for some in (met, own))
        p99, own_p99 = (statistics.median(one.quantile(0.99) for one, _ in some) for some in (met, own))
        cpu = statistics.median(cpu for _, cpu in met)
        rows.append(row(f"rate_{name}", rate, "photos/s", f"showtell's ({cpu:.1f} ms of processor each)", own_rate))
        rows.append(row(f"p99_{name}", p99, "ms", "showtell's", own_p99))
    return rows


def wait_until_it_answers(server: Server, photo: bytes) -> None:
    """Some servers take connections before they can answer."""
    for _ in range(300):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if load(server, [photo], 1).times:
                return
        time.sleep(0.2)
    raise SystemExit("A server does not answer.")


def measure_overload(setup: Setup) -> list[dict[str, Any]]:
    """Four times the clients, and a queue as short as a batch."""
    with showtell_server(setup, "--queue", str(CLIENTS)) as server:
        load(server, setup.photos[: 2 * CLIENTS])  # to warm up
        normal, over = load(server, setup.photos), load(server, setup.photos * 8, 4 * CLIENTS)
    sent = f"32 clients ({over.statuses[429]:,} of {over.statuses.total():,} sent away)"
    return [
        row("overload_rate", over.rate, "photos/s", sent, normal.rate),
        row("overload_p99", over.quantile(0.99), "ms", "32 clients", normal.quantile(0.99)),
    ]


PARTS = {"one": measure_one, "many": measure_many, "others": measure_others, "overload": measure_overload}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=list(PARTS))
    parser.add_argument("--checkpoint", nargs=2, type=Path, metavar=("FOLDER", "PHOTOS"))
    parser.add_argument("--litserve", help="python of an environment that has LitServe, and can import showtell")
    parser.add_argument("--bentoml", help="python of an environment that has BentoML, and can import showtell")
    parser.add_argument("--photos", type=int, default=600, help="different photos")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.checkpoint is None:
            (folder / "photos").mkdir()
            paths, checkpoint = write_photos(folder / "photos", given.photos), write_checkpoint(folder / "random")
        else:
            checkpoint, photos = given.checkpoint
            paths = sorted(photos.iterdir())[: given.photos]
        contents = [path.read_bytes() for path in paths]
        captioner = Captioner.from_pretrained(checkpoint, device="cpu")
        captioner.caption(paths[:2])  # to warm up
        setup = Setup(checkpoint.resolve(), captioner, paths, contents, given.repeats, given.litserve, given.bentoml)
        rows = [row for part in given.parts for row in PARTS[part](setup)]
    show(rows, given.json)


if __name__ == "__main__":
    main()
