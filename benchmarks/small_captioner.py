"""Make `small`, the captioner that comes with showtell, from Flickr8k and photos of COCO (docs/lab_notes.md).

   python benchmarks/small_captioner.py [--photos data/flickr8k data/coco-photos] [--others data/coco-held]
       [--runs runs/small] [--out src/showtell/small]

1. More views of each training photo are written: cropped, with other light, colours and sharpness, half of them
   mirrored. A model that sees each photo in one view alone learns it by heart.
2. The steps of `STEPS` are trained, each from the one before. A step that is finished is not trained again; one that
   was interrupted resumes.
3. The weights are rounded to 16 bits and written with a calibration on the validation splits and a card, which has the
   scores on photos that nothing was learned from, of each dataset and of each kind of photo.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import _threads  # noqa: F401  (first)
from showtell import evaluate, open_dataset
from showtell.captioners import EncoderDecoderCaptioner
from showtell.confidence.calibration import CALIBRATION, FOLDS, Calibration, Reliability, save_calibration
from showtell.cores import keep_freed_memory
from showtell.datasets import CaptionDataset
from showtell.datasets.table import csv_line
from showtell.evaluation import GOOD_CIDER, Evaluation, calibrate
from showtell.files import write_bytes
from showtell.progress import counting
from showtell.scores.chair import categories_shown
from showtell.text.objects import phrases_of
from showtell.text.tokenizer import tokenize
from showtell.training import load_recipe, train

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

SAT = "flickr8k/small/sat_soft"
BATCH = 32
SIDE = 288  # pixels that the encoder sees
ENCODER_LEARNS = ("encoder.frozen_batch_norm=true", "data.features=null", "data.memory_megabytes=1")


@dataclass(frozen=True)
class Step:
    """A run; `views` of each training photo of Flickr8k and of COCO's. Words are counted in all of them."""

    name: str
    recipe: str
    views: tuple[int, int]
    min_count: int
    changes: tuple[str, ...]


STEPS = (
    Step("likelihood", SAT, (3, 0), 15, ("training.epochs=3", "training.validate_every=1")),
    Step("encoder", SAT, (3, 0), 15, (
        *ENCODER_LEARNS, "encoder.trained=true", "encoder.learning_rate=0.0001", "training.learning_rate=0.0005",
        "training.epochs=1", "training.validate_every=1",
    )),
    Step("both", SAT, (2, 8), 40, (
        *ENCODER_LEARNS, "encoder.trained=[blocks.3, blocks.4, blocks.5, blocks.6]", "encoder.learning_rate=0.00015",
        "training.learning_rate=0.001", "training.epochs=1", "training.validate_every=1", "vocabulary.extend=true",
    )),
)  # fmt: skip
DECODING = {
    "num_beams": 5, "length_penalty": 1, "min_length": 3, "no_repeat_ngram_size": 3, "no_unknown": True,
    "no_bad_endings": True,
}  # fmt: skip
ABOUT = "people, animals, food, rooms and streets as COCO's photos show them; for anything else BLIP is far better"
LICENCE = (
    "weights for non-commercial research and education, as Flickr8k and many of COCO's photos; captions of COCO: "
    "CC BY 4.0; the three photos: public domain"
)
METRICS = ("bleu", "meteor", "cider")
# A photo is of a kind if most of its references name one of these.
KINDS = {
    "people": "person",
    "animals": "bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe",
    "food": "banana, apple, sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake",
    "rooms": "chair, couch, bed, dining table, toilet, tv, microwave, oven, toaster, sink, refrigerator",
    "streets": "bicycle, car, motorcycle, bus, train, truck, traffic light, fire hydrant, stop sign, parking meter",
    "sports": "frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, surfboard, "
    "tennis racket",
}
CARD = """\
# small

**It knows people, animals, food, rooms and streets, as photos of COCO and Flickr8k show them.** BLIP is far better, and
one command away: `showtell caption Salesforce/blip-image-captioning-large photo.jpg`.

- **Model:** soft attention (Xu et al. 2015) over the 9 x 9 cells of EfficientNet-Lite2, {weights:.1f} million
  weights in 16 bits, {megabytes:.0f} MB; {words:,} words.
- **Learned from** the {photos}, each in several
  views, with five captions (Hodosh et al. 2013; Lin et al. 2014).
- **Licence:** Flickr8k is for non-commercial research and education, and so are these weights. Photos of COCO have each
  their own Creative Commons licence, many of them non-commercial; its captions are CC BY 4.0. The three photos here are
  in the public domain (CC0), from scikit-image.
- **Made by** `python benchmarks/small_captioner.py`.

{scores}

A photo is of a kind if most of its references name something of it. A caption is good if its CIDEr-D is {good:g} or
more; the chance of that was calibrated on the validation photos of both. Expected calibration error on validation
photos that the map was not fitted to: {errors}.
Marked are captions with a chance below a third, and photos whose features lie outside of what those of 99 % of the
validation photos span. Scores are times 100.
"""


