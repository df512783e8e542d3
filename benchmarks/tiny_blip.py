"""A tiny BLIP, trained on drawn scenes with transformers alone: a captioner that others made, for where no hub is.

    showtell data scenes scenes                           # or the data of a quickstart
    python benchmarks/tiny_blip.py scenes blip-scenes [--steps 3000] [--seconds 900]
    showtell evaluate RUN/best blip-scenes scenes --num-beams 5

A ViT of 3 layers on 8 x 8 patches, a text decoder of 2 layers, 96 wide: half a million weights. The tokenizer has the
words of the training captions. Nothing of showtell takes part but the reading of the dataset.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Any

from showtell.datasets import open_dataset

import torch
from PIL import Image

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]"]
SIDE, WIDTH, BATCH = 64, 96, 48


def make_parts(captions: list[str]) -> tuple[Any, Any]:
    """The model with fresh weights, and its processor with the words of the captions."""
    import transformers

    words = Counter(word for caption in captions for word in caption.lower().replace(".", " .").split())
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = list(dict.fromkeys([*SPECIAL, *words, *letters, *(f"##{letter}" for letter in letters)]))
    tokenizer = transformers.BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})
    tokenizer.add_special_tokens({"bos_token": "[DEC]"})
    size = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_attention_heads": 4, "projection_dim": 32}
    text = {
        "vocab_size": len(pieces), "num_hidden_layers": 2, "max_position_embeddings": 64, "encoder_hidden_size": WIDTH,
        "bos_token_id": 5, "eos_token_id": 3, "sep_token_id": 3, "pad_token_id": 0,
    }  # fmt: skip
    vision = {"image_size": SIDE, "patch_size": 8, "num_hidden_layers": 3}
    config = transformers.BlipConfig(
        text_config={**size, **text}, vision_config={**size, **vision}, image_text_hidden_size=32, projection_dim=32
    )
    images = transformers.BlipImageProcessor(size={"height": SIDE, "width": SIDE})
    return transformers.BlipForConditionalGeneration(config), transformers.BlipProcessor(images, tokenizer)


def train(data: Path, out: Path, steps: int, seconds: float) -> None:
    """Train for some steps, or until the time is over, and save."""
    records = open_dataset(data).split("train")
    pairs = [(record.path, caption) for record in records for caption in record.captions]
    torch.manual_seed(0)
    model, processor = make_parts([caption for _, caption in pairs])
    pixels: dict[Path, torch.Tensor] = {}
    for record in records:
        image = Image.open(record.path).convert("RGB")
        pixels[record.path] = processor.image_processor(images=image, return_tensors="pt")["pixel_values"][0].half()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.5e-3, total_steps=steps)
    generator = torch.Generator().manual_seed(0)
    began = time.perf_counter()
    for step in range(steps):
        chosen = [pairs[index] for index in torch.randint(len(pairs), (BATCH,), generator=generator).tolist()]
        encoded = processor.tokenizer([caption for _, caption in chosen], padding=True, return_tensors="pt")
        encoded.input_ids[:, 0] = 5  # captions begin with [DEC]
        loss = model(
            pixel_values=torch.stack([pixels[path] for path, _ in chosen]).float(),
            input_ids=encoded.input_ids,
            attention_mask=encoded.attention_mask,
            labels=encoded.input_ids.masked_fill(encoded.attention_mask == 0, -100),
        ).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        elapsed = time.perf_counter() - began
        if step % 100 == 0:
            print(f"step {step}, loss {loss.item():.3f}, {elapsed:.0f} s", flush=True)
        if elapsed > seconds:
            break
    model.eval().save_pretrained(out)
    processor.save_pretrained(out)


def main() -> None:
    """Train one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="dataset")
    parser.add_argument("out", type=Path, help="folder for the model")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=900)
    given = parser.parse_args()
    train(given.data, given.out, given.steps, given.seconds)


if __name__ == "__main__":
    main()
