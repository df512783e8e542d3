"""Make `small`, the captioner that comes with showtell, from the photos of Flickr8k (docs/datasets.md says where from).

   python benchmarks/small_captioner.py --photos data/flickr8k [--others data/coco-mini] [--runs runs/small]
       [--out src/showtell/small]

1. Two more views of each training photo are written: mirrored; and cropped, with other light and colours. A model that
   sees each photo in one view alone learns it by heart.
2. The steps of `STEPS` are trained, each from the one before. A step that is finished is not trained again; one that
   was interrupted resumes.
3. The weights are rounded to 16 bits and written with a calibration on the validation split and a card, which has the
   scores on the test split and, with `--others`, on photos of another kind.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import _threads  # noqa: F401  (first)
from showtell import evaluate, open_dataset
from showtell.captioners import EncoderDecoderCaptioner
from showtell.confidence.calibration import CALIBRATION, save_calibration
from showtell.cores import keep_freed_memory
from showtell.datasets.table import csv_line
from showtell.evaluation import GOOD_CIDER, calibrate
from showtell.files import write_bytes
from showtell.progress import counting
from showtell.training import load_recipe, train

from PIL import Image, ImageEnhance, ImageOps

VIEWS = 3  # of each training photo: as it is, mirrored, cropped
LEARNING = (
    "encoder.trained=true", "encoder.frozen_batch_norm=true", "encoder.learning_rate=0.0001",
    "training.learning_rate=0.0005", "data.features=null", "data.memory_megabytes=1",
)  # fmt: skip
# Name, recipe, and what is changed in it. Words are counted in all views.
STEPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("likelihood", "flickr8k/small/sat_soft", ("training.epochs=3", "training.validate_every=1")),
    ("encoder", "flickr8k/small/sat_soft", ("training.epochs=1", "training.validate_every=1", *LEARNING)),
)
DECODING = {
    "num_beams": 5, "length_normalisation": "average", "min_length": 3, "no_repeat_ngram_size": 3, "no_unknown": True,
    "no_bad_endings": True,
}  # fmt: skip
ABOUT = "people and dogs out of doors; for anything else BLIP is far better"
LICENCE = "weights for non-commercial research and education, as Flickr8k; photos: public domain"
METRICS = ("bleu", "meteor", "cider")
CARD = """\
# small

**It knows people and dogs out of doors.** On everything else BLIP is far better, and one command away:
`showtell caption Salesforce/blip-image-captioning-large photo.jpg`.

- **Model:** soft attention (Xu et al. 2015) over the 9 x 9 cells of EfficientNet-Lite2, {weights:.1f} million
  weights in 16 bits, {megabytes:.0f} MB; {words:,} words.
- **Learned from** the 6,000 training photos of Flickr8k (Hodosh et al. 2013), each in {views} views, with five
  captions.
- **Licence:** Flickr8k is for non-commercial research and education, and so are these weights. The three photos are
  in the public domain: astronaut (NASA), cat and coffee (CC0), from scikit-image.
- **Made by** `python benchmarks/small_captioner.py --photos data/flickr8k`.

{scores}

