"""What `caption` costs over a bare loop of processor and `generate`, for a captioner of transformers.

    python benchmarks/any_captioner.py [--model FOLDER] [--photos FOLDER] [--images 24] [--batch-size 8] [--repeats 3]

Without --model it is BLIP as `Salesforce/blip-image-captioning-base` has it (a ViT of 12 layers at 384 pixels, a text
decoder of 12 layers, 30,524 tokens), with random weights, which never say the end: every caption has 20 tokens. Without
--photos they are JPEGs of 500 x 375 with texture. The same run measures, in turn, and compares the medians of:
  - the bare loop: open with Pillow, processor, `generate`, decode, batch by batch in the same batches;
  - `caption_photos`: the same with the log-probabilities of all tokens and words, errors photo by photo, and reading
    ahead.
A ratio of 1.05 means that captions cost 5 % more than the bare loop.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from caption_folder import write_photos
from rows import seconds, show
from showtell.captioners import Captioner
from showtell.images.photo_files import find_photos

import torch
from PIL import Image

TOKENS = 30_524
LENGTH = 20  # tokens of a caption


def make_blip(folder: Path) -> Path:
    """BLIP base with random weights, saved as a user has it."""
    import transformers

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]"]
    words = [*special, *(f"word{number}" for number in range(TOKENS - len(special)))]
    tokenizer = transformers.BertTokenizer(vocab={word: number for number, word in enumerate(words)})
    tokenizer.add_special_tokens({"bos_token": "[DEC]"})
    ids = {"bos_token_id": 5, "eos_token_id": 3, "sep_token_id": 3, "pad_token_id": 0}
    config = transformers.BlipConfig(
        text_config={"vocab_size": TOKENS, **ids}, vision_config={"image_size": 384}, image_text_hidden_size=256
    )
    torch.manual_seed(0)
    transformers.BlipForConditionalGeneration(config).save_pretrained(folder)
    images = transformers.BlipImageProcessor(size={"height": 384, "width": 384})
    transformers.BlipProcessor(images, tokenizer).save_pretrained(folder)
    return folder


def measure(folder: Path, paths: list[Path], batch_size: int, repeats: int) -> list[dict[str, Any]]:
    """The rows for one model."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    captioner = Captioner.from_pretrained(folder, device="cpu")
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    processor = AutoProcessor.from_pretrained(folder)
    settings = captioner.settings(search="greedy", max_length=LENGTH)
    texts: dict[str, list[str]] = {}

    @torch.no_grad()
    def bare() -> None:
        texts["bare"] = []
        for first in range(0, len(paths), batch_size):
            images = [Image.open(path).convert("RGB") for path in paths[first : first + batch_size]]
            ids = model.generate(
                **processor(images=images, return_tensors="pt"), do_sample=False, num_beams=1, max_new_tokens=LENGTH
            )
            texts["bare"] += [text.strip() for text in processor.batch_decode(ids, skip_special_tokens=True)]

    def captions() -> None:
        results = captioner.caption_photos(paths, settings, batch_size, first_alone=False)
        texts["showtell"] = [one[0].text for _, one in results]  # type: ignore[index]  # no photo is broken

    bare_time, own_time = seconds(repeats, bare, captions)
    assert texts["bare"] == texts["showtell"], "the two do the same"
    row = {
        "name": f"caption_{captioner.about.name}",
        "value": len(paths) / own_time,
        "unit": "images per second",
        "against": "a bare loop of processor and generate; more is slower",
        "ratio": own_time / bare_time,
        "batch_size": batch_size,
        "threads": torch.get_num_threads(),
    }
    return [row]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if arguments.photos is None:
            paths = write_photos(Path(name), arguments.images)
        else:
            paths = find_photos([str(arguments.photos)])[: arguments.images]
        folder = arguments.model or make_blip(Path(name, "blip"))
        rows = measure(folder, paths, arguments.batch_size, arguments.repeats)
    show(rows, arguments.json)


if __name__ == "__main__":
    main()