def write_views(photos: Path, views: int, out: Path) -> None:
    """A dataset with the photos of another, those of train in so many views, the first the photo as it is."""
    dataset = open_dataset(photos)
    records = [(record, split) for split in ("train", "val") for record in dataset[split]]
    lines = [csv_line("image", "caption", "split")]
    (out / "images").mkdir(parents=True, exist_ok=True)
    with counting("writing views", len(records)) as progress:
        for record, split in records:
            for number in range(views if split == "train" else 1):
                name = f"images/{Path(record.image_id).stem}-{number}.jpg"
                if number == 0:
                    write_bytes(out / name, record.path.read_bytes())
                else:
                    with Image.open(record.path) as photo:
                        _view(photo.convert("RGB"), f"{record.image_id}{number}").save(out / name, quality=92)
                lines += [csv_line(name, caption, split) for caption in record.captions]
            progress(1)
    write_bytes(out / "captions.csv", "".join(lines).encode())


def _view(photo: Image.Image, seed: str) -> Image.Image:
    """Half of the photo or more, in other light, half of the time mirrored."""
    rng = random.Random(seed)
    area, aspect = rng.uniform(0.5, 1) * photo.width * photo.height, rng.uniform(0.85, 1.18)
    width, height = min(photo.width, int((area * aspect) ** 0.5)), min(photo.height, int((area / aspect) ** 0.5))
    left, top = rng.randint(0, photo.width - width), rng.randint(0, photo.height - height)
    size = (min(photo.width, SIDE), min(photo.height, SIDE))
    view = photo.crop((left, top, left + width, top + height)).resize(size, Image.Resampling.BICUBIC)
    for change in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        view = change(view).enhance(rng.uniform(0.8, 1.2))
    view = ImageEnhance.Sharpness(view).enhance(rng.uniform(0.5, 2.5))
    return ImageOps.mirror(view) if rng.random() < 0.5 else view


def write_small(best: Path, photos: Sequence[Path], others: Sequence[Path], out: Path) -> None:
    """Write the checkpoint, its calibration and its card; `photos` were learned from, `others` were not."""
    captioner = EncoderDecoderCaptioner.from_pretrained(best)
    for part in (captioner.encoder, captioner.decoder):
        part.half()
    captioner.decoding = captioner.settings(**DECODING)
    kept = {key: value for key, value in captioner.origin.items() if key == "trained"}
    datasets = [open_dataset(path) for path in photos]
    learned = {name: len(dataset["train"]) for name, dataset in zip(("Flickr8k", "COCO"), datasets, strict=True)}
    captioner.origin = {
        "data": " and ".join(learned), "train_images": sum(learned.values()), **kept, "about": ABOUT,
        "licence": LICENCE,
    }  # fmt: skip
    (out / CALIBRATION).unlink(missing_ok=True)  # of the weights before
    captioner.save_pretrained(out)
    captioner = EncoderDecoderCaptioner.from_pretrained(out)
    records = open_dataset(photos)["val"]
    with counting("calibrating", len(records)) as progress:
        calibration = calibrate(captioner, records, progress=progress)
    save_calibration(out, captioner.about.fingerprints["weights"], calibration)
    captioner = EncoderDecoderCaptioner.from_pretrained(out)
    rows = [
        "| photos | | BLEU-4 | METEOR | CIDEr-D | marked | CIDEr-D of the marked | of the others |", "|" + "---|" * 8,
        *_rows("Flickr8k, test", captioner, photos[:1]),
        *_rows("COCO, kept apart", captioner, others, KINDS),
    ]  # fmt: skip
    sizes = [(name, len(dataset["val"])) for name, dataset in zip(learned, datasets, strict=True)]
    weights = sum(tensor.numel() for part in (captioner.encoder, captioner.decoder) for tensor in part.parameters())
    card = CARD.format(
        weights=weights / 1e6, megabytes=(out / "model.safetensors").stat().st_size / 1e6,
        words=len(captioner.vocabulary) - 4, scores="\n".join(rows), good=GOOD_CIDER,
        photos=" and ".join(f"{count:,} training photos of {name}" for name, count in learned.items()),
        errors=_errors(captioner, records, sizes),
    )  # fmt: skip
    write_bytes(out / "README.md", card.encode())


