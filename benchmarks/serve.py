"""`showtell serve` under load: overhead, throughput, other servers, overload, slow senders, broken photos.

    python benchmarks/serve.py [one many others overload slow broken]
                               [--litserve PYTHON] [--bentoml PYTHON] [--checkpoint FOLDER PHOTOS] [--json]

  one       one client against the captioner in this process, on the same photos in turn
  many      32 clients against `caption_photos` over the same photos in a folder, in turn
  others    32 clients of servers that caption in batches of up to 32 with the same captioner: LitServe and BentoML,
            by pythons of their own that can import showtell, too; without one of them it is skipped aloud
  overload  four times the requests that 32 clients get answered, for a minute
  slow      200 connections that send a byte a second, beside 8 clients
  broken    10,000 requests, one in twenty of them broken, each held against the captioner's own answer

Without --checkpoint the captioner has random weights: a small CNN and Show, Attend and Tell, five beams, photos of
500 x 375. Clients and server share the machine. Ratios are medians of --repeats rounds in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from caption_folder import write_photos
from rows import show
from showtell.captioners import Captioner, EncoderDecoderCaptioner
from showtell.captions import caption_result
from showtell.decoding import DecodingConfig
from showtell.errors import ImageError
from showtell.features.small_cnn import SmallCnn, SmallCnnConfig
from showtell.images.photo import IN_MEMORY
from showtell.models.sat import SatConfig, SatDecoder
from showtell.text.vocabulary import SPECIAL, Vocabulary

import psutil
import torch

HERE = Path(__file__).parent
CLIENTS = 32
WORDS = 1000
PARTS = ("one", "many", "others", "overload", "slow", "broken")
BROKEN = (b"this is no image at all", b"\x89PNG\r\n\x1a\nand then nothing", b"GIF89a")


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


# --- clients ---


@dataclass
class Reply:
    """An answer of a server."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float


class Connection:
    """A connection that posts photos one after the other: little more than the bytes, so that it costs little."""

    def __init__(self, port: int, path: str, *, form: bool = False, name: str = "image") -> None:
        self.port, self.path, self.form, self.name = port, path, form, name
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, photo: bytes) -> Reply:
        """Post a photo and wait for the answer; on a new connection if the server has closed this one meanwhile."""
        began, was_open = time.perf_counter(), self.streams is not None
        try:
            return await self._post(photo, began)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.close()
            if not was_open:
                raise
            return await self._post(photo, began)

    async def _post(self, photo: bytes, began: float) -> Reply:
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        body, kind = photo, "image/jpeg"
        if self.form:
            head = f'--b\r\nContent-Disposition: form-data; name="{self.name}"; filename="a.jpg"\r\n'
            body = f"{head}Content-Type: image/jpeg\r\n\r\n".encode() + photo + b"\r\n--b--\r\n"
            kind = "multipart/form-data; boundary=b"
        head = f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
        writer.write(f"{head}Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines[1:] if line)
        headers = {key.lower(): value.strip() for key, _, value in pairs}
        answer = await reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection", "").lower() == "close":
            self.close()
        return Reply(int(lines[0].split()[1]), headers, answer, time.perf_counter() - began)

    def close(self) -> None:
        """Hang up."""
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


@dataclass
class Load:
    """What clients met."""

    seconds: float = 0.0
    replies: list[Reply] = field(default_factory=list)

    @property
    def good(self) -> list[Reply]:
        """Photos that were captioned."""
        return [reply for reply in self.replies if reply.status == 200]

    @property
    def rate(self) -> float:
        """Captioned photos per second."""
        return len(self.good) / self.seconds

    def quantile(self, share: float) -> float:
        """Seconds within which this share of the captions came."""
        times = sorted(reply.seconds for reply in self.good)
        return times[min(len(times) - 1, int(share * len(times)))]


async def closed_loop(server: Server, photos: Sequence[bytes], clients: int = CLIENTS) -> Load:
    """Clients that each ask for a photo once the one before is answered."""
    load, remaining = Load(), iter(photos)

    async def client() -> None:
        connection = server.connection()
        for photo in remaining:
            load.replies.append(await connection.post(photo))
        connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    load.seconds = time.perf_counter() - began
    return load


async def open_loop(server: Server, photos: Sequence[bytes], rate: float, seconds: float) -> Load:
    """Requests that come at their times, whatever became of those before. One that is cut off has status 0."""
    load, idle = Load(), [server.connection()]
    loop = asyncio.get_running_loop()

    async def request(photo: bytes) -> None:
        connection = idle.pop() if idle else server.connection()
        try:
            load.replies.append(await connection.post(photo))
        except (ConnectionError, asyncio.IncompleteReadError):  # cut off: more connections than the server keeps
            load.replies.append(Reply(0, {}, b"", 0.0))
            connection.close()
        idle.append(connection)

    began = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
            tasks.create_task(request(photos[number % len(photos)]))
    load.seconds = loop.time() - began
    for connection in idle:
        connection.close()
    return load


# --- servers ---


@dataclass
class Server:
    """A process that serves."""

    process: psutil.Popen
    port: int
    path: str = "/v1/captions"
    form: bool = False
    name: str = "image"

    def connection(self) -> Connection:
        """To it."""
        return Connection(self.port, self.path, form=self.form, name=self.name)

    def _tree(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]

    def memory(self) -> float:
        """Resident megabytes of it and its children."""
        return sum(process.memory_info().rss for process in self._tree()) / 1e6

    def cpu(self) -> float:
        """Seconds of processor that it and its children have used."""
        return sum(sum(process.cpu_times()[:2]) for process in self._tree())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serving(
    command: Sequence[str], port: int, environment: dict[str, str] | None = None, **about: Any
) -> Iterator[Server]:
    """A server, once it takes connections."""
    with tempfile.TemporaryFile() as log:
        process = psutil.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}, cwd=HERE
        )
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                if process.poll() is not None:
                    log.seek(0)
                    raise SystemExit(f"{' '.join(command)} ended: {log.read().decode(errors='replace')[-2000:]}")
                time.sleep(0.2)
            else:
                raise SystemExit(f"{' '.join(command)} takes no connections.")
            yield Server(process, port, **about)
        finally:
            children = process.children(recursive=True)
            process.terminate()
            _, alive = psutil.wait_procs([process, *children], timeout=20)
            for one in alive:
                one.kill()


