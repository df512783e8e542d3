"""What is installed, and what a captioner knows beside the dataset on which it is scored."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import platform
import re
import shutil
import statistics
from pathlib import Path
from typing import Any

import psutil
import torch
from packaging.requirements import Requirement

from showtell import __version__
from showtell.captioners import Captioner, EncoderDecoderCaptioner
from showtell.cores import usable_cores
from showtell.datasets.check import check_dataset
from showtell.datasets.records import CaptionDataset
from showtell.errors import summarise
from showtell.explanations.verdict import verdict_on_checkpoint
from showtell.features.store import FeatureStore
from showtell.files import read_json
from showtell.hub import SETTINGS
from showtell.scores.ngrams import FEW_IMAGES
from showtell.text.tokenizer import TOKENIZER_VERSION, tokenize
from showtell.text.vocabulary import SPECIAL
from showtell.training import health

__all__ = ["checkpoint_causes", "dataset_causes", "describe_captioner", "inspect_machine"]

PACKAGES = ("torch", "torchvision", "timm", "transformers", "accelerate", "numpy", "pillow")
USUAL_REFERENCES = 5  # references per image in the datasets of published scores
# In 1,000 images of Flickr8k 3.2% of the words are not among those that occur five times in 6,000 others, and 1.8% of
# the captions have more than 20 words; datasets that a checkpoint was trained for stay below these limits.
MAX_UNKNOWN, MAX_LONGER = 0.05, 0.05  # shares of a split's words and of its captions


def inspect_machine() -> dict[str, Any]:
    """Versions, devices and memory of this machine, and the packages that are missing or of another version."""
    memory = psutil.virtual_memory()
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    gpus += ["Apple GPU (mps)"] * torch.backends.mps.is_available()
    return {
        "python": platform.python_version(),
        "showtell": __version__,
        **{name: version for name in PACKAGES if (version := _version(name))},
        "system": platform.platform(),
        "devices": [*gpus, f"CPU ({platform.machine()})"],
        "cores": usable_cores(),
        "memory": f"{memory.total / 2**30:.1f} GB, {memory.available / 2**30:.1f} GB of it free",
        "java": shutil.which("java") or "none; only SPICE needs it",
        "missing": _missing_packages(),
    }


def _version(name: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return None


def _missing_packages() -> list[str]:
    """A sentence for each extra of the package, and for the package itself, whose requirements are not met."""
    lacking: dict[str, list[str]] = {}
    for requirement in map(Requirement, importlib.metadata.requires("showtell") or ()):
        extra = next(iter(re.findall(r'extra == "([^"]+)"', str(requirement.marker))), "showtell")
        is_here = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if is_here and not requirement.specifier.contains(_version(requirement.name) or "0", prereleases=True):
            lacking.setdefault(extra, []).append(f"{requirement.name}{requirement.specifier}")
    return [
        f"{extra} needs {', '.join(names)}: pip install {' '.join(map(json.dumps, names))}"
        for extra, names in lacking.items()
        if extra not in ("dev", "docs")
    ]


def describe_captioner(captioner: Captioner) -> dict[str, Any]:
    """Facts about a captioner: its model and where it comes from."""
    about = captioner.about
    decoding = captioner.decoding.model_dump(mode="json", exclude_defaults=True)
    facts: dict[str, Any] = {"model": about.name, "library": about.library, "weights": about.parameters}
    if isinstance(captioner, EncoderDecoderCaptioner):
        words = len(captioner.vocabulary) - len(SPECIAL)
        facts |= {"encoder": getattr(captioner.encoder.config, "name", "none"), "words": words}
    else:
        facts |= {"revision": about.revision or "none", "licence": about.licence or "not stated"}
    return {**facts, "decoding": decoding, "about": about.origin}


def checkpoint_causes(captioner: Captioner) -> list[str]:
    """What of a checkpoint may keep its scores low, a sentence each with what to do."""
    if not isinstance(captioner, EncoderDecoderCaptioner) or captioner.about.folder is None:
        return []
    folder, encoder = captioner.about.folder, captioner.encoder.config
    settings = read_json(folder / SETTINGS)
    causes = []
    tokenizer = settings["vocabulary"].get("tokenizer")
    if tokenizer != TOKENIZER_VERSION:
        causes.append(
            f"The vocabulary was made with the tokenizer {tokenizer}, and this showtell has {TOKENIZER_VERSION}: words "
            f"are split differently now; use showtell {settings.get('showtell')}, or train again."
        )
    if getattr(encoder, "weights", None) == "random" and not encoder.trained:
        causes.append("The encoder has random weights and never learned: it sees next to nothing; use pretrained ones.")
    if captioner.decoding.kind == "greedy":
        causes.append("The checkpoint decodes greedily, and published scores are from a beam: add --num-beams 5.")
    images = captioner.origin.get("train_images")
    if isinstance(images, int) and "start_from" not in captioner.origin and (few := health.few_photos(images, encoder)):
        causes.append(f"The checkpoint learned from {images} photos, which are {few}.")
    best = folder.parent / "best"
    if folder.name == "last" and (best / SETTINGS).is_file():
        causes.append(f"This is the last checkpoint of a run; {best} has the highest validation score.")
    return causes


def dataset_causes(
    captioner: Captioner, dataset: CaptionDataset, split: str, store: FeatureStore | None = None
) -> tuple[dict[str, Any], list[str]]:
    """What a captioner knows of the split on which it is scored, and what of it may keep scores low.

    Args:
        captioner: the model.
        dataset: from `read_dataset`, including its problems.
        split: on which it is scored.
        store: features of the images by the captioner's encoder.

    Raises:
        DataError: there is no such split.
    """
    records = dataset[split]
    references = statistics.fmean(len(record.captions) for record in records)
    facts: dict[str, Any] = {"split": split, "images": len(records), "references": references}
    report = check_dataset(dataset, open_images=False)
    causes = [*report.problems, *report.warnings]
    if isinstance(captioner, EncoderDecoderCaptioner):
        captions = [tokenize(caption) for record in records for caption in record.captions]
        most = captioner.decoding.max_length
        unknown = captioner.vocabulary.unknown_rate(captions)
        longer = sum(len(words) > most for words in captions) / max(len(captions), 1)
        facts |= {"unknown": unknown, "longer": longer}
        if unknown > MAX_UNKNOWN:
            causes.append(
                f"The checkpoint does not know {unknown:.1%} of the words of {split}, so it can never write them; "
                "train on captions like these, or use the dataset it was made for."
            )
        if longer > MAX_LONGER:
            causes.append(
                f"The checkpoint writes at most {most} words, and {longer:.1%} of the captions of {split} are longer: "
                "raise decoding.max_length."
            )
    if split == "train":
        causes.append("train is what models learn from; scores on it say nothing about new photos: score val or test.")
    if len(records) < FEW_IMAGES:
        causes.append(
            f"{split} has {len(records)} images: CIDEr learns from them which words are rare, and needs about "
            f"{FEW_IMAGES}; take the document frequencies from other captions, and see the intervals of the scores."
        )
    if references < USUAL_REFERENCES - 0.5:
        causes.append(
            f"{split} has {references:.1f} captions per image, published ones {USUAL_REFERENCES}: with fewer "
            "references fewer words match, so the scores are lower and not comparable."
        )
    trained, images = captioner.about.origin.get("data"), captioner.about.origin.get("train_images")
    here = dataset.splits.get("train", 0)
    if trained is not None and images not in (None, here) and Path(trained).resolve() != dataset.root.resolve():
        causes.append(
            f"The checkpoint learned from {images} photos of {trained}, and knows only their objects and words. "
            f"{dataset.root} has {here} in train: train on these, or start from it "
            "(training.start_from)."
        )
    if store is not None and (lacking := store.missing([record.image_id for record in records])):
        count = f"{len(lacking)} of {len(records)} images"
        causes.append(f"{store.path} lacks {count}: {summarise(sorted(lacking))}; add them with showtell features.")
    return facts, [*causes, *(f"{sentence}." for sentence in verdict_on_checkpoint(captioner, records, store))]