def _errors(
    captioner: EncoderDecoderCaptioner, records: CaptionDataset, sizes: Sequence[tuple[str, int]]
) -> str:  # fmt: skip
    """The expected calibration error on the photos of each dataset, each fold by a map of the others, and by chance."""
    with counting("captioning", len(records)) as progress:
        result = evaluate(captioner, records, metrics="cider", progress=progress)
    captions = [result.captions[record.image_id] for record in records]
    batches = [records[start : start + BATCH] for start in range(0, len(records), BATCH)]
    photos = [captioner.encode_prepared([captioner.prepare(record.path) for record in batch]) for batch in batches]
    vectors = np.concatenate([captioner.mean_features(photo) for photo in photos])
    good = np.array([_cider(result, record.image_id) >= GOOD_CIDER for record in records])
    fold, chances = np.arange(len(good)) % FOLDS, np.empty(len(good))
    for number in range(FOLDS):
        kept, asked = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        of_kept = [captions[index] for index in kept]
        fitted = Calibration.fit(of_kept, good[kept].tolist(), "", captioner.decoding, vectors[kept])
        chances[asked] = fitted.confidences([captions[index] for index in asked], vectors[asked])
    parts, start, rng = [], 0, np.random.default_rng(0)
    for name, size in sizes:
        own = slice(start, start := start + size)

        def error_of(is_good: np.ndarray, chance: np.ndarray = chances[own]) -> float:
            return Reliability.of(chance.tolist(), is_good.tolist()).expected_calibration_error

        error, drawn = error_of(good[own]), [error_of(rng.random(size) < chances[own]) for _ in range(200)]
        parts.append(f"{error:.3f} on {size:,} of {name} ({np.mean(drawn):.3f} if every chance were exact)")
    return ", ".join(parts)


def _rows(
    title: str, captioner: EncoderDecoderCaptioner, folders: Sequence[Path], kinds: Mapping[str, str] = {}
) -> Iterator[str]:
    """Scores of photos kept apart, and of those of each kind; of the captions that are marked, and of the others."""
    dataset = open_dataset(folders)
    records = list(dataset["test"] if len(folders) == 1 else dataset)
    with counting("captioning", len(records)) as progress:
        result = evaluate(captioner, records, metrics=METRICS, progress=progress)
    scores = [f"{100 * (result.scores[name] or 0.0):.1f}" for name in ("bleu_4", "meteor")]
    yield _row(title, result, [record.image_id for record in records], scores)
    for kind, names in kinds.items():
        wanted = set(names.split(", "))
        phrases = phrases_of(wanted)
        ids = []
        for record in records:
            naming = [text for text in record.captions if categories_shown((), [tokenize(text)], phrases)]
            if 2 * len(naming) > len(record.captions):
                ids.append(record.image_id)
        yield _row(f"... {kind}", result, ids, ["", ""])


def _row(title: str, result: Evaluation, ids: Sequence[str], scores: Sequence[str]) -> str:
    marked = [_cider(result, image) for image in ids if result.captions[image].doubt]
    others = [_cider(result, image) for image in ids if not result.captions[image].doubt]
    shares = [f"{100 * sum(part) / max(1, len(part)):.1f}" for part in (marked + others, marked, others)]
    cells = [title, f"{len(ids):,}", *scores, shares[0], f"{len(marked) / len(ids):.0%}", *shares[1:]]
    return f"| {' | '.join(cells)} |"


def _cider(result: Evaluation, image: str) -> float:
    return result.per_image[image]["cider"] or 0.0


def main() -> int:
    """Make it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, nargs=2, default=[Path("data/flickr8k"), Path("data/coco-photos")])
    parser.add_argument("--others", type=Path, nargs="+", default=[Path("data/coco-held"), Path("data/coco-mini")])
    parser.add_argument("--runs", type=Path, default=Path("runs/small"))
    parser.add_argument("--out", type=Path, default=Path("src/showtell/small"))
    arguments = parser.parse_args()
    keep_freed_memory()
    best = None
    for step in STEPS:
        folders = []
        for photos, views in zip(arguments.photos, step.views, strict=True):
            if views:
                folders.append(arguments.runs / "views" / f"{photos.name}-{views}")
                if not (folders[-1] / "captions.csv").is_file():
                    write_views(photos, views, folders[-1])
        paths = ",".join(map(str, folders))
        overrides = [f"data.path=[{paths}]", f"vocabulary.min_count={step.min_count}", *step.changes]
        overrides += [] if best is None else [f"training.start_from={best}"]
        run = arguments.runs / step.name
        train(load_recipe(step.recipe, overrides), run, resume=True)
        best = run / "best"
    assert best is not None, "there is a step"
    write_small(best, arguments.photos, arguments.others, arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
