"""What a captioner gains and forgets by corrections, by how much of the start is kept (docs/correct_captions.md).

    python benchmarks/corrections.py START --corrections coco-photos:train --new coco-held:test --known flickr8k:test

For each seed it learns from the next COUNT photos, one caption each, as `adapt/corrections` does, and averages the
weights with the start's in several shares. A line of CSV for each point: scores by greedy search, times 100, and the
share of captions that another photo has too.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys

import _threads  # noqa: F401  (first)
from showtell import open_dataset
from showtell.captioners import EncoderDecoderCaptioner
from showtell.counter_rng import CounterRNG, use
from showtell.datasets import CaptionRecord
from showtell.decoding import teacher_forced
from showtell.models import build_decoder
from showtell.scores import ImageFacts, diagnose, score
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import SPECIAL, Vocabulary
from showtell.training.start import StartAverage, _take_weights
from showtell.types import Features

import torch
from torch.nn.utils.rnn import pad_sequence

EPOCHS, BATCH_SIZE, MAX_LENGTH = 8, 16, 30
COUNT, SEEDS, SHARES = 300, 3, (0, 0.5, 0.6, 0.7, 0.8)  # of the start's weights
Photo = tuple[CaptionRecord, torch.Tensor]  # and its features (R, D)


def encoded(captioner: EncoderDecoderCaptioner, records: list[CaptionRecord]) -> list[Photo]:
    """The records with their features."""
    vectors = [f.vectors.half() for f in captioner.encode_photos([record.path for record in records], 32)]
    return list(zip(records, torch.cat(vectors), strict=True))


def features(photos: list[Photo]) -> Features:
    """Features (B, R, D) of photos."""
    vectors = torch.stack([vector for _, vector in photos]).float()
    return Features(vectors, torch.ones(vectors.shape[:2], dtype=torch.bool))


def measure(captioner: EncoderDecoderCaptioner, photos: list[Photo]) -> list[str]:
    """CIDEr-D, METEOR and the share of repeated captions."""
    settings, captions = captioner.settings(num_beams=1, search="greedy"), {}
    for first in range(0, len(photos), 64):
        batch = photos[first : first + 64]
        for (record, _), (best, *_) in zip(batch, captioner.caption_features(features(batch), settings), strict=True):
            captions[record.image_id] = best.text
    report = score(captions, {record.image_id: ImageFacts(record.captions) for record, _ in photos}, "cider,meteor")
    values = [report.scores["cider"] or 0, report.scores["meteor"] or 0, diagnose(captions.values())["identical"]]
    return [f"{100 * value:.2f}" for value in values]


def learn(
    start: EncoderDecoderCaptioner, photos: list[Photo], rate: float, seed: int
) -> tuple[EncoderDecoderCaptioner, StartAverage]:
    """A captioner that has learned from the first caption of each photo, and its starting weights."""
    torch.manual_seed(seed)
    captioner, known = copy.copy(start), start.vocabulary.words[len(SPECIAL) :]
    lacking = [[w for w in tokenize(record.captions[0]) if w not in start.vocabulary] for record, _ in photos]
    captioner.vocabulary = Vocabulary([*known, *Vocabulary.build(lacking).words[len(SPECIAL) :]])
    sizes = {"feature_size": start.encoder.feature_size, "vocabulary_size": len(captioner.vocabulary)}
    captioner.decoder = decoder = build_decoder(start.decoder.config, **sizes)
    _take_weights(decoder, start.decoder)
    average = StartAverage(decoder, 1.0)
    optimizer, rng, step = torch.optim.Adam(decoder.parameters(), lr=rate), random.Random(seed), 0
    for _ in range(EPOCHS):
        order = rng.sample(photos, len(photos))
        for first in range(0, len(order), BATCH_SIZE):
            own = order[first : first + BATCH_SIZE]
            ids = [captioner.vocabulary.encode_text(record.captions[0], MAX_LENGTH) for record, _ in own]
            words = pad_sequence([torch.tensor(caption) for caption in ids], True, Vocabulary.pad).unsqueeze(1)
            inputs, targets, seen = words[..., :-1], words[..., 1:], features(own)
            is_word = targets != Vocabulary.pad
            decoder.train()
            with use(CounterRNG(seed, step, [record.image_id for record, _ in own])):
                logprobs = teacher_forced(decoder, seen, inputs).logits.log_softmax(-1)
            loss = -logprobs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)[is_word].mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(decoder.parameters(), 5.0)
            optimizer.step()
            step += 1
    decoder.eval()
    return captioner, average


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("start")
    for name in ("--corrections", "--new", "--known"):
        parser.add_argument(name, required=True, nargs="+", help="DATASET:SPLIT, several are put together")
    parser.add_argument("--learning-rate", type=float, default=0.001)
    arguments = parser.parse_args()
    start = EncoderDecoderCaptioner.from_pretrained(arguments.start, "cpu")
    start.decoder.float()

    def read(names: list[str]) -> list[CaptionRecord]:
        pairs = (name.rsplit(":", 1) for name in names)
        return [record for path, split in pairs for record in open_dataset(path)[split]]

    corrections = read(arguments.corrections)
    random.Random(0).shuffle(corrections)
    corrected = encoded(start, corrections[: COUNT * SEEDS])
    new, known = encoded(start, read(arguments.new)), encoded(start, read(arguments.known))
    numbers = [f"{kind}_{number}" for kind in ("new", "known") for number in ("cider", "meteor", "repeated")]
    print("seed,learning_rate,start_share", *numbers, sep=",")
    print("start,,", *measure(start, new), *measure(start, known), sep=",", flush=True)
    for seed in range(SEEDS):
        photos = corrected[COUNT * seed : COUNT * (seed + 1)]
        learned, average = learn(start, photos, arguments.learning_rate, seed)
        for share in SHARES:
            average.share = share
            with average.applied():
                point = seed, arguments.learning_rate, share
                print(*point, *measure(learned, new), *measure(learned, known), sep=",", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
