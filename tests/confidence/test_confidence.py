from __future__ import annotations

import pytest

from showtell import Captioner
from showtell.captions import Caption
from showtell.checkpoint import fingerprints
from showtell.confidence import calibrate, load_calibration, save_calibration
from showtell.confidence.calibration import Calibration
from showtell.datasets import open_dataset
from showtell.errors import CheckpointError
from showtell.evaluation import caption_records
from showtell.scores import ImageFacts, score


def test_a_calibration_is_fitted_kept_and_read(tiny_checkpoint, tiny_scenes, tmp_path):
    captioner = Captioner.from_pretrained(tiny_checkpoint, "cpu")
    records = open_dataset(tiny_scenes).records[:40]
    settings = captioner.settings(search="sample", max_length=6)
    captions = caption_records(captioner, records, settings)
    facts = {record.image_id: ImageFacts(record.captions) for record in records}
    report = score({image: caption.text for image, caption in captions.items()}, facts, ["cider"])
    # a threshold that splits the captions of an untrained model
    scores = sorted(numbers["cider"] for numbers in report.per_image.values())
    middle = scores[len(scores) // 2]
    fitted = calibrate(captions, facts, good_cider=middle)
    assert fitted.meaning == f"CIDEr-D of {middle:g} or more"
    assert fitted.captions == 40
    assert sum(one.captions for one in fitted.reliability.bins) == 40
    chances = fitted.confidences(list(captions.values()))
    good = sum(score >= middle for score in scores)
    assert sum(chances) == pytest.approx(good, abs=0.01)  # as many as there are
    captioner.save_pretrained(tmp_path)
    weights = fingerprints(tmp_path)["weights"]
    with pytest.raises(CheckpointError, match=r"has no calibration\.json; make one on a validation split: showte"):
        load_calibration(tmp_path, weights, settings)
    save_calibration(tmp_path, weights, fitted, settings)
    assert load_calibration(tmp_path, weights, settings) == fitted
    assert load_calibration(tmp_path, weights, settings.changed(seed=3, num_return_sequences=5)) == fitted
    with pytest.raises(
        CheckpointError, match=r"another search \(search=sample, not beam; max_length=6, not 7\); use that search"
    ):
        load_calibration(tmp_path, weights, settings.changed(search="beam", max_length=7))
    captioner.decoder.embedding.weight.data += 1
    captioner.save_pretrained(tmp_path)
    with pytest.raises(
        CheckpointError, match="was made for other weights than those beside it; make it again: showtell"
    ):
        load_calibration(tmp_path, fingerprints(tmp_path)["weights"], settings)


def test_a_captioner_with_a_calibration_says_the_chance(tiny_checkpoint, tiny_scenes):
    captioner = Captioner.from_pretrained(tiny_checkpoint, "cpu")
    records = open_dataset(tiny_scenes).records[:30]
    plain = captioner.caption([record.path for record in records], num_return_sequences=2)
    bests = [best for best, _ in plain]
    captioner.calibration = Calibration.fit(bests, [number % 3 == 0 for number in range(30)], "drawn")
    judged = captioner.caption([record.path for record in records], num_return_sequences=2)
    for was, now in zip(plain, judged, strict=True):
        assert [caption.calibrated_confidence for caption in now] == pytest.approx(
            captioner.calibration.confidences(was)
        )
        assert [caption.confidence for caption in now] == [caption.calibrated_confidence for caption in now]
        assert was[0].calibrated_confidence is None
        assert now[0] == Caption.from_json(now[0].to_json())
