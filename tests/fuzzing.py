"""What can befall a file: accidents to its JSON, its lines or its bytes."""

import json
import random
from typing import Any

_MOST = 2_000_000  # bytes of a damaged file

# Values that stand where another kind was expected, or say what no file should.
_ODD: list[Any] = [
    *(None, True, -1, 0, 1.5, 10**400, 2**63, float("nan"), float("inf"), "", " ", "\0", "\ud83d", "é", ".", ".."),
    *("../a.jpg", "/etc/passwd", "C:\\a.jpg", "a.jpg/", "a" * 300, "a.jpg", "train", [], {}, [[]], {"a": {"b": []}}),
    *([1, "a", None], {"raw": 1}, "\n", "\u2028", '"', ",", "#0\t", "|"),
]


def mutated(content: bytes, rng: random.Random) -> bytes:
    """A file after one to four accidents: to its JSON where it is some, to its lines, or to its bytes."""
    for _ in range(rng.randint(1, 4)):
        content = rng.choice((_mutated_json, _mutated_json, _mutated_lines, _mutated_bytes))(content, rng)
    return content[:_MOST]


def _mutated_json(content: bytes, rng: random.Random) -> bytes:
    """One value of a JSON document exchanged, taken out, repeated, renamed or nested."""
    try:
        document = json.loads(content)
        parents = [node for node in _nodes(document) if isinstance(node, (dict, list)) and node]
        parent = rng.choice(parents or [[document]])
        key = rng.choice(list(parent)) if isinstance(parent, dict) else rng.randrange(len(parent))
        deep: Any = json.loads("[" * (depth := rng.choice((1, 50, 500))) + "]" * depth)
        parent[key] = rng.choice([deep, [parent[key]] * 100, *_nodes(document)[:9], *_ODD])
        if isinstance(parent, dict):
            parent[str(rng.choice([key, *_ODD]))[:50]] = parent.pop(key)
        return json.dumps(document, ensure_ascii=rng.random() < 0.8).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return _mutated_lines(content, rng)


def _nodes(node: Any) -> list[Any]:
    """A JSON value and all that stand in it."""
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [node, *(deeper for value in inner for deeper in _nodes(value))]


def _mutated_lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    line, other = rng.choice(lines), rng.choice(lines)
    cut = rng.randint(0, len(line))
    odd = str(rng.choice(_ODD)).encode("utf-8", "surrogatepass")
    lines[lines.index(line)] = rng.choice((b"", line + other, line * 10, line[:cut] + odd + line[cut:], other))
    return b"\n".join(lines)


def _mutated_bytes(content: bytes, rng: random.Random) -> bytes:
    start = rng.randint(0, len(content))
    end = min(len(content), start + rng.choice((1, 2, 8, 100)))
    odd = rng.choice((b"", b"\0", b"\xff", b"[" * 5000, b'"', b"\r", b"\n", rng.randbytes(end - start)))
    coding = rng.choice(("utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig"))
    text = content.decode("utf-8", "replace").encode(coding, "replace")
    return rng.choice((content[:start], content[:start] + odd + content[end:], content[:end] + content[start:], text))
