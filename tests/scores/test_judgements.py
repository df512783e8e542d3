"""Judgements of people in the forms in which they are published, and scores against them."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import showtell
from showtell.errors import DataError
from showtell.scores import Corpus, ImageFacts, Score, ScoreNumber
from showtell.scores.base import Floats
from showtell.scores.captions import match
from showtell.scores.files import ScoredImages
from showtell.scores.human_correlation import correlate
from showtell.scores.judgements import JudgedCaption, Judgements, caption_ids, judged_facts, read_judgements
from showtell.scores.report import measure
from showtell.scores.rouge import RougeL
from tests.cli.test_caption import run

stats = pytest.importorskip("scipy.stats")

CAPTIONS = {  # three images of Flickr8k, two captions of each
    "1056338697_4f7d7ce270.jpg": ("A blonde woman in a blue shirt .", "A woman waits at a stop ."),
    "106490881_5a2dd9b7bd.jpg": ("A boy in his blue swim shorts at the beach .", "A boy smiles for the camera ."),
    "2258277193_586949ec62.jpg": ("people waiting for the subway", "People in a station ."),
}
IMAGES = list(CAPTIONS)


@pytest.fixture(autouse=True)
def _flickr8k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [*IMAGES[:2], f"{IMAGES[2]}.1"]  # as the last one is called in the file itself
    tokens = [
        f"{name}#{n}\t{text}"
        for name, image in zip(names, IMAGES, strict=True)
        for n, text in enumerate(CAPTIONS[image])
    ]
    Path("Flickr8k.token.txt").write_text("\n".join(tokens) + "\n")


def expert(*rows: tuple[int, int, int, Sequence[object]]) -> Path:
    """Rows of image, image of the caption, its number, and the three last columns."""
    names = [*IMAGES[:2], f"{IMAGES[2]}.1"]
    lines = ["\t".join([IMAGES[image], f"{names[of]}#{n}", *map(str, last)]) for image, of, n, last in rows]
    Path("ExpertAnnotations.txt").write_text("\n".join(lines) + "\n")
    return Path("ExpertAnnotations.txt")


def test_experts_rate_from_1_to_4_and_references_are_left_out() -> None:
    judged = read_judgements(
        expert((0, 1, 0, (1, 1, 2)), (0, 0, 1, (4, 4, 3)), (1, 2, 0, (1, 2, 1)), (2, 0, 0, (1, 1, 1)))
    )
    assert (judged.name, judged.tau) == ("Flickr8k-Expert", "tau_c")
    assert judged.notes == ("1 captions that are references of their image are left out.",)
    first = judged.captions[0]
    assert (first.image, first.text, first.ratings) == (IMAGES[0], CAPTIONS[IMAGES[1]][0], (1, 1, 2))
    assert first.references == CAPTIONS[IMAGES[0]]
    assert judged.captions[1].text == "people waiting for the subway"
    assert judged.captions[2].references == CAPTIONS[IMAGES[2]]  # whose captions have another name


def test_the_crowd_says_yes_or_no_and_references_are_taken_out() -> None:
    rows = [(0, 1, 0, (0.0, 0, 3)), (0, 0, 1, (1.0, 3, 0)), (1, 0, 0, (0.25, 1, 3))]
    judged = read_judgements(expert(*rows).rename("CrowdFlowerAnnotations.txt"))
    assert (judged.name, judged.tau) == ("Flickr8k-CF", "tau_b")
    assert [one.ratings for one in judged.captions] == [(0.0,), (1.0,), (0.25,)]
    # the second caption is one of the first image, so no caption of that image is scored against it
    assert [one.references for one in judged.captions[:2]] == [CAPTIONS[IMAGES[0]][:1]] * 2
    assert judged.notes == ("Judged captions are taken from the references of 1 images.",)


def test_the_json_of_clipscore_is_the_same_set() -> None:
    published = read_judgements(expert((0, 1, 0, (1, 1, 2)), (1, 2, 0, (1, 2, 1))))
    content = {
        one.image.partition(".")[0]: {
            "image_path": f"Flicker8k_Dataset/{one.image}",
            "ground_truth": list(one.references),
            "human_judgement": [{"caption": one.text, "rating": rating} for rating in one.ratings],
        }
        for one in published.captions
    }
    content["106490881_5a2dd9b7bd"]["human_judgement"].append({"caption": "x", "rating": float("nan")})
    Path("flickr8k.json").write_text(json.dumps(content))
    judged = read_judgements(Path("flickr8k.json"))
    assert (judged.name, judged.captions) == (published.name, published.captions)
    assert judged.notes == ("1 ratings are no numbers and left out.",)


def composite(name: str, *rows: Sequence[str], captions: int = 3) -> Path:
    """A table of Mechanical Turk with its first columns, and two empty rows at the end."""
    numbers = range(1, captions + 1)
    header = ["HITId", "WorkerId", "Input.image_url", *[f"Input.text{n}" for n in numbers]]
    header += [f"Answer.Q{n}Answer" for n in numbers]
    with Path(name).open("w", newline="") as stream:
        writer = csv.writer(stream, delimiter=";")
        writer.writerows([header, *[["3X", "A1", *row] for row in rows], [""] * len(header), [""] * len(header)])
    return Path(name)


def test_composite_is_a_table_or_a_folder_of_them() -> None:
    url = "http://www.example.org/Flicker8k/"
    first = ("a boy at the beach", "A boy smiles for the camera.", "a dog")
    composite("8k_correctness.csv", [f"{url}{IMAGES[1]}", *first, "4", "5", "1"])
    composite(
        "coco_correctness.csv", ["http://x/COCO_val2014_000000000042.jpg", *"abcd", "1", "2", "", "3"], captions=4
    )
    images = ScoredImages(
        {**{image: ImageFacts(texts) for image, texts in CAPTIONS.items()}, "42": ImageFacts(("b", "e"))}
    )
    judged = read_judgements(Path("8k_correctness.csv"), images)
    assert (judged.name, judged.tau) == ("Composite", "tau_c")
    assert [(one.text, one.ratings) for one in judged.captions] == list(
        zip(first, [(4.0,), (5.0,), (1.0,)], strict=True)
    )
    assert {one.references for one in judged.captions} == {CAPTIONS[IMAGES[1]][:1]}  # "... camera ." was judged
    with pytest.raises(DataError, match=r"1 of 2 judged images of \. have no references: COCO_val2014_0000"):
        read_judgements(Path(), ScoredImages({image: images.facts[image] for image in IMAGES}))
    (Path("Flickr8k.token.txt")).unlink()


def test_composite_of_all_three_sets_matches_files_without_suffix() -> None:
    composite("8k_correctness.csv", [f"http://x/{IMAGES[1]}", "a", "b", "c", "4", "5", "1"])
    composite("30k_correctness.csv", ["http://x/1007129816.jpg", *"abcd", "1", "2", "", "3"], captions=4)
    facts = {IMAGES[1]: ImageFacts(("z",)), "1007129816.jpg": ImageFacts(("z",))}
    judged = read_judgements(Path(), ScoredImages(facts))
    assert len(judged.captions) == 6
    assert judged.notes == ("1 captions of 30k_correctness.csv have no rating.",)


def test_polaris_keeps_references_and_joins_ratings_of_a_caption() -> None:
    Path("polaris_test.csv").write_text(
        ",mt,refs,score,imgid\n"
        '0,a dog,"[\'the dog\', ""a cat\'s dog""]",0.75,000a.png\n'
        '1,a dog,"[\'the dog\', ""a cat\'s dog""]",0.5,000a.png\n'
        '2,a cat,"[\'the dog\', ""a cat\'s dog""]",0.0,000a.png\n'
    )
    judged = read_judgements(Path("polaris_test.csv"))
    assert (judged.name, judged.tau, judged.notes) == ("Polaris", "tau_c", ())
    assert judged.captions == (
        JudgedCaption("000a.png", "a dog", (0.75, 0.5), ("the dog", "a cat's dog")),
        JudgedCaption("000a.png", "a cat", (0.0,), ("the dog", "a cat's dog")),
    )


def test_a_table_of_ones_own(capsys) -> None:
    Path("mine.csv").write_text("image;caption;rating\n1.jpg;a dog runs;5\n1.jpg;a cat;1\n1.jpg;a dog runs;4\n")
    Path("references.json").write_text(json.dumps({"1": ["the dog runs", "a dog"]}))
    given = ["--judgements", "mine.csv", "--references", "references.json", "--metrics", "rouge_l", "--json"]
    status, out, _ = run(capsys, "score", *given)
    content = json.loads(out)
    assert (status, content["captions"], content["images"], content["ratings"]) == (0, 2, 1, 3)
    assert content["agreement"]["rouge_l"]["pairwise_accuracy"]["value"] == 1.0
    # ratings 5, 4 of one caption and 1 of another: tied in the score, so tau-b is 2 / sqrt(2 * 3)
    assert content["agreement"]["rouge_l"]["tau_b"]["value"] == pytest.approx(2 / np.sqrt(6))


# --- agreement ---


def drawn(images: int, seed: int, noise: float = 1.0) -> Judgements:
    """Captions with a true quality: three ratings of each follow it with noise, its number of right words too."""
    rng = np.random.default_rng(seed)
    captions = []
    for image in range(images):
        for quality in rng.integers(0, 7, size=4):
            right = int(np.clip(quality + rng.normal(scale=noise), 0, 6).round())
            ratings = tuple(
                float(one) for one in np.clip(1 + quality / 2 + rng.normal(scale=0.7, size=3), 1, 4).round()
            )
            text = " ".join([*"abcdef"[:right], *(f"x{image}y{len(captions)}z{n}" for n in range(6 - right))])
            captions.append(JudgedCaption(str(image), text, ratings, ("a b c d e f",)))
    return Judgements("drawn", tuple(captions), "tau_c")


def scored(judged: Judgements, metrics: Sequence[str] = ("rouge_l",)) -> showtell.scores.ScoreReport:
    texts = dict(zip(caption_ids(judged), (one.text for one in judged.captions), strict=True))
    return showtell.score(texts, judged_facts(judged), metrics)


def test_the_numbers_are_scipys_on_flattened_ratings() -> None:
    judged = drawn(40, 1)
    report = scored(judged, ("rouge_l", "bleu"))
    found = correlate(report, judged, samples=50)
    for number, of in found.agreement.items():
        values = [report.per_image[caption][number] for caption in caption_ids(judged)]
        x = np.repeat(np.array(values, dtype=float), 3)
        y = np.array([rating for one in judged.captions for rating in one.ratings])
        assert of["tau_b"].value == pytest.approx(stats.kendalltau(x, y, variant="b")[0])
        assert of["tau_c"].value == pytest.approx(stats.kendalltau(x, y, variant="c")[0])
        assert of["spearman"].value == pytest.approx(stats.spearmanr(x, y)[0])
        assert of["tau_c"].low < of["tau_c"].value < of["tau_c"].high


def test_pairs_of_an_image_by_hand() -> None:
    ratings = {"a b c d e f": 4.0, "a b c x y z": 2.0, "a b c u v w": 3.0, "u v w x y z": 2.0}
    judged = Judgements(
        "hand",
        tuple(JudgedCaption("1", text, (rating,), ("a b c d e f",)) for text, rating in ratings.items()),
        "tau_c",
    )
    # of 6 pairs one is rated alike; four of the others are in order, one is tied in ROUGE-L
    assert correlate(scored(judged), judged, samples=5).agreement["rouge_l"]["pairwise_accuracy"].value == 4.5 / 5


class Blurred(Score):
    """The number of wrong words with noise: a score that agrees less. Statistics: itself."""

    numbers = (ScoreNumber("blurred", "blurred", lower_is_better=True),)
    summary = "for this test"

    def statistics(self, corpus: Corpus) -> Floats:
        wrong = [sum(word not in "abcdef" for word in words) for words in corpus.predicted_words]
        return np.random.default_rng(0).normal(scale=4, size=(len(wrong), 1)) + np.array(wrong)[:, None]

    def from_sums(self, sums: Floats, images: int) -> Floats:
        return sums / images

    def signature(self, corpus: Corpus) -> str:
        return "blurred"


def test_a_worse_score_is_told_from_a_better_one() -> None:
    judged = drawn(60, 2)
    texts = dict(zip(caption_ids(judged), (one.text for one in judged.captions), strict=True))
    report = measure(match(texts, judged_facts(judged)), {"rouge_l": RougeL(), "blurred": Blurred()})
    found = correlate(report, judged, samples=300)
    assert found.best == "rouge_l" and list(found.differences) == ["blurred"]
    taus = {number: of["tau_c"].value for number, of in found.agreement.items()}
    assert 0.1 < taus["blurred"] < taus["rouge_l"]  # of which less is better, so it is turned round
    difference = found.differences["blurred"]
    assert difference.value == pytest.approx(taus["blurred"] - taus["rouge_l"])
    assert difference.high < 0 and found.p_holm["blurred"] == difference.p == 1 / 301


def test_a_number_that_says_nothing_is_skipped() -> None:
    same = Judgements("same", tuple(JudgedCaption(str(n), "a b", (float(n % 3),), ("a b",)) for n in range(6)), "tau_c")
    found = correlate(scored(same), same, samples=5)
    assert (found.best, found.agreement) == (None, {})
    assert found.skipped["rouge_l"] == "it is the same for all captions"


def test_intervals_cover() -> None:
    """Of 60 samples of 50 images, nine in ten intervals at least hold the tau of 2,000 images."""
    large = drawn(2000, 0)
    truth = correlate(scored(large), large, samples=1).agreement["rouge_l"]["tau_c"].value
    covered = 0
    for seed in range(1, 61):
        small = drawn(50, seed)
        of = correlate(scored(small), small, samples=200).agreement["rouge_l"]["tau_c"]
        covered += of.low <= truth <= of.high
    assert covered >= 52  # 57 of 60 are expected; 51 or fewer have a probability of one in a hundred


# --- mistakes, and the command ---


def test_the_table_fits_80_columns(capsys) -> None:
    expert(*[(image, (image + 1) % 3, n, (1 + image, 1 + n, 2)) for image in range(3) for n in range(2)])
    status, out, _ = run(capsys, "score", "--judgements", "ExpertAnnotations.txt", "--metrics", "bleu,cider")
    assert status == 0
    assert out.startswith("Flickr8k-Expert: 6 captions of 3 images, 18 ratings\n")
    assert max(len(line) for line in out[: out.index("signatures")].splitlines()) <= 80
    assert "p (Holm)" in out and "nrefs:2|" in out


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([(0, 1, 0, (1, 1, 7)), (0, 1, 1, (0, 1, 1))], "are outside of the scale of Flickr8k-Expert, 1 to 4: first 7"),
        ([(0, 1, 0, (1, 1, 2)), (0, 1, 0, (1, 1, 2))], "Lines 1 and 2 of F judge the same caption, 1064908"),
        ([(0, 1, 7, (1, 1, 2))], "1 caption(s) of F are not in Flickr8k.token.txt: 106490881_5a2dd9b7bd.jpg#7."),
        ([(0, 1, 0, (1, "x", 2))], "Line 1 of F is not an image, a caption id and three numbers parted by tabs."),
        ([(0, 1, 0, (0.5, 1, 1)), (1, 0, 0, (0.5, 1, 1)), (2, 0, 0, (0.9, 1, 1))], "Line 3 of F has a"),
        ([(0, 0, 0, (1, 1, 2))], "F has no ratings to compare scores with."),
    ],
)  # fmt: skip
def test_mistakes_of_flickr8k_are_sentences(rows, sentence) -> None:
    with pytest.raises(DataError) as caught:
        read_judgements(expert(*rows))
    assert sentence in str(caught.value).replace("ExpertAnnotations.txt", "F")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("mine.csv", "image,caption\n1,a\n", "mine.csv has no column rating; judgements are ExpertAnnotations.txt or"),
        (
            "mine.csv",
            "image,caption,rating\n1,a,good\n",
            'Line 2 of mine.csv has no image or no number as rating: "good".',
        ),
        (
            "mine.csv",
            "image,caption,rating,refs\n1,a,1,no list\n",
            "Line 2 of mine.csv has references that are no list",
        ),
        (
            "mine.csv",
            "image,caption,rating\n1,a,1\n",
            "1 of 1 judged captions have no references, of image 1 first; name",
        ),
        ("mine.json", '{"a": {"ground_truth": "x", "human_judgement": [{}]}}', "mine.json is not in CLIPScore's form"),
        ("mine.json", '{"a": {"x": 1}}', "mine.json is not in CLIPScore's form of Flickr8k's judgements"),
        (
            "polaris.csv",
            "imgid,mt,refs,score\n1,a,\"['b']\",-1\n",
            "are outside of the scale of Polaris, 0 to 1: first -1",
        ),
        (
            "a.parquet",
            "",
            "a.parquet is no text; save it as CSV with the columns image, caption, rating and references.",
        ),
        ("ExpertAnnotations.txt", "1.jpg\t1.jpg#0\t1\t1\t2\n", "and there is no other/Flickr8k.token.txt."),
    ],
)
def test_mistakes_are_sentences(capsys, name, content, sentence) -> None:
    Path("other").mkdir()
    path = Path("other", name) if name.startswith("Expert") else Path(name)
    path.write_text(content)
    status, out, err = run(capsys, "score", "--judgements", path)
    assert (status, out) == (2, "")
    assert sentence in err


def test_options_that_do_not_go_with_judgements(capsys) -> None:
    expert((0, 1, 0, (1, 1, 2)))
    given = ["--judgements", "ExpertAnnotations.txt"]
    assert (
        "has captions of its own: leave a.json, --compare out"
        in run(capsys, "score", "a.json", *given, "--compare", "b")[2]
    )
    assert "give --bootstrap at least 1 draw" in run(capsys, "score", *given, "--bootstrap", "0")[2]
    Path("references.json").write_text(json.dumps({"5.jpg": ["a"]}))
    references = ["--references", "references.json"]
    assert (
        "1 of 1 judged images of ExpertAnnotations.txt have no references: 1056"
        in run(capsys, "score", *given, *references)[2]
    )
