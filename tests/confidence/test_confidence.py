import json
import math

import numpy as np
import pytest

from showtell import Captioner
from showtell.captions import Caption, Word, caption_result, without_gibberish
from showtell.confidence.calibration import FEWEST, Calibration, Reliability, _features, save_calibration
from showtell.confidence.familiarity import Familiarity
from showtell.datasets import open_dataset
from showtell.decoding import DecodingConfig
from showtell.errors import DataError, NoCaptionError
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
    assert fitted.captions == sum(one.captions for one in fitted.reliability.bins) == 40
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
    explained = opened.explain(photo, search="sample", max_length=6).models[0].caption.confidence
    captioned = opened.caption(photo, search="sample", max_length=6)[0].calibrated_confidence
    assert explained == pytest.approx(captioned)
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
    is_good = [number % 3 == 0 for number in range(30)]
    captioner.calibration = Calibration.fit(bests, is_good, "drawn", captioner.decoding)
    judged = captioner.caption([record.path for record in records], num_return_sequences=2)
    for was, now in zip(plain, judged, strict=True):
        expected = captioner.calibration.confidences(was)
        assert [caption.calibrated_confidence for caption in now] == pytest.approx(expected)
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
    error = f"a.jpg has no caption, for {reason}."
    assert caption_result("a.jpg", alone) == {"image": "a.jpg", "captions": [], "error": error}


GREEDY = DecodingConfig()


def caption(logprob: float, finished: bool, words: tuple[float, ...]) -> Caption:
    return Caption("", logprob, finished, tuple(Word("", one) for one in words))


def captions(number: int, seed: int = 0) -> tuple[list[Caption], list[bool], list[float]]:
    """Captions that are good with a known chance: a logistic function of their mean log-probability."""
    generator = np.random.default_rng(seed)
    made, good, chances = [], [], []
    for _ in range(number):
        each = -generator.uniform(0.05, 2.0)
        length = int(generator.integers(3, 15))
        made.append(caption(each * (length + 1), True, (each,) * length))
        chances.append(1 / (1 + math.exp(-(3 * each + 3))))
        good.append(bool(generator.random() < chances[-1]))
    return made, good, chances


def test_the_features_of_a_caption_by_hand():
    made = caption(-2.1, True, (-0.5, -1.5)), caption(-2.0, False, (-2.0,)), caption(-0.7, True, ())
    expected = [(-2.1 / 3, -1.5, math.log(3), 1), (-2.0, -2.0, math.log(2), 0), (-0.7, -0.7, 0, 1)]
    assert _features(made) == pytest.approx(np.array(expected))


def test_chances_are_found_again():
    made, good, chances = captions(4000)
    fitted = Calibration.fit(made, good, "drawn", GREEDY)
    assert np.abs(np.array(fitted.confidences(made)) - chances).mean() < 0.02
    assert fitted.reliability.expected_calibration_error < 0.03
    assert fitted.reliability.brier < fitted.reliability.brier_of_base_rate
    fresh, is_good, _ = captions(4000, seed=1)
    assert Reliability.of(fitted.confidences(fresh), is_good).expected_calibration_error < 0.03


def test_the_optimum_has_no_gradient_but_the_prior():
    made, good, _ = captions(300)
    fitted = Calibration.fit(made, good, "drawn", GREEDY)
    facts = (_features(made) - fitted.means) / np.array(fitted.deviations)
    missing = np.array(good, float) - fitted.confidences(made)
    assert facts.T @ missing == pytest.approx(np.array(fitted.weights), abs=1e-6)  # prior of variance 1
    assert missing.sum() == pytest.approx(0, abs=1e-4)  # the bias is free: as many good as expected


def test_reliability_by_hand():
    reliability = Reliability.of([0.9, 0.1, 0.8, 0.2], [True, False, False, False], bins=2)
    bins = [(one.confidence, one.good, one.captions) for one in reliability.bins]
    assert bins == [(pytest.approx(0.15), 0.0, 2), (pytest.approx(0.85), 0.5, 2)]
    assert reliability.expected_calibration_error == pytest.approx((0.15 * 2 + 0.35 * 2) / 4)
    assert reliability.brier == pytest.approx((0.01 + 0.01 + 0.64 + 0.04) / 4)
    assert reliability.brier_of_base_rate == pytest.approx((0.75**2 + 3 * 0.25**2) / 4)


