"""A tiny CLIP with made-up weights, as a folder that a person has."""

import json
from pathlib import Path

from learned_scores_parity import CAPTIONS, IDS, REFERENCES, openai_weights, photos, write_clip
from openai_clip import from_openai
from showtell.scores import ImageFacts

PREDICTIONS = dict(zip(IDS, CAPTIONS, strict=True))
HERE = Path(__file__).parent


def reference(name: str) -> dict[str, list]:
    """What the authors' code gives, by benchmarks/learned_scores_parity.py."""
    return json.loads((HERE / f"reference_{name}.json").read_text())


def clip_folder(folder: Path) -> Path:
    """A tiny CLIP in the layout of transformers."""
    return write_clip(folder, from_openai(openai_weights()))


def facts_of(folder: Path) -> dict[str, ImageFacts]:
    """Photos and references."""
    paths = photos(folder)
    return {image: ImageFacts(texts, path=path) for image, texts, path in zip(IDS, REFERENCES, paths, strict=True)}


def change_json(file: Path, **changes: object) -> None:
    """Replace values of a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
