"""A process that corrects: it adds photos and changes captions, and says a line for each change that is done.

python -m tests.serving.corrector FOLDER SEED ROUNDS
"""

import hashlib
import os
import random
import sys
from io import BytesIO
from pathlib import Path

from PIL import Image

from showtell.serving.corrections import ConflictError, CorrectionStore


def make_photo(seed: int) -> tuple[str, bytes]:
    """A small PNG of noise, and its id."""
    noise = random.Random(seed).randbytes(48 * 32 * 3)
    stream = BytesIO()
    Image.frombytes("RGB", (48, 32), noise).save(stream, "PNG")
    return hashlib.sha256(stream.getvalue()).hexdigest(), stream.getvalue()


def main(folder: str, seed: str, rounds: str) -> None:
    """Four photos, added once and then corrected again and again, with conflicts looked at again."""
    store = CorrectionStore(Path(folder))
    own = [make_photo(number) for number in range(4)]
    draw = random.Random(int(seed))
    for number in range(int(rounds)):
        id, content = draw.choice(own)
        row, _ = store.add(content, name=f"{number}.png", caption="a dog", confidence=draw.random())
        while True:
            try:
                row = store.change(id, row.revision, caption=f"{row.caption.split(' by ')[0]} by {seed} {number}")
                break
            except ConflictError as conflict:
                row = conflict.now
        os.write(1, f"{id} {row.revision} {row.caption}\n".encode())  # in one piece, or not at all


if __name__ == "__main__":
    main(*sys.argv[1:])