A caption is good if its CIDEr-D is {good:g} or more; the chance of that was calibrated on the validation photos
(expected calibration error {ece:.3f}). Marked are captions with a chance below a third, and photos
whose features lie outside of what those of 99 % of the validation photos span. Scores are times 100.
"""


def write_views(photos: Path, out: Path) -> None:
    """A dataset with the photos of another and more views of those in train, in the layout of Flickr8k."""
    dataset = open_dataset(photos)
    training = dataset["train"]
    names = {split: [record.image_id for record in dataset[split]] for split in ("val", "test")}
    names["train"] = [f"{record.image_id[:-4]}{view}.jpg" for record in training for view in ("", "-mirror", "-crop")]
    lines = [csv_line("image", "caption")]
    with counting("writing views", len(dataset.records)) as progress:
        for record in dataset.records:
            own = [record.image_id]
            _link(record.path, out / "images" / record.image_id)
            if record in training:
                own = [f"{record.image_id[:-4]}{view}.jpg" for view in ("", "-mirror", "-crop")]
                with Image.open(record.path) as opened:
                    _write_views(opened.convert("RGB"), record.image_id, [out / "images" / name for name in own[1:]])
            lines += [csv_line(name, caption) for name in own for caption in record.captions]
            progress(1)
    for split, file in (("train", "train"), ("val", "dev"), ("test", "test")):
        write_bytes(out / f"Flickr_8k.{file}Images.txt", "\n".join(names[split]).encode() + b"\n")
    write_bytes(out / "captions.txt", "".join(lines).encode())


def _link(photo: Path, link: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.exists():
        link.hardlink_to(photo)


def _write_views(photo: Image.Image, seed: str, files: Sequence[Path]) -> None:
    """The mirrored photo; and 60 to 95 % of it, recoloured, half of the time mirrored."""
    mirror, crop = files
    rng = random.Random(seed)
    ImageOps.mirror(photo).save(mirror, quality=95)
    area, aspect = rng.uniform(0.6, 0.95) * photo.width * photo.height, rng.uniform(0.85, 1.18)
    width, height = min(photo.width, int((area * aspect) ** 0.5)), min(photo.height, int((area / aspect) ** 0.5))
    left, top = rng.randint(0, photo.width - width), rng.randint(0, photo.height - height)
    view = photo.crop((left, top, left + width, top + height)).resize(photo.size, Image.Resampling.BICUBIC)
    for change in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        view = change(view).enhance(rng.uniform(0.8, 1.2))
    if rng.random() < 0.5:
        view = ImageOps.mirror(view)
    view.save(crop, quality=95)


def write_small(best: Path, photos: Path, others: Path | None, out: Path) -> None:
    """Write the checkpoint, its calibration and its card."""
    captioner = EncoderDecoderCaptioner.from_pretrained(best)
    for part in (captioner.encoder, captioner.decoder):
        part.half()
    captioner.decoding = captioner.settings(**DECODING)
    kept = {key: value for key, value in captioner.origin.items() if key == "trained"}
    captioner.origin = {"data": "Flickr8k", "train_images": 6000, **kept, "about": ABOUT, "licence": LICENCE}
    (out / CALIBRATION).unlink(missing_ok=True)  # of the weights before
    captioner.save_pretrained(out)
    captioner = EncoderDecoderCaptioner.from_pretrained(out)
    dataset = open_dataset(photos)
    records = dataset["val"]
    with counting("calibrating", len(records)) as progress:
        calibration = calibrate(captioner, records, progress=progress)
    save_calibration(out, captioner.about.fingerprints["weights"], calibration)
    captioner = EncoderDecoderCaptioner.from_pretrained(out)
    rows = [_row("Flickr8k test, 1,000 photos", captioner, photos, "test")]
    if others is not None:
        splits = open_dataset(others).splits
        rows += [_row(f"{others.name}, photos of another kind", captioner, others, *splits)]
    weights = sum(tensor.numel() for part in (captioner.encoder, captioner.decoder) for tensor in part.parameters())
    head = (
        "| photos | BLEU-4 | METEOR | CIDEr-D | marked | CIDEr-D of the marked | of the others |\n" + "|---" * 7 + "|\n"
    )
    card = CARD.format(
        weights=weights / 1e6, megabytes=(out / "model.safetensors").stat().st_size / 1e6, views=VIEWS,
        words=len(captioner.vocabulary) - 4, scores=head + "\n".join(rows), good=GOOD_CIDER,
        ece=calibration.reliability.expected_calibration_error,
    )  # fmt: skip
    write_bytes(out / "README.md", card.encode())


def _row(title: str, captioner: EncoderDecoderCaptioner, data: Path, *splits: str) -> str:
    """Scores of the captions of splits, and those of the captions that are marked and of the others."""
    dataset = open_dataset(data)
    records = dataset[splits]
    with counting("captioning", len(records)) as progress:
        result = evaluate(captioner, records, metrics=METRICS, progress=progress)
    ciders: Mapping[str, float] = {image: numbers["cider"] or 0.0 for image, numbers in result.per_image.items()}
    marked = [ciders[image] for image, caption in result.captions.items() if caption.doubt]
    others = [ciders[image] for image, caption in result.captions.items() if not caption.doubt]
    scores = [result.scores[name] for name in ("bleu_4", "meteor", "cider")]
    shares = [sum(part) / max(1, len(part)) for part in (marked, others)]
    cells = [f"{100 * (value or 0.0):.1f}" for value in (*scores, *shares)]
    return " | ".join([f"| {title}", *cells[:3], f"{len(marked) / len(records):.0%}", *cells[3:]]) + " |"


def main() -> int:
    """Make it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, default=Path("data/flickr8k"))
    parser.add_argument("--others", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/small"))
    parser.add_argument("--out", type=Path, default=Path("src/showtell/small"))
    arguments = parser.parse_args()
    keep_freed_memory()
    views, best = arguments.runs / "views", None
    if not (views / "captions.txt").is_file():
        write_views(arguments.photos, views)
    for name, recipe, changes in STEPS:
        overrides = [f"data.path={views}", f"vocabulary.min_count={5 * VIEWS}", *changes]
        overrides += [] if best is None else [f"training.start_from={best}"]
        run = arguments.runs / name
        train(load_recipe(recipe, overrides), run, resume=True)
        best = run / "best"
    assert best is not None, "there is a step"
    write_small(best, arguments.photos, arguments.others, arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
