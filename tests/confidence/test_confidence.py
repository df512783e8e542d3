from __future__ import annotations

import pytest

from showtell import Captioner
from showtell.captions import Caption, caption_result, without_gibberish
from showtell.confidence.calibration import Calibration, save_calibration
from showtell.datasets import open_dataset
from showtell.errors import NoCaptionError
from showtell.evaluation import calibrate, caption_records
from showtell.scores import ImageFacts, score


def test_a_calibration_is_fitted_kept_and_read(tiny_checkpoint, tiny_boxes, tmp_path, capsys):
    captioner = Captioner.from_pretrained(tiny_checkpoint, "cpu")
    records = open_dataset(tiny_boxes)[:40]
    settings = captioner.settings(search="sample", max_length=6)
    captions = caption_records(captioner, records, settings)
    facts = {record.image_id: ImageFacts(record.captions) for record in records}
    report = score({image: caption.text for image, caption in captions.items()}, facts, ["cider"])
    # a threshold that splits the captions of an untrained model
    scores = sorted(numbers["cider"] for numbers in report.per_image.values())
    middle = scores[len(scores) // 2]
    fitted = calibrate(captioner, records, search="sample", max_length=6, good_cider=middle)
    assert fitted.meaning == f"CIDEr-D of {middle:g} or more"
    assert fitted.captions == 40
    assert sum(one.captions for one in fitted.reliability.bins) == 40
    chances = fitted.confidences(list(captions.values()))
    good = sum(score >= middle for score in scores)
    assert sum(chances) == pytest.approx(good, abs=0.01)  # as many as there are
    assert len(fitted.familiarity.mean) == captioner.encoder.feature_size
    captioner.save_pretrained(tmp_path)
    plain = Captioner.from_pretrained(tmp_path)
    assert plain.calibration is None
    save_calibration(tmp_path, plain.about.fingerprints["weights"], fitted)
    opened = Captioner.from_pretrained(tmp_path)
    assert opened.calibration == fitted
    photo = records[0].path
    assert opened.caption(photo, search="sample", max_length=6, seed=3)[0].calibrated_confidence is not None
    assert opened.explain(photo, search="sample", max_length=6).models[0].caption.confidence == pytest.approx(
        opened.caption(photo, search="sample", max_length=6)[0].calibrated_confidence
    )
    assert opened.caption(photo, search="sample", max_length=7)[0].calibrated_confidence is None  # another search
    captioner.decoder.embedding.weight.data += 1
    captioner.save_pretrained(tmp_path)
    assert Captioner.from_pretrained(tmp_path).calibration is None
    assert "was made for other weights and is not used; make it again: showtell" in capsys.readouterr().err


def test_a_captioner_with_a_calibration_says_the_chance(tiny_checkpoint, tiny_scenes):
    captioner = Captioner.from_pretrained(tiny_checkpoint, "cpu")
    records = open_dataset(tiny_scenes).records[:30]
    plain = captioner.caption([record.path for record in records], num_return_sequences=2)
    bests = [best for best, _ in plain]
    captioner.calibration = Calibration.fit(
        bests, [number % 3 == 0 for number in range(30)], "drawn", captioner.decoding
    )
    judged = captioner.caption([record.path for record in records], num_return_sequences=2)
    for was, now in zip(plain, judged, strict=True):
        assert [caption.calibrated_confidence for caption in now] == pytest.approx(
            captioner.calibration.confidences(was)
        )
        assert [caption.confidence for caption in now] == [caption.calibrated_confidence for caption in now]
        assert was[0].calibrated_confidence is None
        assert now[0] == Caption.from_json(now[0].to_json())


@pytest.mark.parametrize(
    ("text", "chance", "reason"),
    [
        ("a dog runs", 0.021, None),
        ("a dog runs", None, None),
        ("a dog runs", 0.001, "all that the captioner says is gibberish to itself (confidence 0.001)"),
        ("topless topless topless", 0.9, "all that the captioner says repeats itself"),
        ("a dog a dog a dog", None, "all that the captioner says repeats itself"),
    ],
)
def test_gibberish_is_no_caption(text: str, chance: float | None, reason: str | None) -> None:
    """Whatever else is sensible stays; where nothing is, there is an error that keeps what was said for scores."""
    caption = Caption(text, -9.0, True, (), calibrated_confidence=chance)
    good = Caption("a cat", -1.0, True, ())
    assert without_gibberish([caption, good], "a.jpg") == ([caption, good] if reason is None else [good])
    alone = without_gibberish([caption], "a.jpg")
    if reason is None:
        assert caption_result("a.jpg", alone)["captions"][0]["text"] == text
        return
    assert isinstance(alone, NoCaptionError) and list(alone.captions) == [caption]
    assert caption_result("a.jpg", alone) == {
        "image": "a.jpg", "captions": [], "error": f"a.jpg has no caption, for {reason}."
    }  # fmt: skip
