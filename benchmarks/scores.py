"""How fast captions are scored: against coco-caption (pycocoevalcap and its two Java programs), and as sets grow.

    python benchmarks/scores.py [--images 5000] [--growth] [--json]
    python benchmarks/scores.py --agreement 20000 [--json]
    python benchmarks/scores.py --learned CLIPSCORE CLIP BERT_SCORE [--images 128] [--json]

Real captions of Flickr8k from SHOWTELL_SHARED (default ../shared): one of each image's five is the prediction, the
others are the references; beyond its 8,091 images predictions and references are paired anew. Both sides start from
text, and both start from nothing: ours with an empty memory of words and METEOR's index on disk, the reference with
its Java programs not yet running. Medians of three runs. Without Java the rows of the reference are left out.

`--growth` shows how the cost grows up to the size of COCO's validation set; the ratio is the time per image against
that of the smallest set. The reward is that of 250 samples (5 of each of 50 images) with 5 references each, with all
of Flickr8k's document frequencies, on one thread, against CIDEr-D of coco-caption with the frequencies given.

`--agreement` counts the captions whose METEOR is not that of coco-caption's two Java programs (beyond 1e-12), from
text to score: human captions of Flickr8k, each against the other four of its image. The last words of every twentieth
give way to an initial, an abbreviation or a number. Once each caption counts as everywhere in showtell, once all are
the lines of one file, as the programs have them.

`--learned` times CLIPScore and BERTScore against the authors' code (clones of jmhessel/clipscore, openai/CLIP and
Tiiiger/bert_score; see learned_scores_parity.py) on the same weights, drawn at random in the sizes of ViT-B/32 and BERT
base: photos of coco-mini, over and over, each a file of its own, with captions of Flickr8k. Both sides have the same
batch size, open models and nothing kept; one run each, in turn.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from rows import show
from showtell.scores import DocumentFrequency, ImageFacts, ScoreModels, score
from showtell.scores.base import Corpus
from showtell.scores.bleu import Bleu
from showtell.scores.cider import Cider
from showtell.scores.meteor import Meteor
from showtell.scores.meteor_index import open_index
from showtell.scores.report import measure
from showtell.scores.reward import Reward
from showtell.scores.rouge import RougeL
from showtell.text import tokenizer

import torch

ROOT = Path(__file__).resolve().parents[1]
REPEATS = 3
REWARDED, SAMPLES = 50, 5  # images, samples of each
LEARNED_BATCH = 64
_TOWER = {"num_hidden_layers": 12, "hidden_act": "quick_gelu", "projection_dim": 512}
SIZES_OF_VIT_B_32 = {
    "projection_dim": 512,
    "text_config": {**_TOWER, "hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8},
    "vision_config": {**_TOWER, "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
}
GROWTH = (2_500, 5_000, 10_000, 20_000, 40_504)


def flickr8k() -> list[list[str]]:
    """The five captions of each image."""
    path = Path(os.environ.get("SHOWTELL_SHARED", ROOT.parent / "shared")) / "data" / "flickr8k" / "captions.txt"
    if not path.is_file():
        sys.exit(f"There are no captions at {path}; set SHOWTELL_SHARED to the folder that holds data/flickr8k.")
    captions: dict[str, list[str]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.reader(stream):
            if row:
                captions[row[0]].append(row[1])
    return list(captions.values())


def corpus_of(captions: list[list[str]], images: int) -> Corpus:
    """So many images; each round through Flickr8k pairs predictions with the references of another image."""
    rounds = [(index % len(captions), index // len(captions)) for index in range(images)]
    return Corpus(
        ids=tuple(map(str, range(images))),
        predictions=tuple(captions[(index + 17 * round_) % len(captions)][round_ % 5] for index, round_ in rounds),
        facts=tuple(
            ImageFacts(tuple(captions[index][1:] if round_ == 0 else captions[index][:5])) for index, round_ in rounds
        ),
    )


def median(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Seconds, of several runs the middle one."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def fresh(corpus: Corpus) -> Corpus:
    """The same texts with nothing known of them yet."""
    tokenizer._PIECES.clear()
    return Corpus(corpus.ids, corpus.predictions, corpus.facts)


OURS = {"bleu": Bleu, "rouge_l": RougeL, "cider": Cider}


def ours(corpus: Corpus, *, meteor: bool) -> None:
    """Score from text."""
    chosen: dict[str, Any] = {name: build() for name, build in OURS.items()}
    measure(fresh(corpus), {**chosen, "meteor": Meteor()} if meteor else chosen)


def reference_seconds(corpus: Corpus) -> tuple[dict[str, float], float]:
    """Seconds of each stage of coco-caption, and the megabytes that METEOR's program took."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    took: dict[str, list[float]] = defaultdict(list)
    megabytes = 0.0
    for _ in range(REPEATS):
        began = time.perf_counter()
        predictions = {image: [{"caption": text}] for image, text in zip(corpus.ids, corpus.predictions, strict=True)}
        references = {
            image: [{"caption": text} for text in texts]
            for image, texts in zip(corpus.ids, corpus.references, strict=True)
        }
        tokenized = [PTBTokenizer().tokenize(captions) for captions in (references, predictions)]
        took["tokenizer"].append(time.perf_counter() - began)
        for name, build in (("bleu", Bleu), ("rouge_l", Rouge), ("cider", Cider), ("meteor", Meteor)):
            began = time.perf_counter()
            with redirect_stdout(io.StringIO()):
                metric = build()
                metric.compute_score(*tokenized)
            took[name].append(time.perf_counter() - began)
            if name == "meteor":
                megabytes = peak_of(metric.meteor_p.pid)
    return {name: statistics.median(times) for name, times in took.items()}, megabytes