def showtell_server(checkpoint: Path, *options: str) -> contextlib.AbstractContextManager[Server]:
    """`showtell serve`."""
    port = free_port()
    return serving([sys.executable, "-m", "showtell", "serve", str(checkpoint), "--port", str(port), *options], port)


# --- parts ---


def row(name: str, value: float, unit: str, against: str, base: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "against": against, "ratio": value / base, **more}


def measure_one(setup: Setup) -> list[dict[str, Any]]:
    """One client."""
    photos = setup.photos[: setup.count(100)]

    async def run(server: Server) -> tuple[list[float], list[float]]:
        connection, own, asked = server.connection(), [], []
        for photo in [photos[0], *photos]:
            began = time.perf_counter()
            setup.captioner.caption(photo)
            own.append(time.perf_counter() - began)
            asked.append((await connection.post(photo)).seconds)
        connection.close()
        return own[1:], asked[1:]

    with showtell_server(setup.checkpoint) as server:
        rounds = [asyncio.run(run(server)) for _ in range(setup.repeats)]
    own = statistics.median(statistics.median(times) for times, _ in rounds) * 1e3
    asked = statistics.median(statistics.median(times) for _, times in rounds) * 1e3
    return [
        row("one_client", asked, "ms", f"the captioner alone, {own:.1f} ms: {asked - own:.1f} ms more", own, own=own)
    ]


def folder_rate(captioner: Captioner, paths: Sequence[Path]) -> tuple[float, float]:
    """Photos per second of a folder, and milliseconds of processor for each."""
    began, cpu = time.perf_counter(), time.process_time()
    count = sum(1 for _ in captioner.caption_photos(paths, batch_size=CLIENTS, first_alone=False))
    return count / (time.perf_counter() - began), (time.process_time() - cpu) / count * 1e3


def measure_many(setup: Setup) -> list[dict[str, Any]]:
    """Many clients against a folder."""
    with showtell_server(setup.checkpoint) as server:
        asyncio.run(closed_loop(server, setup.photos[:CLIENTS]))  # to warm up
        folder, served, cpu = [], [], []
        for _ in range(setup.repeats):
            folder.append(folder_rate(setup.captioner, setup.paths))
            before = server.cpu()
            served.append(asyncio.run(closed_loop(server, setup.photos)))
            cpu.append((server.cpu() - before) / len(setup.photos) * 1e3)
    base, base_cpu = (statistics.median(values) for values in zip(*folder, strict=True))
    rate = statistics.median(load.rate for load in served)
    share = statistics.median(load.rate / one for load, (one, _) in zip(served, folder, strict=True))
    p99 = statistics.median(load.quantile(0.99) for load in served) * 1e3
    return [
        row(
            "32_clients", rate, "photos/s", f"a folder, {base:.0f}/s (median of ratios; p99 {p99:.0f} ms)", rate / share
        ),
        row("32_clients_processor", statistics.median(cpu), "ms", f"a folder, {base_cpu:.1f} ms", base_cpu),
    ]


