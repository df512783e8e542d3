"""Damaged files: valid datasets and images, and what can befall them."""

from __future__ import annotations

import io
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from showtell.datasets import read_dataset
from showtell.images.photo import open_photo

Files = dict[str, bytes]

_COCO = {
    "images": [{"id": 1, "file_name": "a.jpg", "coco_url": "http://x/images/a.jpg"}, {"id": 2, "file_name": "b.jpg"}],
    "annotations": [
        {"id": 1, "image_id": 1, "caption": "A dog.", "grounding": [{"first": 0, "end": 2, "boxes": [7]}]},
        {"id": 2, "image_id": 2, "caption": "A cat."},
    ],
}
_BOXES = {
    "categories": [{"id": 3, "name": "dog"}],
    "annotations": [
        {"id": 7, "image_id": 1, "category_id": 3, "bbox": [0, 1, 2.5, 3], "segmentation": [[1, 2, 3, 4]]},
    ],
}
_KARPATHY = {
    "dataset": "coco",
    "images": [
        {"filename": f"{name}.jpg", "filepath": "images", "cocoid": number, "split": split, "sentids": [number],
         "sentences": [{"raw": "A dog.", "tokens": ["a", "dog"]}, {"tokens": ["a", "cat"]}]}
        for number, (name, split) in enumerate((("a", "train"), ("b", "restval"), ("c", "val")), start=1)
    ],
}  # fmt: skip
_LINES = [
    {"image": "a.jpg", "captions": ["A dog.", "A dog, running."], "split": "train", "id": 1},
    {"image": "b.jpg", "caption": "A cat.", "split": "val", "id": "2"},
]
_LISTS = {"train.txt": b"a.jpg\nb\n", "val.txt": b"c.jpg\n"}
_TABLE = b'image,caption,split,id\na.jpg,"A ""stop"", sign",train,1\nb.jpg,A cat.,val,2\nimages/c.jpg,A cow.,test,3\n'

SEEDS: dict[str, list[Files]] = {
    "karpathy": [
        {"dataset_coco.json": json.dumps(_KARPATHY).encode()},
        {
            "annotations/k.json": json.dumps(_KARPATHY).encode(),
            "annotations/instances_t.json": json.dumps(_BOXES).encode(),
        },
    ],
    "coco": [
        {
            "annotations/captions_train.json": json.dumps(_COCO).encode(),
            "annotations/instances_train.json": json.dumps(_BOXES).encode(),
        },
        {"mine.json": json.dumps(_COCO).encode(), **_LISTS},
    ],
    "flickr": [
        {
            "F.token.txt": b"a.jpg#0\tA dog .\na.jpg#1\tA dog runs .\nb.jpg#0\tA cat .\n",
            "F.trainImages.txt": b"a.jpg\n",
        },
        {"captions.txt": b'image,caption\na.jpg,A dog , running .\nb.jpg,"A cat , ""asleep"""\n'},
        {"results.csv": b"image_name| comment_number| comment\na.jpg| 0| A dog .\nb.jpg| 1 A cat .\n"},
    ],
    "table": [{"captions.csv": _TABLE}, {"t.tsv": b"file\tcaption_1\tcaption_2\na.jpg\tA.\tB.\n", **_LISTS}],
    "jsonl": [
        {"captions.jsonl": "\n".join(map(json.dumps, _LINES)).encode()},
        {"captions.json": json.dumps([{"image": f"{name}.jpg", "caption": "A."} for name in "abc"]).encode(), **_LISTS},
    ],
    "text_files": [
        {"a.txt": b"A dog.\nA dog runs.\n", "b.txt": b"A cat.\n"},
        {"train/a.txt": b"A.", "val/b.txt": b"B."},
    ],
}
_MOST = 2_000_000  # bytes of a damaged file
_PHOTOS = ("a.jpg", "b.jpg", "images/c.jpg", "train/a.jpg", "val/b.jpg")