def peak_of(process: int) -> float:
    """The most memory a process has had, in megabytes (Linux)."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")


ALONE = """
import json, re, sys, showtell
predictions, references = json.load(sys.stdin)
showtell.score(predictions, references, metrics=["bleu", "meteor", "rouge_l", "cider"])
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024)
"""


def resident_megabytes(corpus: Corpus) -> float:
    """The most memory that scoring takes in a process of its own (Linux)."""
    texts = json.dumps([corpus.predictions, corpus.references])
    done = subprocess.run([sys.executable, "-c", ALONE], input=texts, capture_output=True, text=True, check=True)
    return float(done.stdout)


def reward_seconds(captions: list[list[str]], with_reference: bool) -> tuple[float, float | None]:
    """Seconds for the reward of 50 x 5 samples with 5 references each: ours and the reference's."""
    rng = random.Random(0)
    words = [[tokenizer.tokenize(text) for text in texts] for texts in captions]
    known = {word: number for number, word in enumerate(sorted({w for ts in words for t in ts for w in t}), start=1)}
    ids = [[[*(known[word] for word in text), 0] for text in texts] for texts in words]  # 0 ends a caption
    frequency = DocumentFrequency.of(([list(map(str, text)) for text in texts] for texts in ids), "flickr8k")
    images = rng.sample(range(len(ids)), REWARDED)
    references = {str(image): ids[image] for image in images}
    # a sample: a caption of the image, one of another image, or words in disorder
    hypotheses = [
        [rng.choice([ids[image][0], ids[rng.randrange(len(ids))][0], ids[image][1][::-1]]) for _ in range(SAMPLES)]
        for image in images
    ]
    reward = Reward.prepare(references, vocabulary_size=len(known) + 1, document_frequency=frequency)
    words = torch.zeros(REWARDED, SAMPLES, max(len(one) for own in hypotheses for one in own), dtype=torch.long)
    is_word = torch.zeros_like(words, dtype=torch.bool)
    for index, own in enumerate(hypotheses):
        for number, hypothesis in enumerate(own):
            words[index, number, : len(hypothesis)] = torch.tensor(hypothesis)
            is_word[index, number, : len(hypothesis)] = True
    torch.set_num_threads(1)  # as the reference has; the tensors are small
    reward(words, is_word, list(references))
    seconds = median(lambda: reward(words, is_word, list(references)), 50)
    if not with_reference:
        return seconds, None
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    counts: dict[tuple[str, ...], float] = defaultdict(float, frequency.counts)
    texts = [
        (" ".join(map(str, hypothesis)), [" ".join(map(str, text)) for text in ids[image]])
        for image, own in zip(images, hypotheses, strict=True)
        for hypothesis in own
    ]

    def score_samples() -> None:
        scorer = CiderScorer()
        for hypothesis, own in texts:
            scorer += (hypothesis, own)
        scorer.document_frequency = counts
        scorer.compute_cider()

    return seconds, median(score_samples, 5)


LAST_WORDS = (
    "K.",
    "D.C.",
    "st.",
    "no.",
    "22 3/4 st.",
    "22 3/4",
    "5 p.m.",
    "plan B.",
    "Mr.",
    "fig. 3",
    "Ave/CTH D.",
    "...",
)
TOLERANCE = 1e-12