def measure_others(setup: Setup) -> list[dict[str, Any]]:
    """The same clients, captioner and largest batch with other servers, in turn."""
    environment = {"CHECKPOINT": str(setup.checkpoint), "MAX_BATCH": str(CLIENTS)}
    loads: dict[str, list[tuple[Load, float]]] = {}
    for _ in range(setup.repeats):
        servers = {"showtell": showtell_server(setup.checkpoint)}
        if setup.litserve is None:
            print("LitServe is skipped: --litserve names no python that has it.", file=sys.stderr)
        else:
            port = free_port()
            command = [setup.litserve, str(HERE / "serve_litserve.py"), str(port)]
            servers["LitServe"] = serving(command, port, environment, path="/predict", form=True, name="request")
        if setup.bentoml is None:
            print("BentoML is skipped: --bentoml names no python that has it.", file=sys.stderr)
        else:
            port = free_port()
            command = [setup.bentoml, "-m", "bentoml", "serve", "serve_bentoml:Front", "--port", str(port)]
            servers["BentoML"] = serving(command, port, environment, path="/caption", form=True)
        for name, one in servers.items():
            with one as server:
                asyncio.run(wait_until_it_answers(server, setup.photos[0]))
                asyncio.run(closed_loop(server, setup.photos[: 2 * CLIENTS]))
                before = server.cpu()
                load = asyncio.run(closed_loop(server, setup.photos))
                bad = Counter(reply.status for reply in load.replies if reply.status != 200)
                if bad:
                    print(f"{name}: {dict(bad)}", file=sys.stderr)
                loads.setdefault(name, []).append((load, (server.cpu() - before) / len(setup.photos) * 1e3))
    rows = []
    own = loads["showtell"]
    for name, of_server in loads.items():
        rate, own_rate = (statistics.median(load.rate for load, _ in some) for some in (of_server, own))
        p99, own_p99 = (statistics.median(load.quantile(0.99) for load, _ in some) for some in (of_server, own))
        cpu = statistics.median(cpu for _, cpu in of_server)
        rows.append(row(f"rate_{name}", rate, "photos/s", f"showtell's ({cpu:.1f} ms of processor each)", own_rate))
        rows.append(row(f"p99_{name}", p99 * 1e3, "ms", "showtell's", own_p99 * 1e3))
    return rows


async def wait_until_it_answers(server: Server, photo: bytes) -> None:
    """Some servers take connections before they can answer."""
    for _ in range(300):
        connection = server.connection()
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if (await connection.post(photo)).status == 200:
                connection.close()
                return
        connection.close()
        await asyncio.sleep(0.2)
    raise SystemExit("A server does not answer.")


def measure_overload(setup: Setup) -> list[dict[str, Any]]:
    """Four times what it can do."""
    rows = []
    for name, options in (("", ()), (f"_queue_{CLIENTS}", ("--queue", str(CLIENTS)))):
        with showtell_server(setup.checkpoint, *options) as server:
            asyncio.run(closed_loop(server, setup.photos[: 2 * CLIENTS]))
            normal = asyncio.run(closed_loop(server, setup.photos))
            memory = [server.memory()]

            async def run(server: Server = server, normal: Load = normal, memory: list[float] = memory) -> Load:
                async def watch() -> None:
                    while True:
                        await asyncio.sleep(setup.seconds / 20)
                        memory.append(server.memory())

                watching = asyncio.create_task(watch())
                try:
                    return await open_loop(server, setup.photos, 4 * normal.rate, setup.seconds)
                finally:
                    watching.cancel()

            load = asyncio.run(run())
        statuses = Counter(reply.status for reply in load.replies)
        waits = [int(reply.headers["retry-after"]) for reply in load.replies if reply.status == 429]
        unexpected = {status: count for status, count in statuses.items() if status not in (0, 200, 429)}
        if unexpected:
            print(f"overload: {unexpected}", file=sys.stderr)
        half = len(memory) // 2
        base, p99 = normal.quantile(0.99) * 1e3, load.quantile(0.99) * 1e3
        sent = f"{len(load.replies) / load.seconds:.0f}/s sent, {statuses[429]:,} sent away, {statuses[0]:,} cut off"
        after = f", Retry-After {min(waits)} to {max(waits)} s" if waits else ""
        rows += [
            row(f"overload{name}_rate", load.rate, "photos/s", f"32 clients ({sent}{after})", normal.rate),
            row(f"overload{name}_p99", p99, "ms", f"32 clients, {base:.0f} ms", base),
            row(f"overload{name}_memory", max(memory[half:]), "MB", "the first half's most", max(memory[1 : half + 1])),
        ]
    return rows