# Values that stand where another kind was expected, or say what no dataset should.
_ODD: list[Any] = [
    *(None, True, -1, 0, 1.5, 10**400, 2**63, float("nan"), float("inf"), "", " ", "\0", "\ud83d", "é", ".", ".."),
    *("../a.jpg", "/etc/passwd", "C:\\a.jpg", "a.jpg/", "a" * 300, "a.jpg", "train", [], {}, [[]], {"a": {"b": []}}),
    *([1, "a", None], {"raw": 1}, "\n", "\u2028", '"', ",", "#0\t", "|"),
]


def mutated(content: bytes, rng: random.Random) -> bytes:
    """A file after one to four accidents: to its JSON where it is some, to its lines, or to its bytes."""
    for _ in range(rng.randint(1, 4)):
        content = rng.choice((_mutated_json, _mutated_json, _mutated_lines, _mutated_bytes))(content, rng)
    return content


def _mutated_json(content: bytes, rng: random.Random) -> bytes:
    """One value, key or element of a JSON document, or of one of its lines, exchanged, taken out or repeated."""
    lines = content.split(b"\n") if rng.random() < 0.5 else [content]
    index = rng.randrange(len(lines))
    try:
        document = json.loads(lines[index])
    except (ValueError, RecursionError):
        return _mutated_lines(content, rng)
    parents = [node for node in _nodes(document) if isinstance(node, (dict, list)) and node]
    if not parents:
        return json.dumps(rng.choice(_ODD)).encode()
    parent = rng.choice(parents)
    key = rng.choice(list(parent)) if isinstance(parent, dict) else rng.randrange(len(parent))
    action = rng.randrange(6)
    if action == 0:
        del parent[key]
    elif action == 1 and isinstance(parent, list):
        parent.extend([parent[key]] * rng.choice((1, 2, 100)))
    elif action == 2 and isinstance(parent, dict):
        parent[str(rng.choice(_ODD))[:50]] = parent.pop(key)
    elif action == 3:
        parent[key] = json.loads(json.dumps(rng.choice(list(_nodes(document)))))
    elif action == 4:
        deep: Any = parent[key]
        for _ in range(rng.choice((1, 50, 500))):
            deep = [deep]
        parent[key] = deep
    else:
        parent[key] = rng.choice(_ODD)
    try:
        lines[index] = json.dumps(document, ensure_ascii=rng.random() < 0.8).encode("utf-8", "surrogatepass")
    except RecursionError:  # nested deeper with each accident
        return content
    return b"\n".join(lines)