def disagreements(captions: list[list[str]], count: int) -> list[dict[str, object]]:
    """How many captions have another METEOR than the reference gives them."""
    from pycocoevalcap.meteor.meteor import Meteor as Reference
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    rng = random.Random(0)
    predictions, references = {}, {}
    for number in range(count):
        round_, index = divmod(number, len(captions))
        own = list(captions[index])
        text = own.pop(round_ % len(own))
        if number % 20 == 0:
            text = " ".join([*text.split()[:-2], rng.choice(LAST_WORDS)])
        predictions[str(number)], references[str(number)] = text, own
    tokenized = [
        PTBTokenizer().tokenize({image: [{"caption": text} for text in texts] for image, texts in captions.items()})
        for captions in (references, {image: [text] for image, text in predictions.items()})
    ]
    program = Reference()
    _, theirs = program.compute_score(*tokenized)
    program.meteor_p.kill()
    rows = []
    for name, as_lines in (("alone", False), ("as_lines", True)):
        report = score(predictions, references, metrics=["meteor"], as_lines=as_lines)
        ours = [report.per_image[image]["meteor"] or 0.0 for image in tokenized[0]]
        differ = sum(abs(one - other) > TOLERANCE for one, other in zip(ours, theirs, strict=True))
        rows.append(row(f"meteor_differs_{name}", differ, "captions", f"of {count} of coco-caption", differ / count))
    return rows


def row(name: str, value: float, unit: str, against: str, ratio: float) -> dict[str, object]:
    return {"name": name, "value": round(value, 4), "unit": unit, "against": against, "ratio": round(ratio, 2)}


def against_the_reference(corpus: Corpus) -> list[dict[str, object]]:
    """Ours and coco-caption's seconds on the same captions."""
    open_index()  # built if need be
    quick = median(lambda: ours(corpus, meteor=False))
    whole = median(lambda: ours(corpus, meteor=True))
    resident = resident_megabytes(corpus)
    theirs, megabytes = reference_seconds(corpus)
    without = sum(seconds for name, seconds in theirs.items() if name != "meteor")
    total = sum(theirs.values())
    stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in theirs.items())
    count = len(corpus.ids)
    return [
        row(f"all_but_meteor_{count}", quick, "s", f"coco-caption, {without:.2f} s ({stages})", without / quick),
        row(f"all_with_meteor_{count}", whole, "s", f"coco-caption, {total:.2f} s ({stages})", total / whole),
        row("resident_with_meteor", resident, "MB", f"METEOR's Java program, {megabytes:.0f} MB", megabytes / resident),
    ]


def growth(captions: list[list[str]]) -> list[dict[str, object]]:
    """The time per image as sets grow."""
    rows = []
    first = 0.0
    for images in GROWTH:
        corpus = corpus_of(captions, images)
        seconds = median(lambda: ours(corpus, meteor=True), 1)  # noqa: B023 (called at once)
        per_image = seconds / images * 1000
        first = first or per_image
        texts = images + sum(map(len, corpus.references))
        against = f"milliseconds per image of {GROWTH[0]} images; {texts} captions in {seconds:.1f} s"
        rows.append(row(f"per_image_of_{images}", per_image, "ms", against, per_image / first))
    return rows


def learned_rows(corpus: Corpus, clipscore: Path, clip: Path, bert_score: Path) -> list[dict[str, Any]]:
    """Seconds of CLIPScore, its two parts, and BERTScore, against the authors' code."""
    from learned_scores_parity import import_clipscore

    published, openai_clip = import_clipscore(clipscore, clip)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["SHOWTELL_CACHE"] = str(folder / "cache")
        paths = copy_photos(folder / "photos", len(corpus.ids))
        model, clip_folder = random_clip(openai_clip, folder / "clip")
        own = ScoreModels(clip_model=str(clip_folder), device="cpu", score_batch_size=LEARNED_BATCH).clip
        sizes = {"batch_size": LEARNED_BATCH, "num_workers": 2}
        texts = list(corpus.predictions)
        photos = [str(path) for path in paths]
        rows = [
            learned_row(
                "clip_photos", lambda: own.embed_photos(paths),
                lambda: published.extract_all_images(photos, model, "cpu", **sizes),
            ),
            learned_row(
                "clip_texts", lambda: own.embed_texts(texts),
                lambda: published.extract_all_captions(texts, model, "cpu", **sizes),
            ),
        ]  # fmt: skip
        return [*rows, bert_row(corpus, bert_score, folder)]


