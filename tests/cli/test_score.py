"""`showtell score` as a person calls it."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_caption import as_json, run

REFERENCES = {"1": ["a dog runs on grass", "the dog is running"], "2": ["a red ball", "a ball that is red"]}
NAMES = ("a.json", "b_with_a_long_name.json", "c.json")


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("references.json").write_text(json.dumps(REFERENCES))
    Path("predictions.json").write_text(json.dumps({"1": "a dog runs on grass", "2": "a red ball"}))


@pytest.fixture
def systems() -> None:
    """Three systems on 60 images, the first the best, with references of their own."""
    rng = np.random.default_rng(0)
    words = ["a", "man", "dog", "cat", "runs", "on", "the", "red", "grass", "with", "ball"]
    references = {str(n): [" ".join(rng.choice(words, 7)) for _ in range(3)] for n in range(60)}
    Path("references.json").write_text(json.dumps(references))
    for name, share in zip(NAMES, (0.9, 0.6, 0.2), strict=True):
        kept = {n: [w if rng.random() < share else "x" for w in texts[0].split()] for n, texts in references.items()}
        Path(name).write_text(json.dumps({n: " ".join(caption) for n, caption in kept.items()}))


GIVEN = ("--references", "references.json", "--metrics")


def test_json_is_what_programs_rely_on(capsys):
    content = as_json(capsys, "score", "predictions.json", *GIVEN, "bleu,cider")
    assert set(content) == {"system", "scores", "signatures", "images", "skipped", "intervals", "rates"}
    assert list(content["scores"]) == ["bleu_1", "bleu_2", "bleu_3", "bleu_4", "cider"]
    assert content["scores"]["bleu_1"] == pytest.approx(1.0)
    assert (content["system"], content["images"]) == ("predictions.json", 2)
    assert set(content["signatures"]) == set(content["intervals"]) == set(content["scores"])


def test_the_table_of_one_system(capsys):
    arguments = ("score", "predictions.json", *GIVEN, "rouge_l,cider")
    status, out, err = run(capsys, *arguments)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert (status, lines[:3]) == (0, ["2 images", "", "predictions 95% interval"])
    assert set(lines[3]) == set(lines[6]) == {"─"}
    numbers, rates = ("ROUGE-L", "CIDEr-D"), ("bad", "identical", "words", "different")
    assert tuple(line.split()[0] for line in (*lines[4:6], *lines[7:11])) == (*numbers, *rates)
    assert lines[4] == "ROUGE-L 1.0000 [1.0000, 1.0000]"
    assert lines[9:11] == ["words per caption 4.0", "different words 7"]
    assert lines[12].startswith("signature nrefs:2 case:lower") and "ROUGE-L beta:1.2" in lines
    assert "CIDEr's document frequencies come from 2 images" in err
    assert "[" not in run(capsys, *arguments, "--bootstrap", "0")[1]
    unnamed = run(capsys, "score", "predictions.json", "--references", "references.json")[1]
    assert "\nskipped spice, spider: " in unnamed and "SPICE  " not in unnamed  # it has no row
    assert "BLEU-4 " in unnamed and "CIDEr-D " in unnamed and "BLEU-3" not in unnamed


def test_the_table_of_several_systems_says_who_is_the_best_at_what(capsys, systems):
    captions = json.loads(Path("c.json").read_text())
    Path("c.json").write_text(json.dumps({image: f"{text} on the" for image, text in captions.items()}))
    status, out, err = run(capsys, "score", *NAMES, "--references", "references.json")
    assert status == 0 and "difference of" not in out
    assert len((out + err).splitlines()) <= 40 and max(map(len, out.splitlines())) <= 100
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert rows[2] == "a b_with_a_long_name c"
    best = "a.json is the best in BLEU-4, METEOR, ROUGE-L, CIDEr-D: better than ever"
    for begin in (best, "c.json: 100% of captions end in a word such as"):
        assert any(row.startswith(begin) for row in rows)
    Path("copy.json").write_text(Path("a.json").read_text())
    out = run(capsys, "score", "a.json", "copy.json", *GIVEN, "rouge_l")[1]
    assert "a.json leads in ROUGE-L, by no more than chance may give." in out
    rows = [line.split() for line in run(capsys, "score", *NAMES, *GIVEN, "cider", "--pairs")[1].splitlines()]
    pairs = [row for row in rows if "-" in row]
    assert [row[1:4:2] for row in pairs] == [["a.json", NAMES[1]], ["a.json", "c.json"], [NAMES[1], "c.json"]]
    assert pairs[1][-1] == "<0.0030"  # no draw of 1,000 was as far, times 3 pairs


def test_a_warning_names_the_systems_that_it_concerns(capsys):
    def warning(**words: int) -> str:
        for name, number in words.items():
            captions = {str(image): " ".join(["a dog runs here"] * number) for image in range(20)}
            Path(f"{name}.json").write_text(json.dumps(captions))
        _, _, err = run(capsys, "score", "one.json", "two.json", "--references", "short.json", "--metrics", "cider")
        (line,) = (line for line in err.splitlines() if "no n-gram score can judge" in line)
        return line

    Path("short.json").write_text(json.dumps({str(image): ["a dog runs on grass"] for image in range(20)}))
    named, unnamed = warning(one=1, two=12), warning(one=12, two=12)
    assert named == unnamed.replace("showtell: ", "showtell: two.json: ")


def test_special_tokens_are_told_and_removed_on_request(capsys):
    marked = {"1": "<start> a dog runs on grass <end>", "2": "a red ball"}
    Path("marked.json").write_text(json.dumps(marked))
    given = ("score", "marked.json", *GIVEN, "rouge_l", "--json")
    _, out, err = run(capsys, *given)
    assert json.loads(out)["scores"]["rouge_l"] < 1
    assert '1 of 2 captions hold special tokens, which are scored as words ("<start>"); showtell score --strip-t' in err
    _, out, err = run(capsys, *given, "--strip-tokens")
    assert json.loads(out)["scores"]["rouge_l"] == pytest.approx(1.0) and "special" not in err


def test_numbers_of_each_image_go_to_a_file(capsys):
    Path("other.json").write_text(json.dumps({"1": "a dog runs on grass", "2": "a red ball"}))
    expected = {"1": {"rouge_l": 1.0}, "2": {"rouge_l": 1.0}}
    as_json(capsys, "score", "predictions.json", *GIVEN, "rouge_l", "--per-image", "each.json")
    assert json.loads(Path("each.json").read_text()) == expected
    as_json(capsys, "score", "predictions.json", "other.json", *GIVEN, "rouge_l", "--per-image", "each.json")
    assert json.loads(Path("each.json").read_text()) == {"predictions.json": expected, "other.json": expected}


def test_document_frequencies_from_a_file_and_from_references(capsys):
    Path("df.json").write_text(json.dumps({"ref_len": 500, "document_frequency": {"a": 400, "dog": 20}}))
    arguments = ("predictions.json", *GIVEN, "cider")
    content = as_json(capsys, "score", *arguments, "--document-frequency", "df.json")
    assert "df:df.json:500" in content["signatures"]["cider"]
    own = as_json(capsys, "score", *arguments, "--document-frequency", "references.json")
    assert "df:references.json:2" in own["signatures"]["cider"]
    assert own["scores"] == pytest.approx(as_json(capsys, "score", *arguments)["scores"])


def test_the_images_that_all_have_are_scored_on_request(capsys, systems):
    for name, left_out in (("b_with_a_long_name.json", "7"), ("c.json", "8")):
        captions = json.loads(Path(name).read_text())
        del captions[left_out]
        Path(name).write_text(json.dumps({**captions, "unknown": "a"}))
    _, _, err = run(capsys, "score", *NAMES, *GIVEN, "rouge_l")
    told = "1 image(s) have no prediction: 7; 1 prediction(s) are for unknown images: unknown; showtell score --c"
    assert told in err
    status, out, err = run(capsys, "score", *NAMES, *GIVEN, "rouge_l", "--common")
    assert (status, out.splitlines()[0]) == (0, "58 images")
    assert "58 images are scored; 2 images with references and 3 with predictions are left out." in err
    Path("few.json").write_text(json.dumps({"unknown": "a"}))
    err = run(capsys, "score", "few.json", *GIVEN, "bleu", "--common")[2]
    assert "few.json has captions of unknown, and none" in err
    told = [{"image": "7", "captions": [{"text": "a"}]}, {"image": "8", "captions": [], "error": "8 has no caption."}]
    Path("few.json").write_text(json.dumps(told))  # as `caption` writes them
    assert "1 images are scored" in run(capsys, "score", "few.json", *GIVEN, "rouge_l", "--common")[2]


ONE = ("predictions.json", "--references", "references.json")
MISTAKES: list[tuple[tuple[str, ...], str]] = [
    ((), "Missing argument 'PREDICTIONS...'"),
    (("predictions.json",), "Missing option '--references'."),
    (("predictions.json", "--references", "none.json"), "There is no file or folder none.json."),
    ((*ONE, "--per-image", "."), ". is a folder; --per-image needs the name of a"),
    (("predictions.json", *ONE), "A file of predictions is named twice; each system is a file of its own."),
    ((*ONE, "--pairs", "--bootstrap", "0"), "give --bootstrap at least 1 draw"),
    (("partial.json", *ONE[1:]), "partial.json against references.json: Predictions and references must name the same"),
    (("predictions.json", "partial.json", *ONE[1:]), "partial.json against references.json: Predictions and"),
    ((ONE[0], "--references", ONE[0]), "predictions.json: those of image 1 are 'a dog runs on "),
]


def test_mistakes_are_sentences(capsys):
    Path("partial.json").write_text(json.dumps({"1": "a dog"}))
    for arguments, sentence in MISTAKES:
        status, out, err = run(capsys, "score", *arguments)
        assert (status, out) == (2, ""), arguments
        assert sentence in err
