from __future__ import annotations

import pytest

from showtell import Captioner
from showtell.confidence import calibrate, load_calibration, save_calibration
from showtell.datasets import open_dataset
from showtell.decoding.calibration import Calibration
from showtell.errors import CheckpointError, DataError
from showtell.evaluation import caption_records


def test_a_calibration_is_fitted_kept_and_read(tiny_checkpoint, tiny_scenes, tmp_path):
    captioner = Captioner.from_pretrained(tiny_checkpoint, "cpu")
    records = open_dataset(tiny_scenes).records[:40]
    settings = captioner.settings(search="sample", max_length=6)
    scores = sorted(
        calibrated_scores(captioner, records, settings)
    )  # a threshold that splits the captions of an untrained model
    middle = scores[len(scores) // 2]
    fitted = calibrate(captioner, records, settings, good_cider=middle)
    assert fitted.meaning == f"CIDEr-D of {middle:g} or more"
    assert fitted.captions == 40
    assert sum(one.captions for one in fitted.reliability.bins) == 40
    chances = fitted.confidences(list(caption_records(captioner, records, settings).values()))
    good = sum(score >= middle for score in scores)
    assert sum(chances) == pytest.approx(good, abs=0.01)  # as many as there are
    save_calibration(tmp_path, fitted)
    assert load_calibration(tmp_path) == fitted
    assert isinstance(fitted, Calibration)


def calibrated_scores(captioner, records, settings):
    from showtell.evaluation import evaluate

    report = evaluate(captioner, records, settings, metrics=["cider"]).report
    return [numbers["cider"] for numbers in report.per_image.values()]


def test_a_model_that_is_never_right_cannot_be_calibrated(tiny_checkpoint, tiny_scenes):
    captioner = Captioner.from_pretrained(tiny_checkpoint, "cpu")
    with pytest.raises(DataError, match=r"on 30 captions of which 0 are good \(CIDEr-D of 10 or more\)"):
        calibrate(captioner, open_dataset(tiny_scenes).records[:30], good_cider=10.0)


def test_a_checkpoint_without_one_says_so(tmp_path):
    with pytest.raises(CheckpointError, match=r"has no calibration\.json; calibrate the checkpoint on a validation"):
        load_calibration(tmp_path)
