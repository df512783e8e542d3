"""`showtell serve` under load: what it adds to the captioner, many clients. It takes a minute or two.

    OMP_NUM_THREADS=1 python benchmarks/serve.py [one many] [--photos 120] [--repeats 3] [--json]
                                                 [--checkpoint FOLDER PHOTOS]

  one   one client against the captioner in this process, on the same photos in turn
  many  32 clients against `caption_photos` over the same photos in a folder, in turn

Without --checkpoint the captioner has random weights: a small CNN and Show, Attend and Tell, five beams, photos of
500 x 375. Clients and server share the machine; rates and times are medians of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _threads  # noqa: F401  (first)
from caption_folder import write_photos
from rows import show
from showtell.captioners import Captioner, EncoderDecoderCaptioner
from showtell.decoding import DecodingConfig
from showtell.features.small_cnn import SmallCnn, SmallCnnConfig
from showtell.models.sat import SatConfig, SatDecoder
from showtell.text.vocabulary import SPECIAL, Vocabulary

import torch

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


async def post(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], photo: bytes) -> float:
    """Post a photo with little more than its bytes, so that it costs little; the seconds until its caption came."""
    began, (reader, writer) = time.perf_counter(), streams
    head = "POST /v1/captions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/jpeg\r\n"
    writer.write(f"{head}Content-Length: {len(photo)}\r\n\r\n".encode() + photo)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
    (length,) = [int(line.partition(":")[2]) for line in lines if line.startswith("content-length:")]
    await reader.readexactly(length)
    assert lines[0].split()[1] == "200", "the server sends none away"
    return time.perf_counter() - began


@contextlib.contextmanager
def showtell_server(checkpoint: Path) -> Iterator[int]:
    """The port of `showtell serve`, once it takes connections and has said so."""
    command = (sys.executable, "-m", "showtell", "serve", str(checkpoint), "--port", "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield int(process.stdout.readline().rsplit(":", 1)[1].rstrip("/\n"))
        finally:
            process.terminate()


@dataclass
class Load:
    """What clients met."""

    seconds: float
    times: list[float]  # of the photos, in ascending order

    @property
    def rate(self) -> float:
        """Captioned photos per second."""
        return len(self.times) / self.seconds

    def quantile(self, share: float) -> float:
        """Milliseconds within which this share of the captions came."""
        return 1e3 * self.times[min(len(self.times) - 1, int(share * len(self.times)))]


def load(port: int, photos: Sequence[bytes], clients: int = CLIENTS) -> Load:
    """Clients that each ask for a photo once the one before is answered."""

    async def run() -> Load:
        remaining, times = iter(photos), []

        async def client() -> None:
            streams = await asyncio.open_connection("127.0.0.1", port)
            for photo in remaining:
                times.append(await post(streams, photo))
            streams[1].close()

        began = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(clients)))
        return Load(time.perf_counter() - began, sorted(times))

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


def row(name: str, value: float, unit: str, against: str, base: float) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "against": against, "ratio": value / base}


def measure_one(setup: Setup) -> list[dict[str, Any]]:
    """One client."""
    alone, asked = [], []
    with showtell_server(setup.checkpoint) as port:
        load(port, setup.photos[:3], 1)  # to warm up
        for photo in setup.photos:
            began = time.perf_counter()
            setup.captioner.caption(photo)
            alone.append(time.perf_counter() - began)
            asked += load(port, [photo], 1).times
    own, other = (Load(sum(times), sorted(times)) for times in (asked, alone))
    rows = [row("1_client", own.rate, "photos/s", f"the captioner alone, {other.rate:.1f}/s", other.rate)]
    for percent in (50, 99):
        ours, base = own.quantile(percent / 100), other.quantile(percent / 100)
        rows.append(row(f"1_client_p{percent}", ours, "ms", f"the captioner alone, {base:.1f} ms", base))
    return rows


def measure_many(setup: Setup) -> list[dict[str, Any]]:
    """Many clients against a folder, whose photos have no waiting times."""
    folder, served = [], []
    with showtell_server(setup.checkpoint) as port:
        load(port, setup.photos[:CLIENTS])  # to warm up
        for _ in range(setup.repeats):
            began = time.perf_counter()
            count = sum(1 for _ in setup.captioner.caption_photos(setup.paths, batch_size=CLIENTS))
            folder.append(count / (time.perf_counter() - began))
            served.append(load(port, setup.photos))
    rate = statistics.median(folder)
    against = f"32 photos one after another, {1e3 * CLIENTS / rate:.0f} ms"
    own = statistics.median(one.rate for one in served)
    p50, p99 = (statistics.median(one.quantile(share) for one in served) for share in (0.5, 0.99))
    return [
        row("32_clients", own, "photos/s", f"a folder, {rate:.1f}/s", rate),
        row("32_clients_p50", p50, "ms", against, 1e3 * CLIENTS / rate),
        row("32_clients_p99", p99, "ms", against, 1e3 * CLIENTS / rate),
    ]


PARTS = {"one": measure_one, "many": measure_many}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[], metavar="PART")
    parser.add_argument("--checkpoint", nargs=2, type=Path, metavar=("FOLDER", "PHOTOS"))
    parser.add_argument("--photos", type=int, default=120, help="different photos")
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
        captioner = Captioner.from_pretrained(checkpoint, device="cpu")
        captioner.caption(paths[:2])  # to warm up
        contents = [path.read_bytes() for path in paths]
        setup = Setup(checkpoint.resolve(), captioner, paths, contents, given.repeats)
        show([row for part in given.parts or PARTS for row in PARTS[part](setup)], given.json)


if __name__ == "__main__":
    main()