def _nodes(node: Any) -> list[Any]:
    """A JSON value and all that stand in it."""
    nodes, waiting = [], [node]
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        waiting.extend(node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
    return nodes


def _mutated_lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    index, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    action = rng.randrange(6)
    if action == 0:
        del lines[index]
    elif action == 1:
        lines.insert(index, lines[other])
    elif action == 2:
        lines[index], lines[other] = lines[other], lines[index]
    elif action == 3:
        lines[index] += lines[other]
    elif action == 4:
        cut = rng.randint(0, len(lines[index]))
        odd = str(rng.choice(_ODD)).encode("utf-8", "surrogatepass")
        lines[index] = lines[index][:cut] + odd + lines[index][cut:]
    else:
        lines[index] = lines[index] * rng.choice((2, 10, 1000 if len(lines[index]) < 2000 else 3))
    return b"\n".join(lines)[:_MOST]


def _mutated_bytes(content: bytes, rng: random.Random) -> bytes:
    start = rng.randint(0, len(content))
    end = min(len(content), start + rng.choice((1, 2, 8, 100)))
    action = rng.randrange(7)
    if action == 0:
        return content[:start]
    if action == 1:
        return content[:start] + content[end:]
    if action == 2:
        return content[:start] + rng.randbytes(end - start) + content[end:]
    if action == 3:
        return (content[:end] + content[start:])[:_MOST]
    if action == 4:
        return content[:start] + bytes(rng.choice((b"\0", b"\xff", b"[" * 5000, b'"', b"\r", b"\n"))) + content[start:]
    if action == 5:
        text = content.decode("utf-8", "replace")
        return text.encode(rng.choice(("utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig")), "replace")
    flipped = bytearray(content)
    for _ in range(min(len(flipped), rng.choice((1, 3, 20)))):
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


@dataclass(frozen=True)
class Case:
    """A damaged dataset or image on disk, and what is to be done with it."""

    path: Path
    run: Callable[[Path], object]


class Target:
    """Writes cases for one reader, or for images, into a folder; a case is a function of seed and number.

    Args:
        name: a reader of datasets, or "image".
        folder: to write into; it is emptied for each case.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self._folder = folder
        self._run: Callable[[Path], object] = _FILES[name][0] if name in _FILES else read_dataset
        self._seeds = _seeds(name)
        self._is_hub = name == "hub"
        self._photos = () if name == "hub" or name in _FILES else _PHOTOS

    def case(self, seed: int, number: int) -> Case:
        """The case of a number: a seed with one file damaged."""
        rng = random.Random(f"{seed} {number}")
        files = dict(rng.choice(self._seeds))
        victim = rng.choice(sorted(files))
        files[victim] = mutated(files[victim], rng)
        shutil.rmtree(self._folder, ignore_errors=True)
        for name, content in [*files.items(), *((photo, b"") for photo in self._photos)]:
            file = self._folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        if self._is_hub:
            return Case(Path(f"hf:{self._folder}"), self._run)
        whole = self._run is read_dataset and rng.random() < 0.7
        return Case(self._folder if whole else self._folder / victim, self._run)


def _seeds(name: str) -> list[Files]:
    if name in _FILES:
        return [{"file": content} for content in _FILES[name][1]()]
    return _saved_for_the_hub() if name == "hub" else SEEDS[name]


def _images() -> list[bytes]:
    """A small image of each kind that is read."""
    images = []
    colours = Image.linear_gradient("L").resize((24, 16)).convert("RGB")
    for kind, mode, options in (
        ("JPEG", "RGB", {}), ("JPEG", "RGB", {"progressive": True}), ("JPEG", "L", {}), ("JPEG", "CMYK", {}),
        ("PNG", "RGB", {}), ("PNG", "P", {}), ("PNG", "RGBA", {}), ("PNG", "I;16", {}), ("GIF", "P", {}),
        ("TIFF", "RGB", {}), ("TIFF", "RGB", {"compression": "tiff_lzw"}), ("BMP", "RGB", {}), ("WEBP", "RGB", {}),
    ):  # fmt: skip
        stream = io.BytesIO()
        image = colours.convert("L").convert("I").convert(mode) if mode == "I;16" else colours.convert(mode)
        exif = Image.Exif()
        exif[0x0112] = 6
        more: dict[str, Any] = {"exif": exif} if kind in ("JPEG", "PNG", "WEBP") else {}
        image.save(stream, kind, **options, **more)
        images.append(stream.getvalue())
    return images


_FILES: dict[str, tuple[Callable[[Path], object], Callable[[], list[bytes]]]] = {  # readers of one file, and its kinds
    "image": (open_photo, _images),
}


def _saved_for_the_hub() -> list[Files]:
    """The files that `save_to_disk` and `to_parquet` of the package datasets write."""
    import datasets

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # it says what is damaged before it raises
    features = datasets.Features({"image": datasets.Image(), "captions": [datasets.Value("string")]})
    image = {"bytes": _images()[4], "path": None}
    rows = datasets.Dataset.from_dict({"image": [image] * 3, "captions": [["A dog.", "A cat."]] * 3}, features=features)
    with tempfile.TemporaryDirectory() as name:
        saved, parquet = Path(name, "saved"), Path(name, "parquet")
        datasets.DatasetDict({"train": rows, "test": rows}).save_to_disk(str(saved))
        parquet.mkdir()
        rows.to_parquet(str(parquet / "train.parquet"))
        return [
            {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
            for folder in (saved, parquet)
        ]
