"""A checkpoint's confidence: fitted on the captions of a validation split, kept beside its weights, drawn."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

from showtell.captioner import Captioner
from showtell.checkpoint import CALIBRATION, fingerprints
from showtell.datasets.records import CaptionRecord
from showtell.decoding import DecodingConfig
from showtell.decoding.calibration import Calibration
from showtell.errors import CheckpointError, UsageError, nearest
from showtell.evaluation import evaluate
from showtell.features.store import FeatureStore
from showtell.files import read_json, write_bytes, write_json
from showtell.scenes import Scene

# Settings that change which captions are found beside the first, or by which luck, but not how sure the model is.
_NO_PART_OF_THE_SEARCH = {"num_return_sequences", "seed"}
FIGURES = ("pdf", "png", "svg")


def calibrate(
    captioner: Captioner,
    records: Sequence[CaptionRecord],
    settings: DecodingConfig | None = None,
    *,
    scenes: dict[str, Scene] | None = None,
    good_cider: float = 1.0,
    store: FeatureStore | None = None,
    progress: Callable[[int], None] | None = None,
) -> Calibration:
    """Caption a validation split and fit the chance that a caption is good.

    Args:
        captioner: the model.
        records: images that it was not trained on, with their captions as references.
        settings: how to search; None is the checkpoint's own. Another search needs a calibration of its own.
        scenes: image id to scene, where the images were drawn: a good caption is then one that is wholly true.
        good_cider: elsewhere a good caption has at least this CIDEr-D, of at most 10, with the document frequencies of
            the split.
        store: features of the images by the captioner's encoder, read instead of the photos.
        progress: called with the number of images done since the last call.

    Raises:
        DataError: there are too few captions, or they are all good or all bad.
    """
    name, least = ("cider", good_cider) if scenes is None else ("truth", 1.0)
    meaning = f"CIDEr-D of {good_cider:g} or more" if scenes is None else "every statement is true"
    found = evaluate(captioner, records, settings, metrics=[name], scenes=scenes, store=store, progress=progress)
    is_good = [(found.report.per_image[image][name] or 0.0) >= least for image in found.captions]
    return Calibration.fit(list(found.captions.values()), is_good, meaning)


def save_calibration(folder: Path, calibration: Calibration, settings: DecodingConfig) -> Path:
    """Keep a calibration in the folder of its checkpoint, with the search and the weights that it is about.

    Returns:
        The file.
    """
    about = {"decoding": _search(settings), "weights": fingerprints(folder)["weights"]}
    write_json(folder / CALIBRATION, {**about, "calibration": calibration.to_json()}, indent=1)
    return folder / CALIBRATION


def load_calibration(folder: Path, settings: DecodingConfig) -> Calibration:
    """The calibration of a checkpoint.

    Args:
        folder: of the checkpoint.
        settings: the search whose captions shall be judged.

    Raises:
        CheckpointError: it has none, or one of other weights or of another search.
        DataError: its file is damaged.
    """
    file = folder / CALIBRATION
    if not file.is_file():
        raise CheckpointError(
            f"{folder} has no {CALIBRATION}; make one on a validation split: showtell calibrate {folder} DATASET."
        )
    known = read_json(file)
    calibration = Calibration.from_json(known.get("calibration", known) if isinstance(known, dict) else known, file)
    if known.get("weights") != fingerprints(folder)["weights"]:
        raise CheckpointError(
            f"{file} was made for other weights than those beside it; make it again: showtell calibrate {folder} "
            "DATASET."
        )
    before, now = known.get("decoding") or {}, _search(settings)
    changed = [
        f"{name}={_shown(before.get(name))}, not {_shown(now[name])}" for name in now if before.get(name) != now[name]
    ]
    if changed:
        raise CheckpointError(
            f"{file} was made for another search ({'; '.join(changed)}); search as there, or calibrate for this one: "
            f"showtell calibrate {folder} DATASET, with the same options."
        )
    return calibration


def _search(settings: DecodingConfig) -> dict[str, object]:
    return settings.model_dump(mode="json", exclude=_NO_PART_OF_THE_SEARCH) | {"search": settings.kind}


def _shown(value: object) -> str:
    return ",".join(map(str, value)) or "none" if isinstance(value, list) else str(value).lower()


def draw_reliability(calibration: Calibration, file: Path) -> None:
    """Draw how far confidence can be believed: the share of good captions over the stated confidence, bin by bin,
    before calibration and after.

    Args:
        calibration: whose two reliabilities are drawn.
        file: a .png, .svg or .pdf, written whole or not at all.

    Raises:
        UsageError: another suffix.
        DataError: it cannot be written.
    """
    from matplotlib.figure import Figure

    refuse_figure(file)
    figure = Figure(figsize=(4.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--")
    for name, measured, style in (
        ("mean word probability", calibration.before, {"color": "0.45", "marker": "s", "markerfacecolor": "white"}),
        ("calibrated", calibration.reliability, {"color": "tab:blue", "marker": "o"}),
    ):
        error = measured.expected_calibration_error
        x, y = zip(*((one.confidence, one.good) for one in measured.bins), strict=True)
        axes.plot(x, y, label=f"{name}: error {error:.3f}", **style)  # type: ignore[arg-type]
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="confidence")
    axes.set_ylabel(f"share that is good: {calibration.meaning}")
    axes.set_title(f"{calibration.captions} captions, each judged by a map of the others", fontsize="medium")
    axes.legend(loc="upper left", frameon=False)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=file.suffix[1:].lower(), dpi=150)
    write_bytes(file, drawn.getvalue())


def refuse_figure(file: Path) -> None:
    """Make sure that a figure of that name can be drawn.

    Raises:
        UsageError: it has another suffix than `FIGURES`.
    """
    suffix = file.suffix[1:].lower()
    if suffix not in FIGURES:
        raise UsageError(f'A figure cannot be written as "{file.name}"; {nearest(suffix, FIGURES)}.')