def learned_row(name: str, ours: Callable[[], object], theirs: Callable[[], object]) -> dict[str, Any]:
    seconds = median(ours, repeats=1)
    other = median(theirs, repeats=1)
    return row(name, seconds, "s", f"the authors' code, {other:.1f} s", other / seconds)


def copy_photos(folder: Path, images: int) -> list[Path]:
    """Photos of coco-mini, over and over, which differ in a comment at their end."""
    shared = Path(os.environ.get("SHOWTELL_SHARED", ROOT.parent / "shared")) / "data" / "coco-mini" / "images"
    sources = sorted(shared.rglob("*.jpg"))
    folder.mkdir()
    paths = []
    for number in range(images):
        paths.append(folder / f"{number}.jpg")
        paths[-1].write_bytes(sources[number % len(sources)].read_bytes() + str(number).encode())
    return paths


def random_clip(openai_clip: Any, folder: Path) -> tuple[Any, Path]:
    """A CLIP of the size of ViT-B/32, in OpenAI's code, and the same as a folder of transformers."""
    from learned_scores_parity import write_clip
    from showtell.scores.clip_encoder import from_openai

    torch.manual_seed(0)
    model = openai_clip.model.CLIP(512, 224, 12, 768, 32, 77, 49408, 512, 8, 12).float().eval()
    encoder = openai_clip.simple_tokenizer.SimpleTokenizer()
    merges = [" ".join(pair) for pair, _ in sorted(encoder.bpe_ranks.items(), key=lambda one: one[1])]
    write_clip(folder, from_openai(model.state_dict(), folder), list(encoder.encoder), merges, SIZES_OF_VIT_B_32)
    return model, folder


def bert_row(corpus: Corpus, checkout: Path, folder: Path) -> dict[str, Any]:
    """BERTScore with an encoder of the size of BERT base, at its ninth layer."""
    import transformers
    from safetensors.torch import save_file

    sys.path.insert(0, str(checkout))
    from showtell.scores.bert_score import compare_texts

    from bert_score import utils as published

    target = folder / "bert-base-uncased"
    target.mkdir()
    pairs = [(text, one) for text, own in zip(corpus.predictions, corpus.references, strict=True) for one in own]
    words = sorted({word for pair in pairs for text in pair for word in text.lower().split()})
    letters = [chr(code) for code in range(33, 127)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys([*letters, *words])]
    (target / "vocab.txt").write_text("\n".join([*pieces, ""]), encoding="utf-8")
    tokenizer = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512}
    (target / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    torch.manual_seed(0)
    made = transformers.BertModel(transformers.BertConfig())
    (target / "config.json").write_text(made.config.to_json_string())
    save_file(made.state_dict(), target / "model.safetensors", {"format": "pt"})
    own = ScoreModels(bert_model=str(target), device="cpu", score_batch_size=LEARNED_BATCH).bert
    model = published.get_model(str(target), own.layer)
    weights: dict[int, float] = defaultdict(lambda: 1.0)
    captions, references = [one for one, _ in pairs], [one for _, one in pairs]

    def theirs() -> object:
        return published.bert_cos_score_idf(
            model, references, captions, own.tokenizer, weights, batch_size=LEARNED_BATCH, device="cpu"
        )

    return learned_row("bert_score", lambda: compare_texts(own, captions, references, idf=False), theirs)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--agreement", type=int, metavar="CAPTIONS", help="compare METEOR caption by caption instead")
    parser.add_argument("--learned", type=Path, nargs=3, metavar="CHECKOUT", help="learned scores instead")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    captions = flickr8k()
    if arguments.learned is not None:
        show(learned_rows(corpus_of(captions, arguments.images), *arguments.learned), arguments.json)
        return
    with_reference = shutil.which("java") is not None
    if arguments.agreement is not None:
        if not with_reference:
            sys.exit("There is no java: METEOR cannot be compared with its program.")
        show(disagreements(captions, arguments.agreement), arguments.json)
        return
    rows = []
    seconds, theirs = reward_seconds(captions, with_reference)
    if theirs is not None:
        against = f"CIDEr-D of coco-caption, {theirs * 1000:.0f} ms"
        rows.append(row(f"reward_{REWARDED}x{SAMPLES}", seconds * 1000, "ms", against, theirs / seconds))
    if with_reference:
        rows += against_the_reference(corpus_of(captions, arguments.images))
    else:
        sys.stderr.write("There is no java: the rows against coco-caption are left out.\n")
    if arguments.growth:
        rows += growth(captions)
    show(rows, arguments.json)


if __name__ == "__main__":
    main()
