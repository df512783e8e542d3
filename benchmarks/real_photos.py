"""The five papers' systems on the photos of Flickr8k, on the features of one frozen encoder.

    python benchmarks/real_photos.py --photos data/flickr8k [--out runs/real-photos] [--rows A,B] [--seeds 1]
        [KEY=VALUE ...]

 1. The encoder is EfficientNet-Lite2 with its weights from the package index, frozen. Its last map (9 x 9 x 352, of
    photos of 288 x 288 pixels) goes into a store once; so does the map of the stage before (14 x 14 x 120, of 224).
 2. Every row is a recipe of `flickr8k/small`. Half of the rate that stands in it, that rate and twice it are tried by
    whole runs of seed 0, and further ones by the factor 2 as long as the best is at the edge, six at most; the best by
    CIDEr-D on validation is the row's. Rows with `tried_by` have the rate of another, those with `rate` a given one.
    (Runs of two epochs choose rates that are too high: docs/lab_notes.md.)
 3. Test captions are those of a beam of 5.

What came out of each run, and its captions of the test photos, is kept beside this file in `real_photos/`, so that
another machine continues where this one stopped: a run whose results are there is not run again, unless its weights
are needed by a row that starts from it and is not done; its own results stay then. `--kept FOLDER` begins anew with
another folder. `--summary-only` scores what is kept, and needs the captions of Flickr8k alone.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import _threads  # noqa: F401  (first)
from showtell.datasets import open_dataset
from showtell.hub import find_checkpoint
from showtell.recipes import FOLDER
from showtell.scores import diagnose
from showtell.scores.files import training_captions
from showtell.text.tokenizer import tokenize
from study import REINFORCE, Bench, Row, command

import torch
from torch.nn import functional

REFERENCE = "sat_soft"
SMALL = find_checkpoint("small") / "model.safetensors"
KEPT = Path(__file__).with_suffix("")
HARD = ("0_word", "0.1_caption", "1_word", "1_caption", "10_word", "10_caption")  # of `REINFORCE`
LETTER = (  # HACap §4.3 and LeakGAN: rewards for goals alone, no likelihood, no baseline; half as long
    "objective.cross_entropy=0", "objective.worker_weight=1", "objective.intrinsic_weight=1",
    "objective.external_weight=0", "objective.baseline=none", "training.epochs=3",
)  # fmt: skip
PLAIN_ATTENTION = ("model.gate=false", "model.readout=hidden", "objective.doubly_stochastic=0")

ROWS = (
    Row("nic_gru", "GRU, no attention", "nic_gru"),
    Row("nic_rnn", "plain RNN, no attention", "nic_gru", changes=("model.cell=rnn",)),
    Row("nic_lstm", "LSTM, no attention", "nic_gru", changes=("model.cell=lstm", "model.image=input")),
    Row(
        "nic_lstm_state", "LSTM whose first state is the photo", "nic_gru",
        changes=("model.cell=lstm",), tried_by="nic_lstm",
    ),
    Row(
        "nic_gru_input", "GRU whose first input is the photo", "nic_gru",
        changes=("model.image=input",), tried_by="nic_gru",
    ),
    Row(
        "nic_lstm3", "LSTM of 3 layers, no attention", "nic_gru",
        changes=("model.cell=lstm", "model.image=input", "model.layers=3"), tried_by="nic_lstm",
    ),
    Row(
        "sat_ensae", "attention of the report (no gate, readout from h)", "sat_soft",
        changes=PLAIN_ATTENTION, tried_by="sat_soft",
    ),
    Row("sat_soft", "soft attention", "sat_soft"),
    Row("sat_hard", "hard attention", "sat_hard"),
    Row("att2in", "Att2in", "att2in"),
    Row("updown", "Up-Down over the grid", "updown"),
    Row("stack", "Stack, stacked attention", "stack"),
    Row(
        "stack_independent", "Stack, independent attention", "stack",
        changes=("model.attention=independent",), tried_by="stack",
    ),
    Row("hacap", "HACap, pre-trained", "hacap"),
    Row("hacap_fast", "HACap at twice the rate", "hacap", rate=0.004),
    Row("hacap_no_manager", "HACap without the manager", "hacap", changes=("model.manager=false",), tried_by="hacap"),
    Row(
        "hacap_worker", "HACap, worker alone", "hacap",
        changes=("model.goals=false", "objective.name=cross_entropy"), tried_by="hacap",
    ),
    Row("transformer", "transformer", "transformer"),
    # what the ingredients of Show, Attend and Tell bring
    Row(
        "soft_no_gate", "soft attention without the gate", "sat_soft",
        changes=("model.gate=false",), tried_by="sat_soft",
    ),
    Row(
        "soft_hidden", "soft attention, readout from h alone", "sat_soft",
        changes=("model.readout=hidden",), tried_by="sat_soft",
    ),
    Row(
        "soft_no_penalty", "soft attention without the penalty", "sat_soft",
        changes=("objective.doubly_stochastic=0",), tried_by="sat_soft",
    ),
    Row("soft_before", "soft attention, the stage before (14 x 14)", "sat_soft", "before"),
    *(
        Row(
            f"hard_{name}", f"hard attention, lambda_r {name.replace('_', ', reward per ')}", "sat_hard",
            changes=REINFORCE[name], tried_by=None if name == "0_word" else "sat_hard",
        )
        for name in HARD
    ),
    Row(
        "hard_sampled", "hard attention, always a sample", "sat_hard",
        changes=("model.expectation_probability=0",), tried_by="hard_0_word",
    ),
    # rewards
    Row("nic_gru_sc", "GRU, then self-critical", "nic_gru_self_critical", start="nic_gru"),
    *(
        Row(
            f"nic_gru_sc_d{weight}", f"GRU, then self-critical with discriminability {weight}", "nic_gru_self_critical",
            start="nic_gru", changes=(f"objective.discriminability={weight}",), tried_by="nic_gru_sc",
        )
        for weight in ("0.5", "1")
    ),
    Row("sat_soft_sc", "soft attention, then self-critical", "sat_soft_self_critical", start=REFERENCE),
    Row(
        "sat_soft_sc_fast", "soft attention, then self-critical at 0.0001", "sat_soft_self_critical",
        start=REFERENCE, rate=0.0001,
    ),
    # over the encoder of `small`, which has learned with its decoder
    Row("transformer_small", "transformer over the encoder of `small`", "transformer", "small"),
    Row(
        "transformer_small_sc", "transformer over the encoder of `small`, then self-critical",
        "transformer_self_critical", "small", start="transformer_small", tried_by="transformer_sc",
    ),
    Row(
        "transformer_small_sc_fast", "transformer over the encoder of `small`, then self-critical at 0.0003",
        "transformer_self_critical", "small", start="transformer_small", rate=0.0003,
    ),
    Row(
        "transformer_small_sc_long", "transformer over the encoder of `small`, then 15 epochs self-critical",
        "transformer_self_critical", "small", start="transformer_small",
        changes=("training.epochs=15",), tried_by="transformer_sc",
    ),
    Row(
        "small_sc", "`small`, then self-critical", "sat_soft_self_critical", "small",
        rate=0.00003, changes=("training.start_from=small",),
    ),
    # does a start that has learned its photos less by heart leave rewards more to find?
    Row("sat_soft_slow", "soft attention at a quarter of the rate", "sat_soft", rate=0.0005),
    Row(
        "sat_soft_slow_sc", "soft attention at a quarter of the rate, then self-critical", "sat_soft_self_critical",
        start="sat_soft_slow", rate=0.0001,
    ),
    Row("updown_sc", "Up-Down, then self-critical", "updown_self_critical", start="updown"),
    Row("stack_sc", "Stack, then self-critical on the last stage", "stack_self_critical", start="stack"),
    Row("stack_c2f", "Stack, then coarse to fine", "stack_coarse_to_fine", start="stack", tried_by="stack_sc"),
    Row("transformer_sc", "transformer, then self-critical", "transformer_self_critical", start="transformer"),
    Row("hacap_adversarial", "HACap, then adversarial", "hacap_adversarial", start="hacap", rate=0.0003),
    Row(
        "hacap_letter", "HACap, then by the paper's letter, which collapses: its start's captions", "hacap_adversarial",
        start="hacap", rate=0.0003, changes=LETTER,
    ),
    Row(
        "hacap_image", "HACap whose discriminator sees the photo", "hacap",
        changes=("model.discriminator_image=attended",), tried_by="hacap",
    ),
    Row(
        "hacap_more", "HACap, then as much pre-training", "hacap", start="hacap", rate=0.0003,
        changes=("training.epochs=6", "training.schedule=linear", "training.warmup_steps=0"),
    ),
)  # fmt: skip
PAIRS = (  # beside each row and its start, or soft attention
    ("updown", "nic_gru"),
    ("transformer", "nic_gru"),
    ("nic_lstm_state", "nic_lstm"),
    ("nic_lstm_state", "nic_gru"),
    ("nic_gru_input", "nic_gru"),
    ("sat_ensae", "nic_gru"),
    ("stack", "nic_lstm3"),
    ("stack", "nic_lstm_state"),
    ("nic_lstm3", "nic_lstm"),
    ("stack", "stack_independent"),
    ("stack", "updown"),
    ("hacap_fast", "hacap"),
    ("hacap", "hacap_no_manager"),
    ("hacap", "hacap_worker"),
    ("hard_0_word", "sat_hard"),
    *((f"hard_{name}", "hard_0_word") for name in HARD[1:]),
    ("hard_sampled", "hard_0_word"),
    ("nic_gru_sc_d0.5", "nic_gru_sc"),
    ("nic_gru_sc_d1", "nic_gru_sc"),
    ("sat_soft_sc", "sat_soft_sc_fast"),
    ("transformer_small_sc_long", "transformer_small_sc"),
    ("transformer_small_sc_long", "transformer_small_sc_fast"),
    ("stack_c2f", "stack_sc"),
    ("hacap_adversarial", "hacap_more"),
    ("hacap_image", "hacap"),
)


@dataclass(frozen=True)
class Photos(Bench):
    """Flickr8k."""

    photos: Path = Path("data/flickr8k")
    kept: Path = KEPT

    name: ClassVar[str] = "real-photos"
    recipes: ClassVar[Path] = FOLDER / "flickr8k" / "small"
    splits: ClassVar[tuple[str, ...]] = ("test",)
    metrics: ClassVar[tuple[str, ...]] = ("bleu", "bleu_no_bp", "meteor", "rouge_l", "cider")
    reads: ClassVar[Mapping[str, str]] = {
        "mean_length": "words",
        "vocabulary": "different words",
        "distinct_2": "distinct pairs",
        "novelty": "not in training",
        "identical": "said of another photo too",
        "bad_endings": "bad endings",
        "told_apart": "told from a person's",
    }
    factor: ClassVar[float] = 2
    trial_seed: ClassVar[int] = 0
    undivided: ClassVar[frozenset[str]] = frozenset({"sat_soft", "sat_hard"})  # beside the rows of Xu et al.
    views: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "last": {},
        "before": {"stage": -2, "image_size": 224},  # 14 x 14 cells
        "small": {"weights": str(SMALL)},  # an encoder that has learned
    }

    @property
    def data(self) -> Path:
        return self.photos

    @property
    def results(self) -> Path:
        return self.kept

    def first_rates(self, row: Row) -> tuple[float, ...]:
        """Around the rate of the recipe."""
        rate = self.recipe(row, self.trial_seed)["training"]["learning_rate"]
        return rate / 2, rate, 2 * rate

    def recipe(self, row: Row, seed: int, rate: float | None = None) -> dict[str, Any]:
        content = super().recipe(row, seed, rate)
        assert row.view is not None, "the encoder is frozen"
        if content["objective"]["name"] == "cross_entropy":
            content["objective"].pop("discriminator_lr_factor", None)  # of HACap without its goals
        content["encoder"] |= self.views[row.view]
        content["data"]["features"] = str(self.out / "stores" / row.view)
        if self.images:
            content["data"]["limit"] = self.images
        return content

    def origin(self, row: Row) -> dict[str, Any]:
        starts_from_small = "training.start_from=small" in row.changes
        return super().origin(row) | ({"small": _digest(SMALL)} if row.view == "small" or starts_from_small else {})

    def describe(self, captions: Mapping[str, str], split: str) -> dict[str, float]:
        """Their variety, and how often they are told from a person's."""
        training, people = _people(self.data, split)
        return diagnose(captions.values(), training=training) | {"told_apart": told_apart(captions, people)}


