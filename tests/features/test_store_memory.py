"""What several processes that read a store keep of it: one copy for all, which is the file in the system's cache."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from showtell.features.store import FeatureStore, ImageFeatures, StoreInfo, StoreWriter

READER = """
import sys
from showtell.features.store import FeatureStore
store = FeatureStore(sys.argv[1])
features = [store[image] for image in store.ids()]
print(sum(float(one.vectors.sum()) for one in features), flush=True)
sys.stdin.read()
"""


def mapped(process: int, file: Path) -> dict[str, int]:
    """What the system says of the pages of a file that a process has mapped, in bytes."""
    maps = Path(f"/proc/{process}/smaps").read_text(encoding="utf-8")
    of_file = re.search(rf"^.* {re.escape(str(file))}\n((?:\w+:.*\n)+)", maps, flags=re.MULTILINE)
    assert of_file, "the file is not mapped"
    return {name: int(size) * 1024 for name, size in re.findall(r"^(\w+):\s+(\d+) kB$", of_file[1], flags=re.MULTILINE)}


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="smaps is Linux's")
def test_processes_that_read_a_store_share_its_pages(tmp_path):
    info = StoreInfo(encoder={"name": "eye"}, fingerprint="0123456789ab", dtype="fp16", feature_size=1024)
    with StoreWriter(tmp_path / "store", info) as writer:
        vectors = np.random.default_rng(0).standard_normal((36, 1024)).astype("f2")
        writer.write({str(image): ImageFeatures(vectors, (640, 480)) for image in range(100)})
    stored = FeatureStore(tmp_path / "store").bytes
    with ExitStack() as opened:
        readers = [
            opened.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", READER, str(tmp_path / "store")],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            for _ in range(2)
        ]
        sums = [reader.stdout.readline() for reader in readers if reader.stdout]
        (file,) = (path for path in (tmp_path / "store").rglob("*") if path.stat().st_size >= stored / 2)
        pages = [mapped(reader.pid, file) for reader in readers]
        for reader in readers:
            reader.communicate()
    assert sums[0] == sums[1] != b""
    for one in pages:
        assert one["Rss"] > 0.95 * stored > 7e6  # it has read them all
        assert one["Pss"] < 0.55 * one["Rss"]  # of which half is counted to each
        assert one["Private_Clean"] + one["Private_Dirty"] < 0.02 * one["Rss"] and one["Anonymous"] == 0
