"""Scores of published captions: four systems on the 5,000 images of COCO's Karpathy test, and CHAIR of long captions.

    python benchmarks/published_captions.py FOLDER

The folder holds `reference_captions.json` and the captions `blip2_results_xe.json`, `m2_transformer.json`,
`llava-1.5-7b_briefly.json`, `llava-1.5-7b_default.json` of aimagelab/awesome-captioning-evaluation (`test_captions/`);
`chair.pkl` of Maxlinn/CHAIR-metric-standalone, the objects of COCO's images as CHAIR's authors count them (annotated,
or named in a reference), which is read without running what it names; and `Instruction1_*.json` of AoiDragon/POPE
(`caption_data/`). M2 is published with BLEU-4 39.1, METEOR 29.2, ROUGE-L 58.6 and CIDEr 131.2 (M. Cornia et al., CVPR
2020).
"""

from __future__ import annotations

import argparse
import json
import pickle
from pathlib import Path
from typing import Any

from showtell.scores import ImageFacts, diagnose, score
from showtell.scores.files import ScoredImages, read_prediction_file
from showtell.scores.report import as_text

METRICS = ("bleu", "meteor", "rouge_l", "cider", "chair")


class Inert:
    """Stands for whatever a pickle names; its attributes are kept as data."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.state = state


class DataOnly(pickle.Unpickler):
    """Reads sets and dictionaries; calls nothing that a file names."""

    def find_class(self, module: str, name: str) -> Any:
        plain = {"set": set, "list": list, "defaultdict": lambda *_: {}}
        return plain.get(name, Inert) if module in ("builtins", "collections") else Inert


def read_objects(path: Path) -> dict[str, frozenset[str]]:
    """The objects of each image by its id."""
    with path.open("rb") as stream:
        objects = DataOnly(stream).load().state["imid_to_objects"]
    return {str(image): frozenset(names) for image, names in objects.items()}


def table(files: list[Path], facts: dict[str, ImageFacts], metrics: tuple[str, ...]) -> str:
    """The table of some systems on the same images."""
    captions = {file.name: read_prediction_file(file, ScoredImages(facts)) for file in files}
    scored = {image: facts[image] for image in next(iter(captions.values()))}
    reports = {name: score(own, scored, metrics) for name, own in captions.items()}
    rates = {name: diagnose(own.values()) for name, own in captions.items()}
    return as_text(reports, rates, samples=0, every_number=True)


def main() -> None:
    """Read, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    objects = read_objects(folder / "chair.pkl")
    references = json.loads((folder / "reference_captions.json").read_text(encoding="utf-8"))
    of_coco = {image: ImageFacts(tuple(texts), objects[image]) for image, texts in references.items()}
    names = ("blip2_results_xe", "m2_transformer", "llava-1.5-7b_briefly", "llava-1.5-7b_default")
    print(table([folder / f"{name}.json" for name in names], of_coco, METRICS))
    without_references = {image: ImageFacts(objects=own) for image, own in objects.items()}
    print("\nPOPE, I1\n")
    print(table(sorted(folder.glob("Instruction1_*.json")), without_references, ("chair",)))


if __name__ == "__main__":
    main()