@cache
def _digest(file: Path) -> str:
    """Which file it is: the first digits of its SHA-256."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


@cache
def _people(data: Path, split: str) -> tuple[tuple[str, ...] | None, dict[str, str]]:
    """The captions of training, and for each image of a split one caption by a person."""
    dataset = open_dataset(data, with_photos=False)
    people = {
        record.image_id: record.captions[number % len(record.captions)] for number, record in enumerate(dataset[split])
    }
    return training_captions(dataset), people


def told_apart(machine: Mapping[str, str], people: Mapping[str, str]) -> float:
    """How often one caption of each photo is rightly said to be a machine's or a person's; 0.5 is chance.

    Logistic regression over words and pairs of words, trained on half of the photos, asked about the other half, and
    the other way round."""
    halves = [[image for number, image in enumerate(sorted(machine)) if number % 2 == half] for half in (0, 1)]
    right = 0.0
    for known, asked in (halves, halves[::-1]):
        texts = [source[image] for source in (machine, people) for image in known]
        index = {part: number for number, part in enumerate(sorted({part for text in texts for part in _parts(text)}))}
        weights = _logistic(_bags(texts, index), torch.arange(len(texts)).lt(len(known)).float())
        for source, sign in ((machine, 1), (people, -1)):
            logits = _bags([source[image] for image in asked], index) @ weights[:-1] + weights[-1]
            right += float(((sign * logits).sign() + 1).sum()) / 2  # 0 says neither
    return right / (2 * len(machine))


def _logistic(features: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Weights of the features and, last, the bias."""
    weights = torch.zeros(features.shape[1] + 1, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        fit = functional.binary_cross_entropy_with_logits(features @ weights[:-1] + weights[-1], target)
        value = fit + 0.001 * weights[:-1].square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return weights.detach()


def _parts(text: str) -> set[str]:
    """The words of a caption and its pairs of words, its beginning and end among them."""
    words = ["^", *tokenize(text), "$"]
    return {*words, *map(" ".join, pairwise(words))}


def _bags(texts: Sequence[str], index: Mapping[str, int]) -> torch.Tensor:
    """(captions, parts): which parts a caption has."""
    bags = torch.zeros(len(texts), len(index))
    for row, text in enumerate(texts):
        bags[row, [index[part] for part in _parts(text) if part in index]] = 1
    return bags


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and write what came out."""
    against = [(row.name, row.start or REFERENCE) for row in ROWS if row.name != REFERENCE]
    return command(__doc__, ROWS, pairs=[*against, *PAIRS], name="photos", bench_type=Photos, arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
