"""Why a score may be low: what a checkpoint, a dataset and a few captions show, a sentence for each cause."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from showtell.captioners import Captioner, EncoderDecoderCaptioner
from showtell.captions import Caption
from showtell.checkpoint import SETTINGS
from showtell.datasets.check import check_dataset
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.errors import DataError, ImageError, summarise
from showtell.features.store import FeatureStore
from showtell.features.stored_images import photo_or_stored
from showtell.files import read_json
from showtell.reports.run import LOG, read_run
from showtell.scores import diagnose
from showtell.scores.files import training_captions
from showtell.scores.ngrams import FEW_IMAGES
from showtell.text.tokenizer import TOKENIZER_VERSION, tokenize
from showtell.text.vocabulary import SPECIAL
from showtell.training import health

SAMPLE = 32  # images to caption
USUAL_REFERENCES = 5  # references per image in the datasets of published scores
MAX_BAD = 0.1  # share of captions: cut off, with a bad ending, or with repeated words
MAX_COMMON = 0.5  # share of captions that are the same
MAX_UNKNOWN = 0.01  # share of the generated words
MIN_VALIDATIONS = 4  # of a run that should have got better
MIN_LENGTH = 0.7  # mean length of captions relative to that of the references


@dataclass(frozen=True)
class Cause:
    """Something that may keep scores low."""

    name: str  # for programs, such as "tokenizer"
    sentence: str  # what it is and what to do


@dataclass
class Diagnosis:
    """The likely causes, and the facts they follow from."""

    causes: list[Cause] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, sentence: str) -> None:
        """Name a cause."""
        self.causes.append(Cause(name, sentence))


def diagnose_checkpoint(captioner: Captioner) -> Diagnosis:
    """Check a checkpoint: tokenizer, preprocessing, weights, decoding settings.

    Args:
        captioner: opened from a folder or from the hub. Of one that is not of showtell there are facts alone.
    """
    about = captioner.about
    diagnosis = Diagnosis()
    if not isinstance(captioner, EncoderDecoderCaptioner):
        diagnosis.facts = {
            "model": about.name,
            "library": about.library,
            "revision": about.revision or "none",
            "licence": about.licence or "not stated",
            "weights": f"{about.parameters:,}",
            "decoding": captioner.decoding.model_dump(mode="json", exclude_defaults=True),
            "abilities": captioner.abilities.to_json(),
            "about": about.origin,
        }
        return diagnosis
    assert about.folder is not None, "it was opened from there"
    folder = about.folder
    settings = read_json(folder / SETTINGS)
    diagnosis.facts = {
        "showtell": settings.get("showtell"),
        "model": settings["model"].get("name"),
        "encoder": settings["encoder"].get("name"),
        "words": len(captioner.vocabulary),
        "tokenizer": settings["vocabulary"].get("tokenizer"),
        "decoding": captioner.decoding.model_dump(mode="json", exclude_defaults=True),
        "about": captioner.origin,
    }
    tokenizer = settings["vocabulary"].get("tokenizer")
    if tokenizer != TOKENIZER_VERSION:
        diagnosis.add(
            "tokenizer",
            f"The vocabulary was made with the tokenizer {tokenizer}, and this showtell has {TOKENIZER_VERSION}: words "
            f"are split differently now; use showtell {settings.get('showtell')}, or train again.",
        )
    _check_preprocessing(settings, captioner, diagnosis)
    encoder = captioner.encoder.config
    if getattr(encoder, "weights", None) == "random" and not encoder.trained:
        diagnosis.add(
            "encoder_weights",
            f"The encoder {settings['encoder'].get('name')} has random weights and never learned (encoder.weights="
            "random, encoder.trained=false): it sees next to nothing; use pretrained weights.",
        )
    if captioner.decoding.kind == "greedy":
        diagnosis.add(
            "greedy",
            "The checkpoint decodes greedily, and published scores are from a beam of 3 to 5: add --num-beams 5.",
        )
    images = captioner.origin.get("train_images")
    if isinstance(images, int) and "start_from" not in captioner.origin:
        few = health.few_photos(images, encoder)
        if few:
            diagnosis.add("few_training_photos", f"The checkpoint learned from {images} photos, which are {few}.")
    if (folder.parent / LOG).is_file():
        _check_run(folder.parent, diagnosis)
    if folder.name == "last" and (folder.parent / "best" / SETTINGS).is_file():
        diagnosis.add(
            "last",
            f"This is the last checkpoint of a run; {folder.parent / 'best'} is the one with the highest validation "
            "score.",
        )
    return diagnosis


def _check_run(folder: Path, diagnosis: Diagnosis) -> None:
    """Check that the run of a checkpoint got better after its first validation."""
    try:
        run = read_run(folder)
    except DataError as error:
        diagnosis.add("damaged_run", str(error))
        return
    validations = len(run.validations)
    if run.best is None or validations < MIN_VALIDATIONS or run.best[1] != run.validations[0]["epoch"]:
        return
    steps = run.validations[0]["step"]
    diagnosis.add(
        "best_is_first",
        f"The best checkpoint is that of epoch {run.best[1]}, after {steps} steps, and none of the {validations - 1} "
        "validations behind it was better: lower training.learning_rate; or, where epochs have few steps, let it train "
        "for longer (a greater training.patience, training.patience_steps), or give it more photos.",
    )


def _check_preprocessing(settings: dict[str, Any], captioner: EncoderDecoderCaptioner, diagnosis: Diagnosis) -> None:
    """Check that photos are prepared as in training, and in the units that encoders take."""
    now = captioner.encoder.preprocessing.model_dump(mode="json")
    then = settings.get("preprocessing", now)
    changed = [f"{name} {then.get(name)} then and {now[name]} now" for name in now if then.get(name) != now[name]]
    if changed:
        diagnosis.add(
            "preprocessing",
            f"Photos are not prepared as they were in training: {'; '.join(changed)}; install the version of timm that "
            "the checkpoint was trained with, or train again.",
        )
    if max(now["mean"]) > 1 or max(now["deviation"]) > 1:
        diagnosis.add(
            "pixel_scale",
            f"The preprocessing has mean {now['mean']} and deviation {now['deviation']}, which should be for pixels "
            "between 0 and 1: divide them by 255.",
        )


def diagnose_scores(
    captioner: Captioner,
    dataset: CaptionDataset,
    split: str,
    *,
    sample: int = SAMPLE,
    store: FeatureStore | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Diagnosis:
    """Check a captioner on the split of a dataset that it is scored on, and caption some of it.

    Args:
        captioner: the model.
        dataset: from `read_dataset`, including its problems.
        split: on which it is scored.
        sample: number of images to caption, spread over the split.
        store: features of the images by the captioner's encoder, read instead of the photos.
        progress: called with the number of images done since the last call.

    Raises:
        DataError: there is no such split, or the store is of another encoder.
    """
    records = dataset.split(split)
    diagnosis = Diagnosis()
    max_length = captioner.decoding.max_length
    vocabulary = captioner.vocabulary if isinstance(captioner, EncoderDecoderCaptioner) else None
    report = check_dataset(dataset, open_images=False, vocabulary=vocabulary, max_length=max_length)
    diagnosis.facts = {"split": split, "images": len(records)}
    if report.coverage is not None:
        diagnosis.facts |= {
            "unknown_words": report.coverage.unknown[split],
            "longer_than_max_length": report.coverage.longer[split],
        }
    for sentence in report.problems:
        diagnosis.add("dataset_problem", sentence)
    for sentence in report.warnings:
        diagnosis.add("dataset", sentence)
    if split == "train":
        diagnosis.add(
            "train_split",
            "train is what models learn from, and scores on it say nothing about new photos: score val or test.",
        )
    if len(records) < FEW_IMAGES:
        diagnosis.add(
            "few_images",
            f"{split} has {len(records)} images: CIDEr learns from them which words are rare, and needs about "
            f"{FEW_IMAGES}; take the document frequencies from other captions, and see the intervals of the scores.",
        )
    trained, of = captioner.about.origin.get("data"), captioner.about.origin.get("train_images")
    here = dataset.splits.get("train", 0)
    if trained is not None and of not in (None, here) and Path(trained).resolve() != dataset.root.resolve():
        diagnosis.add(
            "other_photos",
            f"The checkpoint learned from {of} photos of {trained}, and this is {dataset.root} with {here} of them in "
            "train: it knows only the objects and words of its own data; train on some of these, or start from it "
            "(training.start_from).",
        )
    references = statistics.fmean(len(record.captions) for record in records)
    if not any(tokenize(text) for record in records for text in record.captions):
        diagnosis.add(
            "no_references",
            f"The captions of {split} have no words, so nothing can be scored: write captions of its images.",
        )
    elif references < USUAL_REFERENCES - 0.5:
        diagnosis.add(
            "few_references",
            f"{split} has {references:.1f} captions per image and published scores are from {USUAL_REFERENCES}: with "
            "fewer references fewer words match, so the scores are lower and not comparable.",
        )
    _check_captions(captioner, records, dataset, sample, store, diagnosis, progress)
    return diagnosis


def _check_captions(
    captioner: Captioner,
    records: Sequence[CaptionRecord],
    dataset: CaptionDataset,
    sample: int,
    store: FeatureStore | None,
    diagnosis: Diagnosis,
    progress: Callable[[int], None],
) -> None:
    """Caption some images and check the captions."""
    if store is not None:
        lacking = set(store.missing([record.image_id for record in records]))
        if lacking:
            names = summarise(sorted(lacking))
            diagnosis.add(
                "missing_features",
                f"{store.path} has no features of {len(lacking)} of {len(records)} images: {names}; add them with "
                "showtell features, or score a split that it has.",
            )
        records = [record for record in records if record.image_id not in lacking]
    sampled = records[:: max(1, len(records) // sample)][:sample]
    captions: dict[str, Caption] = {}
    failed: list[ImageError] = []
    photos = [photo_or_stored(record, store) for record in sampled]
    results = captioner.caption_photos(photos, first_alone=False)
    for record, (_, result) in zip(sampled, results, strict=True):
        if isinstance(result, ImageError):
            failed.append(result)
        else:
            captions[record.image_id] = result[0]
        progress(1)
    if failed:
        diagnosis.add("unreadable", f"{len(failed)} of {len(sampled)} images cannot be captioned. {failed[0]}")
    if not captions:
        return
    texts = [caption.text for caption in captions.values()]
    known = None
    if isinstance(captioner, EncoderDecoderCaptioner):
        known = set(captioner.vocabulary.words[len(SPECIAL) :])
    rates = diagnose(texts, training=training_captions(dataset), vocabulary=known)
    lengths = [len(tokenize(text)) for record in sampled for text in record.captions]
    length = statistics.fmean(lengths) if lengths else 0.0
    cut_off = statistics.fmean(not caption.finished for caption in captions.values())
    diagnosis.facts |= {"captioned": len(captions), "reference_length": length, "cut_off": cut_off, "rates": rates}
    is_ours = isinstance(captioner, EncoderDecoderCaptioner)
    unit, or_train = ("words", ", or train longer") if is_ours else ("tokens", "")
    for sentence in health.warnings(captions) if is_ours else ():  # they advise whoever trains
        diagnosis.add("degenerate", f"{sentence}.")
    if not is_ours and rates["most_common"] > MAX_COMMON:
        diagnosis.add(
            "degenerate",
            f"{rates['most_common']:.0%} of the captions are the same: check that weights and processor are of one "
            "repository.",
        )
    if cut_off > MAX_BAD:
        diagnosis.add(
            "cut_off",
            f"{cut_off:.0%} of the captions are cut off after {captioner.decoding.max_length} {unit} without having "
            f"ended: raise max_length (--max-length){or_train}.",
        )
    if rates["bad_endings"] > MAX_BAD:
        diagnosis.add(
            "bad_endings",
            f'{rates["bad_endings"]:.0%} of the captions end in a word like "a" or "with": if the model was trained '
            f"with a reward, the end of the caption has to be part of it{'; else train longer' if is_ours else ''}.",
        )
    if rates["repeats"] > MAX_BAD:
        diagnosis.add(
            "repeats",
            f"{rates['repeats']:.0%} of the captions repeat words: forbid repeated n-grams (--no-repeat-ngram-size)"
            f"{or_train}.",
        )
    if rates["unknown"] > MAX_UNKNOWN:
        diagnosis.add(
            "says_unknown",
            f"{rates['unknown']:.1%} of the generated words are the unknown token: forbid it when decoding "
            f"(--no-unknown){', or lower vocabulary.min_count' if is_ours else ''}.",
        )
    if rates["mean_length"] < MIN_LENGTH * length:
        diagnosis.add(
            "short",
            f"The captions have {rates['mean_length']:.1f} words and the references {length:.1f}: BLEU and CIDEr "
            f"punish short captions; raise the length penalty of the beam{or_train}.",
        )


def split_to_score(dataset: CaptionDataset) -> str:
    """The default split to score: test, else val, else the first.

    Raises:
        DataError: the dataset has no image.
    """
    splits = list(dataset.splits)
    if not splits:
        raise DataError(f"{dataset.root} holds no image with captions, so there is nothing to diagnose.")
    return next((name for name in ("test", "val") if name in splits), splits[0])