def measure_slow(setup: Setup) -> list[dict[str, Any]]:
    """Slow senders beside clients."""

    async def slow(server: Server) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        with contextlib.suppress(OSError):
            for byte in f"POST {server.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode():
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(1)
        writer.close()

    async def run(server: Server, senders: int) -> Load:
        tasks = [asyncio.create_task(slow(server)) for _ in range(senders)]
        await asyncio.sleep(1)
        load = await closed_loop(server, setup.photos, clients=8)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return load

    with showtell_server(setup.checkpoint) as server:
        asyncio.run(run(server, 0))
        rounds = [(asyncio.run(run(server, 0)), asyncio.run(run(server, 200))) for _ in range(setup.repeats)]
    without, beside = (statistics.median(pair[which].rate for pair in rounds) for which in (0, 1))
    p99, slow_p99 = (statistics.median(pair[which].quantile(0.99) for pair in rounds) * 1e3 for which in (0, 1))
    return [
        row("slow_senders_rate", beside, "photos/s", "the same 8 clients without them", without),
        row("slow_senders_p99", slow_p99, "ms", "the same 8 clients without them", p99),
    ]


def measure_broken(setup: Setup) -> list[dict[str, Any]]:
    """Every answer held against the captioner's own."""
    good = setup.photos[:200]
    expected = {photo: caption_result("photo", setup.captioner.caption(photo)) for photo in good}
    sentences: dict[bytes, str] = {}
    for photo in (*BROKEN, good[0][: len(good[0]) // 8]):
        try:
            setup.captioner.open_photo(photo)
        except ImageError as error:
            sentences[photo] = str(error).replace(IN_MEMORY, "photo", 1)
    bad = list(sentences)
    requests = setup.count(10_000)
    asked = [bad[n // 20 % len(bad)] if n % 20 == 7 else good[n % len(good)] for n in range(requests)]
    right = Counter[str]()

    async def run(server: Server) -> None:
        remaining = iter(asked)

        async def client() -> None:
            connection = server.connection()
            for photo in remaining:
                reply = await connection.post(photo)
                answer = json.loads(reply.body)
                if photo in sentences:
                    right["broken"] += reply.status == 422 and answer["detail"] == sentences[photo]
                else:
                    right["good"] += reply.status == 200 and answer == expected[photo]
            connection.close()

        await asyncio.gather(*(client() for _ in range(CLIENTS)))

    with showtell_server(setup.checkpoint) as server:
        asyncio.run(run(server))
    count = sum(photo in sentences for photo in asked)
    return [
        row("broken_answered", right["broken"], "requests", f"the {count:,} that were broken", count),
        row("good_answered", right["good"], "requests", f"the {requests - count:,} others", requests - count),
    ]


@dataclass
class Setup:
    """What is measured with."""

    checkpoint: Path
    captioner: Captioner
    paths: list[Path]
    photos: list[bytes]
    repeats: int
    seconds: float
    scale: float
    litserve: str | None
    bentoml: str | None

    def count(self, number: int) -> int:
        """A number of requests, or fewer for a trial."""
        return max(CLIENTS, int(number * self.scale))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=PARTS)
    parser.add_argument("--checkpoint", nargs=2, type=Path, metavar=("FOLDER", "PHOTOS"))
    parser.add_argument("--litserve", help="python of an environment that has LitServe, and can import showtell")
    parser.add_argument("--bentoml", help="python of an environment that has BentoML, and can import showtell")
    parser.add_argument("--photos", type=int, default=600, help="different photos")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60, help="of overload")
    parser.add_argument("--scale", type=float, default=1.0, help="below 1 for a trial with fewer requests")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.checkpoint is None:
            (folder / "photos").mkdir()
            paths = write_photos(folder / "photos", arguments.photos)
            checkpoint = write_checkpoint(folder / "random")
        else:
            checkpoint, photos = arguments.checkpoint
            paths = sorted(photos.iterdir())[: arguments.photos]
        setup = Setup(
            checkpoint.resolve(),
            Captioner.from_pretrained(checkpoint, device="cpu"),
            paths,
            [path.read_bytes() for path in paths],
            arguments.repeats,
            arguments.seconds,
            arguments.scale,
            arguments.litserve,
            arguments.bentoml,
        )
        setup.captioner.caption(paths[:2])  # to warm up
        measures = {
            "one": measure_one,
            "many": measure_many,
            "others": measure_others,
            "overload": measure_overload,
            "slow": measure_slow,
            "broken": measure_broken,
        }
        rows = [row for part in arguments.parts for row in measures[part](setup)]
    show(rows, arguments.json)


if __name__ == "__main__":
    main()
