"""Several systems: every pair, Holm's correction by hand, and power against a simulation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import showtell
from showtell.scores.comparison import POINT, compare_all, holm
from showtell.scores.report import ScoreReport
from tests.cli.test_caption import run

RIGHT, WRONG = "a b c d", "e f g h"


def coin_report(share: float, images: int, seed: int) -> ScoreReport:
    """ROUGE-L of captions that are right with some probability: 1 or 0 for each image."""
    hits = np.random.default_rng(seed).random(images) < share
    return showtell.score([RIGHT if hit else WRONG for hit in hits], [[RIGHT]] * images, ["rouge_l"])


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03, 0.5]) == pytest.approx([0.09, 0.04, 0.09, 0.5])  # 4, 3, 2 and 1 times, never falling
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_every_pair_is_compared_and_corrected() -> None:
    reports = {
        name: coin_report(share, 200, seed) for seed, (name, share) in enumerate([("a", 0.9), ("b", 0.85), ("c", 0.2)])
    }
    comparisons = {(one.first, one.second): one for one in compare_all(reports, samples=999)}
    assert list(comparisons) == [("a", "b"), ("a", "c"), ("b", "c")]
    values = {name: report.scores["rouge_l"] or 0 for name, report in reports.items()}
    for (first, second), one in comparisons.items():
        assert one.difference.value == pytest.approx(values[first] - values[second])
        assert one.p_holm >= one.difference.p
    assert comparisons["a", "c"].difference.p == 1 / 1000
    assert comparisons["a", "c"].p_holm == 3 / 1000
    assert comparisons["a", "b"].p_holm == comparisons["a", "b"].difference.p  # the largest is multiplied by one


def test_images_for_a_difference_are_those_of_the_closed_form() -> None:
    one = compare_all({"a": coin_report(0.5, 400, 1), "b": coin_report(0.5, 400, 2)}, samples=4000)[0]
    # the differences of independent coins have a variance of 1/2; (1.96 + 0.84)^2 / 2 / 0.01^2 images
    assert one.images_for(POINT) == pytest.approx(39_244, rel=0.1)
    assert one.detectable == pytest.approx(2.8016 * np.sqrt(0.5 / 400), rel=0.05)
    assert one.images_for(one.detectable) in (400, 401)


def test_the_stated_power_is_that_of_a_simulation() -> None:
    """With as many images as are said to be needed, four of five repetitions see the difference."""
    needed = compare_all({"a": coin_report(0.6, 500, 1), "b": coin_report(0.4, 500, 2)})[0].images_for(0.2)
    seen = 0
    for seed in range(150):
        pair = {"a": coin_report(0.6, needed, 10 + 2 * seed), "b": coin_report(0.4, needed, 11 + 2 * seed)}
        seen += compare_all(pair, samples=200)[0].difference.p < 0.05
    assert 0.7 < seen / 150 < 0.9  # three standard errors about 0.8


def test_equal_systems_need_no_images() -> None:
    report = coin_report(0.5, 50, 1)
    (one,) = compare_all({"a": report, "b": report}, samples=100)
    assert (one.difference.value, one.p_holm, one.images_for(), one.detectable) == (0, 1, 0, 0)


# --- the command ---


@pytest.fixture
def systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    words = ["a", "man", "dog", "cat", "runs", "on", "the", "red", "grass", "with", "ball"]
    references = {str(n): [" ".join(rng.choice(words, 7)) for _ in range(3)] for n in range(60)}
    Path("references.json").write_text(json.dumps(references))
    for name, share in {"a": 0.9, "b_with_a_long_name": 0.6, "c": 0.2}.items():
        kept = {n: [w if rng.random() < share else "x" for w in texts[0].split()] for n, texts in references.items()}
        Path(f"{name}.json").write_text(json.dumps({n: " ".join(caption) for n, caption in kept.items()}))


NAMES = ("a.json", "b_with_a_long_name.json", "c.json")


def test_the_tables_fit_80_columns(capsys, systems):
    status, out, _ = run(capsys, "score", *NAMES, "--references", "references.json", "--metrics", "bleu,cider")
    assert status == 0
    tables = out[: out.index("signatures")] + out[out.index("diff") :]
    assert max(map(len, tables.splitlines())) <= 80
    assert "B  b_with_a_long_name.json" in out
    rows = [line.split() for line in out.splitlines() if line.startswith("cider ") and "nrefs" not in line]
    assert [row[1] for row in rows[:3]] == ["A", "B", "C"]
    assert [" ".join(row[1:4]) for row in rows[3:]] == ["A - B", "A - C", "B - C"]
    assert "p (Holm): corrected for the 3 pairs of systems, for each number." in out


def test_a_diagnosis_names_the_systems_that_it_concerns(capsys, systems):
    def lines(**words: int) -> list[str]:
        for name, number in words.items():
            captions = {str(image): " ".join(["a dog runs here"] * number) for image in range(20)}
            Path(f"{name}.json").write_text(json.dumps(captions))
        _, _, err = run(capsys, "score", "one.json", "two.json", "--references", "short.json", "--metrics", "cider")
        return [line for line in err.splitlines() if "CIDEr is near zero" in line]

    Path("short.json").write_text(json.dumps({str(image): ["a dog runs on grass"] for image in range(20)}))
    (line,) = lines(one=1, two=12)
    assert line.startswith("showtell: two.json: CIDEr is near zero")
    (line,) = lines(one=12, two=12)
    assert line.startswith("showtell: CIDEr is near zero")


def test_json_has_systems_and_comparisons(capsys, systems):
    given = ["--references", "references.json", "--metrics", "rouge_l", "--json"]
    content = json.loads(run(capsys, "score", *NAMES, *given)[1])
    assert [one["predictions"] for one in content["systems"]] == list(NAMES)
    scores = {one["predictions"]: one["scores"]["rouge_l"] for one in content["systems"]}
    for one in content["systems"]:
        assert one["intervals"]["rouge_l"]["low"] < one["scores"]["rouge_l"] < one["intervals"]["rouge_l"]["high"]
    first = content["comparisons"][0]
    assert (first["first"], first["second"], first["number"]) == (*NAMES[:2], "rouge_l")
    assert first["value"] == pytest.approx(scores[NAMES[0]] - scores[NAMES[1]])
    assert first["images_for_a_point"] > 60 and first["detectable"] > POINT
    alone = json.loads(run(capsys, "score", NAMES[0], *given)[1])
    assert alone["scores"]["rouge_l"] == scores[NAMES[0]]


def test_common_leaves_out_what_one_system_lacks(capsys, systems):
    fewer = json.loads(Path("c.json").read_text())
    del fewer["7"]
    Path("c.json").write_text(json.dumps(fewer))
    given = ["--references", "references.json", "--metrics", "rouge_l"]
    assert "1 image(s) have no prediction: 7" in run(capsys, "score", *NAMES, *given)[2]
    status, out, err = run(capsys, "score", *NAMES, *given, "--common")
    assert (status, out.splitlines()[0]) == (0, "59 images")
    assert "59 images are scored; 1 images with references and 1 with predictions are left out." in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Missing argument 'PREDICTIONS...': a file of captions. See showtell score --help."),
        ([*NAMES, "references.json"], "4 files are named; to compare several systems, name the references with"),
        ([*NAMES, "--references", "references.json", "--bootstrap", "0"], "A comparison draws images to tell"),
        ([*NAMES, "--references", "references.json", "--compare", "c.json"], "--compare is for one system and 3 are"),
        ([*NAMES, "--references", "references.json", "--per-image", "x.json"], "--per-image is for one system and 3"),
        (["a.json", "a.json", "--references", "references.json"], "a.json is named twice; each system is a file"),
    ],
)
def test_mistakes_are_sentences(capsys, systems, arguments, sentence):
    status, out, err = run(capsys, "score", *arguments)
    assert (status, out) == (2, "")
    assert sentence in err