def test_kinds_that_can_be_told_apart_exactly_stay_finite():
    made = [caption(-0.1 * n, True, (-0.1 * n / 2,)) for n in range(40)]
    fitted = Calibration.fit(made, [n < 20 for n in range(40)], "half", GREEDY)
    chances = fitted.confidences(made)
    assert chances == sorted(chances, reverse=True)
    assert 0 < chances[-1] < 0.1 < 0.9 < chances[0] < 1


def test_too_little_to_go_by_is_refused():
    made, good, _ = captions(FEWEST)
    told = "it takes at least 20, good ones and bad ones: .* use the confidence that captions have without it, which ra"
    with pytest.raises(DataError, match=f"on 19 captions of which .* {told}"):
        Calibration.fit(made[:19], good[:19], "drawn", GREEDY)
    with pytest.raises(DataError, match=r"on 20 captions of which 20 are good \(drawn\)"):
        Calibration.fit(made, [True] * FEWEST, "drawn", GREEDY)


def test_a_photo_is_unfamiliar_where_it_leaves_the_span_of_the_others():
    generator = np.random.default_rng(0)
    basis = np.linalg.qr(generator.normal(size=(24, 24)))[0]
    inside = generator.normal(size=(400, 4)) @ basis[:4] + 3 + 0.1 * generator.normal(size=(400, 24))
    fitted = Familiarity.fit(inside[:200])
    assert len(fitted.components) == 8  # a third of the numbers of a vector
    assert np.array(fitted.components) @ np.array(fitted.components).T == pytest.approx(np.eye(8), abs=1e-2)
    assert np.mean(fitted.is_familiar(inside[200:])) > 0.95
    assert np.mean(fitted.is_familiar(inside[200:] + 5 * basis[0])) > 0.95  # far out, in a known direction
    assert not any(fitted.is_familiar(inside[200:] + basis[10]))


def test_a_kind_of_photo_that_is_captioned_worse_has_lower_chances():
    made, _, _ = captions(2000)
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(2000, 9))
    is_other = generator.random(2000) < 0.5
    vectors[is_other, 4] += 6.0  # the other kind lies elsewhere
    good = (generator.random(2000) < np.where(is_other, 0.3, 0.7)).tolist()
    fitted = Calibration.fit(made, good, "drawn", GREEDY, vectors)
    chances = np.array(fitted.confidences(made, vectors))
    assert chances[is_other].mean() == pytest.approx(0.3, abs=0.04)
    assert chances[~is_other].mean() == pytest.approx(0.7, abs=0.04)
    far = vectors[:1] + 1000 * np.eye(9)[4]  # no photo is surer than those that the map was fitted to
    assert 0.1 < fitted.confidences(made[:1], far)[0] < 0.9
    assert fitted.confidences(made[:1])[0] == pytest.approx(0.5, abs=0.1)  # nothing known of the photo


def test_doubts_come_from_the_chance_and_from_the_photo():
    made, good, _ = captions(100)
    vectors = np.random.default_rng(0).normal(size=(100, 9))
    fitted = Calibration.fit(made, good, "drawn", GREEDY, vectors)
    assert Calibration.from_json(json.loads(json.dumps(fitted.to_json())), "calibration.json") == fitted
    judged = [best for (best,) in fitted.calibrated([[one] for one in made], vectors)]
    expected = [None if chance >= 1 / 3 else "probably wrong" for chance in fitted.confidences(made, vectors)]
    for one, doubt, is_familiar in zip(judged, expected, fitted.familiarity.is_familiar(vectors), strict=True):
        assert one.doubt == doubt or not is_familiar
    assert {None, "probably wrong"} == set(expected)
    ((far,),) = fitted.calibrated([[made[0]]], vectors[:1] + 100)
    assert far.doubt == "unlike the photos it knows"
    assert Caption.from_json(far.to_json()) == far
