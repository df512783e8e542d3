"""What can befall a file: accidents to its JSON, its lines or its bytes."""

from __future__ import annotations

import json
import random
from typing import Any

_MOST = 2_000_000  # bytes of a damaged file

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
