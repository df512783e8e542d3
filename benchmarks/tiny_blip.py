"""A tiny BLIP that learns scenes, then from 300 corrections, then by reward; and which captions to correct first.

    python benchmarks/tiny_blip.py OUT                       # base, corrections, rewards: a table
    python benchmarks/tiny_blip.py OUT --order --seeds 3     # which to correct first, with and without replay

The base is a BLIP of transformers with fresh weights, of which all learn the captions of drawn scenes; so there is a
captioner of transformers to adapt without a network. "New" pictures have colours and shapes that it never saw together
(`test_compositional`): half of them are corrected, the others are scored; "old" ones are of its own kind (`test`). In
place of a person the program that drew a picture gives its first caption where the captioner's has a false statement.
What is there already is not made again.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import _threads  # noqa: F401  (first)
from showtell.captioners import Captioner
from showtell.captioners.hugging_face import TransformersCaptioner
from showtell.captioners.hugging_face_adapters import export
from showtell.captions import Caption
from showtell.datasets import open_dataset
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.table import csv_line
from showtell.evaluation import caption_records
from showtell.scenes import write_scenes
from showtell.scenes.truth import judge
from showtell.scores import compare, image_facts, score
from showtell.text.tokenizer import tokenize
from showtell.training import train

SIZE = 48  # pixels of the pictures
WIDTH, LAYERS, HEADS = 128, 3, 4
CORRECTIONS = 300
Captions = dict[str, Caption]


def make_base(folder: Path, words: Sequence[str]) -> None:
    """A BLIP of a few hundred thousand fresh weights whose tokens are the words of scenes."""
    import transformers as hf
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]"]
    ids = {word: index for index, word in enumerate([*special, *words])}
    tokenizer = Tokenizer(models.WordLevel(ids, "[UNK]"))
    tokenizer.add_special_tokens(special)
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]",
    )  # fmt: skip
    layers = {
        "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    }  # fmt: skip
    text = {
        **layers, "encoder_hidden_size": WIDTH, "projection_dim": WIDTH, "vocab_size": len(ids), "pad_token_id": 0,
        "max_position_embeddings": 64, "bos_token_id": 5, "sep_token_id": 3, "eos_token_id": 3,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    }  # fmt: skip
    config = hf.BlipConfig(
        vision_config={**layers, "image_size": SIZE, "patch_size": 6}, text_config=text, projection_dim=WIDTH,
        image_text_hidden_size=WIDTH, initializer_range=0.05,
    )  # fmt: skip
    images = hf.BlipImageProcessor(
        size={"height": SIZE, "width": SIZE}, image_mean=[0.5] * 3, image_std=[0.5] * 3, resample=3
    )
    hf.BlipForConditionalGeneration(config).save_pretrained(folder)
    hf.BlipProcessor(images, fast).save_pretrained(folder)


def fitted(out: Path, recipe: dict[str, Any]) -> tuple[Path, float]:
    """The best checkpoint of a run, which is trained if it is not there, and the minutes that it took."""
    began = time.monotonic()
    note = out.with_suffix(".minutes")
    if not note.exists():
        recipe["training"] = {"trackers": [], "log_every": 50, **recipe["training"]}
        train(recipe, out, resume=True)
        note.write_text(f"{(time.monotonic() - began) / 60:.1f}")
    return out / "best", float(note.read_text())


class Study:
    """Old and new pictures, and what a captioner says of them."""

    def __init__(self, out: Path, images: int) -> None:
        self.out, self.data = out, out / "scenes"
        write_scenes(self.data, images=images, size=SIZE)
        self.dataset: CaptionDataset = open_dataset(self.data)
        new = self.dataset["test_compositional"]
        self.to_correct, self.new = new[: len(new) // 2], new[len(new) // 2 :]
        self.old = self.dataset["test"]

    def base(self, epochs: int) -> Path:
        """The captioner before."""
        start = self.out / "fresh"
        if not start.exists():
            words = {word for r in self.dataset["train"] for one in r.captions for word in tokenize(one)}
            make_base(start, sorted(words))
        recipe = {
            "data": {"path": str(self.data), "captions_per_image": 2, "workers": 2},
            "model": {"learns": "all"},
            "objective": {"name": "cross_entropy"},
            "training": {
                "start_from": str(start), "epochs": epochs, "batch_size": 32, "learning_rate": 0.001,
                "schedule": "cosine", "warmup_steps": 200, "validate_every": 5,
            },
            "decoding": {"max_length": 30},
        }  # fmt: skip
        best, _ = fitted(self.out / "base", recipe)
        whole = self.out / "tiny-blip"
        if not whole.exists():
            captioner = Captioner.from_pretrained(best, "cpu")
            assert isinstance(captioner, TransformersCaptioner)
            export(captioner, whole)
        return whole

    def captions(self, captioner: Captioner, records: Sequence[CaptionRecord]) -> Captions:
        """Greedy captions."""
        return caption_records(captioner, records, captioner.settings(num_beams=1))

    def corrected(self, captions: Captions, records: Sequence[CaptionRecord], table: Path) -> int:
        """Write the table that a person would; the number of captions that had to be changed."""
        lines, changed = [csv_line("image", "caption", "split")], 0
        facts = image_facts(self.dataset)
        for record in records:
            text, scene = captions[record.image_id].text, facts[record.image_id].scene
            assert scene is not None
            if not judge(text, scene).whole:
                text, changed = record.captions[0], changed + 1
            lines.append(csv_line(str(record.path.relative_to(table.parent)), text, "train"))
        table.write_text("".join(lines))
        return changed

    def with_replay(self, table: Path, seed: int) -> None:
        """Add as many old pictures with their own captions."""
        text = table.read_text()
        chosen = random.Random(seed).sample(self.dataset["train"], text.count("\n") - 1)
        lines = [csv_line(str(r.path.relative_to(table.parent)), r.captions[0], "train") for r in chosen]
        table.write_text(text + "".join(lines))

    def adapt(self, name: str, start: Path, table: Path, seed: int = 0, **more: Any) -> tuple[Path, float]:
        """Train on a table of corrections."""
        recipe = {
            "data": {"path": str(table), "validation_split": None},
            "encoder": {"trained": False},
            "vocabulary": {"extend": True},
            "objective": {"name": "cross_entropy"},
            "training": {"start_from": str(start), "epochs": 5, "batch_size": 16, "learning_rate": 0.001, "seed": seed},
        }
        return fitted(
            self.out / name, {**recipe, **more, "training": {**recipe["training"], **more.get("training", {})}}
        )

    def report(self, name: str, checkpoint: Path, minutes: float = 0.0) -> dict[str, Any]:
        """Scores on old and new pictures, kept in a file."""
        file = self.out / f"{name}.json"
        if not file.exists():
            captioner, row = Captioner.from_pretrained(checkpoint, "cpu"), {}
            for kind, records in (("new", self.new), ("old", self.old)):
                captions = self.captions(captioner, records)
                row[kind] = {image: caption.text for image, caption in captions.items()}
            size = sum(path.stat().st_size for path in checkpoint.glob("*.safetensors")) / 1e6
            file.write_text(json.dumps({"captions": row, "minutes": minutes, "megabytes": size}))
        content: dict[str, Any] = json.loads(file.read_text())
        for kind, records in (("new", self.new), ("old", self.old)):
            facts = image_facts(records)
            content[kind] = score(content["captions"][kind], facts, metrics=["truth", "cider"])
        return content


def print_table(rows: dict[str, dict[str, Any]]) -> None:
    """A line for each row, and its paired differences from the first."""
    first = next(iter(rows.values()))
    for name, row in rows.items():
        cells = []
        for kind in ("new", "old"):
            for number in ("truth", "truth_whole", "cider"):
                cell = f"{row[kind].scores[number]:.3f}"
                if row is not first:
                    one = compare({"this": row[kind], "first": first[kind]})[number][0]
                    cell += f" ({one.value:+.3f} [{one.low:+.3f}, {one.high:+.3f}])"
                cells.append(cell)
        print(f"| {name} | {' | '.join(cells)} | {row['minutes']:.1f} | {row['megabytes']:.2f} |", flush=True)


def corrections_and_rewards(study: Study, base: Path) -> None:
    """Before, after corrections by adapters, all weights and a student, after rewards."""
    table = study.data / "corrections.csv"
    chosen = study.to_correct[:CORRECTIONS]
    captions = study.captions(Captioner.from_pretrained(base, "cpu"), chosen)
    print(f"{study.corrected(captions, chosen, table)} of {len(chosen)} captions were changed", flush=True)
    adapters = study.adapt("adapters", base, table)
    everything = {"model": {"learns": "all"}, "training": {"learning_rate": 0.0003}}
    student = {
        "encoder": {"name": "small_cnn", "image_size": SIZE, "widths": [16, 48, 96]},
        "model": {"name": "sat", "embedding_size": 64, "hidden_size": 128, "attention_size": 64},
        "vocabulary": {"min_count": 1},
        "training": {"start_from": None, "epochs": 40, "learning_rate": 0.002},
        "decoding": {"max_length": 30},
    }
    rewards = {
        "data": {"path": str(study.data), "limit": 2400, "max_length": 30},
        "objective": {"name": "self_critical", "samples": 5, "baseline": "leave_one_out"},
        "training": {"epochs": 3, "batch_size": 16, "learning_rate": 0.0003, "clip_norm": 1.0},
    }
    runs = {
        "before": (base, 0.0),
        "300 corrections, adapters": adapters,
        "300 corrections, all weights": study.adapt("all", base, table, **everything),
        "300 corrections, a student": study.adapt("student", base, table, **student),
        "adapters, then rewards": study.adapt("rewards", adapters[0], table, **rewards),
        "rewards alone": study.adapt("rewards-alone", base, table, **rewards),
    }
    rows = {name: study.report(f"scores-{number}", *run) for number, (name, run) in enumerate(runs.items())}
    print_table(rows)
    for kind in ("new", "old"):
        one = compare({name: rows[name][kind] for name in ("adapters, then rewards", "300 corrections, adapters")})[
            "cider"
        ][0]
        print(f"rewards minus adapters alone, CIDEr-D, {kind}: {one.value:+.3f} [{one.low:+.3f}, {one.high:+.3f}]")


# --- which to correct first ---


def least_sure(captions: Captions, images: Sequence[str], count: int, seed: int) -> list[str]:
    """Those that the captioner is least sure of."""
    return sorted(images, key=lambda image: captions[image].confidence)[:count]


def diverse(captions: Captions, images: Sequence[str], count: int, seed: int) -> list[str]:
    """One by one the image whose caption shares the fewest words with those taken before (k-centre, greedy)."""
    words = {image: set(captions[image].text.split()) for image in images}
    taken = [random.Random(seed).choice(list(images))]
    distance = {image: _jaccard(words[image], words[taken[0]]) for image in images}
    while len(taken) < count:
        image = max(distance, key=lambda one: distance[one])
        taken.append(image)
        distance = {one: min(value, _jaccard(words[one], words[image])) for one, value in distance.items()}
        distance[image] = -1.0
    return taken


def _jaccard(one: set[str], other: set[str]) -> float:
    return 1 - len(one & other) / max(1, len(one | other))


ORDERS: dict[str, Callable[[Captions, Sequence[str], int, int], list[str]]] = {
    "random": lambda _, images, count, seed: random.Random(seed).sample(list(images), count),
    "least sure": least_sure,
    "diverse": diverse,
    "least sure and diverse": lambda captions, images, count, seed: diverse(
        captions, least_sure(captions, images, 2 * count, seed), count, seed
    ),
}


def which_first(study: Study, base: Path, counts: Sequence[int], seeds: int) -> None:
    """Scores after the first corrections of each order, the mean and the spread over seeds."""
    captions = study.captions(Captioner.from_pretrained(base, "cpu"), study.to_correct)
    records = {record.image_id: record for record in study.to_correct}
    for count in counts:
        for order, choose in ORDERS.items():
            for replay in (False, True):
                rows = []
                for seed in range(seeds):
                    name = f"{order.replace(' ', '-')}-{count}{'-replay' * replay}-{seed}"
                    table = study.data / f"{name}.csv"
                    study.corrected(
                        captions, [records[one] for one in choose(captions, [*records], count, seed)], table
                    )
                    if replay:
                        study.with_replay(table, seed)
                    rows.append(study.report(f"scores-{name}", *study.adapt(name, base, table, seed)))
                cells = []
                for kind in ("new", "old"):
                    for number in ("truth", "truth_whole", "cider"):
                        values = [row[kind].scores[number] for row in rows]
                        cells.append(f"{statistics.mean(values):.3f} ± {statistics.pstdev(values):.3f}")
                print(f"| {count} | {order} | {'yes' if replay else 'no'} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=20, help="of the base")
    parser.add_argument("--order", action="store_true", help="which to correct first")
    parser.add_argument("--counts", type=int, nargs="+", default=[100, 300])
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    study = Study(asked.out, asked.images)
    base = study.base(asked.epochs)
    if asked.order:
        which_first(study, base, asked.counts, asked.seeds)
    else:
        corrections_and_rewards(study, base)


if __name__ == "__main__":
    main()
