"""METEOR: statistics bit for bit, the choices of the reference one by one, and the index."""

import gzip
import json
import zipfile
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import pytest

import showtell
from showtell.errors import MissingDependencyError
from showtell.files import cache_folder
from showtell.scores import base, meteor_index
from showtell.scores.meteor import Lexicon, Meteor, statistics
from showtell.scores.meteor_index import MeteorIndex, open_index
from showtell.scores.meteor_text import normalise
from showtell.scores.report import measure
from tests.scores.conftest import Case
from tests.text.test_tokenizer import tokenize_lines


@pytest.fixture(scope="session")
def index() -> MeteorIndex:
    try:
        return open_index()
    except MissingDependencyError as error:
        pytest.skip(str(error))


def align(prediction: str, reference: str, index: MeteorIndex) -> list[int]:
    """The statistics of a pair."""
    texts = [normalise(prediction), normalise(reference)]
    lexicon = Lexicon(index, {*texts[0], *texts[1]})
    test, other = lexicon.sentences(texts)
    (options,) = lexicon.matches(test, [other])
    return statistics(test, other, options)


@pytest.mark.shared
@pytest.mark.usefixtures("tokenized", "index")
def test_statistics_are_the_references_bit_for_bit(case: Case) -> None:
    corpus = showtell.scores.captions.match(case.tokenized["predictions"], case.tokenized["references"])
    rows = measure(corpus, {"meteor": Meteor()}).statistics["meteor"].rows
    expected = [[float(value) for value in line.split()] for line in case.oracle["meteor_stats_per_image"]]
    assert rows[:, :23].tolist() == expected


# What the reference's own aligner chooses: METEOR 1.5 of pycocoevalcap 1.2, `-norm -writeAlignments -ssOut`,
# 2026-11-20. Each is matched words of the prediction, of the reference, chunks.
ALIGNED = [
    # one word that matches in two ways (stem and synonym) is not alone, and counts 0
    ("dog", "dogs", (0, 0, 0)),
    ("blorp", "blorps", (1, 1, 1)),  # stem alone: taken before the search
    ("cosmos", "universes", (1, 1, 1)),  # synonym of the base form alone
    ("outside", "out", (0, 0, 0)),  # the table has the pair in both directions: two matches
    ("dog x", "dogs x", (2, 2, 1)),  # joins a chunk that there is anyway
    ("dog x", "dogs y x", (1, 1, 1)),
    ("foo dog", "blorp dogs", (0, 0, 0)),
    # of equal places the later wins here, because the earlier path's chunk has ended
    ("a", "a a", (1, 1, 1)),
    ("a small dog", "a little grey dog q a", (2, 2, 2)),
    # words of colliding hash codes are equal
    ("as", "c5", (1, 1, 1)),
    ("ibsing", "id5", (1, 1, 1)),  # and stems
    # irregular forms exclude the regular rules; "atrociouss" has no form
    ("mice", "mouse", (1, 1, 1)),
    ("university", "cosmos", (0, 0, 0)),
    ("universes", "cosmos", (1, 1, 1)),
    ("", "a", (0, 0, 0)),
]


def test_choices_of_the_reference(index: MeteorIndex) -> None:
    for prediction, reference, expected in ALIGNED:
        *_, chunks, words, reference_words, _ = align(prediction, reference, index)
        assert (words, reference_words, chunks) == expected, (prediction, reference)


def test_random_pairs_and_captions_are_those_of_the_program(index: MeteorIndex, monkeypatch) -> None:
    """Pairs of few words, so that matches compete and the beam overflows; captions of initials and abbreviations."""
    # METEOR 1.5 of pycocoevalcap 1.2, 2026-11-23: `Meteor()._stat`, and coco-caption's two programs on lines of a file
    recorded = json.loads((Path(__file__).parent / "reference_meteor.json").read_text(encoding="utf-8"))
    for prediction, reference, expected in recorded["pairs"]:
        assert align(prediction, reference, index)[:23] == expected, (prediction, reference)
    predictions, references, scores = zip(*recorded["captions"], strict=True)
    lines = (predictions, [text for texts in references for text in texts])
    words = chain.from_iterable(map(tokenize_lines, lines))  # in the order in which the score asks for them
    monkeypatch.setattr(base, "tokenize", lambda text: next(words))
    given = [{f"{number:03}": text for number, text in enumerate(texts)} for texts in (predictions, references)]
    report = showtell.score(*given, metrics=["meteor"])
    assert [row["meteor"] for row in report.per_image.values()] == pytest.approx(scores, abs=1e-12)


# METEOR 1.5 of pycocoevalcap 1.2, `-norm -writeAlignments`, 2026-11-20
PREPARED = [
    ("the u.s. army at 5 p.m. , i.e. now", "the us army at 5 pm , ie now"),
    ("mr. smith. 3 ends.", "mr. smith . 3 ends ."),
    ("vs. 1 x. 5 no. 5", "vs. 1 x . 5 no . 5"),
    ("pp. 5 pp. % pp.", "pp. 5 pp . % pp ."),
    ("a x-ray a-1 a.-b. a--b", "a x ray a 1 a. b. a b"),
    ("do n't i 'm o'clock 'em rock 'n' roll", "do n 't i ' m o 'clock ' em rock ' n ' roll"),
    ("`` x '' “y” ‘z’ a–b a—b", '" x " " y " \' z \' a - b a — b'),
    ("1,000 a,b and/or 5% a@b.c r&b", "1,000 a , b and / or 5 % a @ b.c r & b"),
    ("wait... what .. 23\xa03/4 東京 café", "wait ... what .. 23 3 / 4 東 京 café"),
]


def test_preparation_of_captions() -> None:
    for text, words in PREPARED:
        assert " ".join(normalise(text)) == words


@pytest.fixture
def resources(tmp_path: Path) -> Path:
    folder = tmp_path / "meteor"
    (folder / "data").mkdir(parents=True)
    with zipfile.ZipFile(folder / "meteor-1.5.jar", "w") as jar:
        jar.writestr("synonym/english.synsets", "run\n10 11\njog\n11\nice_cream\n12\n")
        jar.writestr("synonym/english.exceptions", "run\nran\n")
        jar.writestr("function/english.words", "the\nof\n")
    table = "0.5\na b\nc\n0.5\na b\nc d\n0.1\nc\na b\n"
    (folder / "data" / "paraphrase-en.gz").write_bytes(gzip.compress(table.encode()))
    return folder


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOWTELL_CACHE", str(tmp_path / "cache"))
    return cache_folder()


@pytest.mark.usefixtures("empty_cache")
def test_index_of_small_resources(resources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        index = open_index(resources)
        assert index.function_words == {"the", "of"}
        assert index.irregular == {"ran": ("run",)}
        assert index.synsets_of("run") == (10, 11)
        assert index.synsets_of("ice_cream") == ()
        empty, phrases = index.phrases([[], ["a", "b", "x", "c", "d"]])
        assert empty == []
        by_span = {(start, size): (node, listed) for start, size, node, listed in phrases}
        assert set(by_span) == {(0, 1), (0, 2), (3, 1), (3, 2)}  # "a" begins a phrase
        node = {span: number for span, (number, _) in by_span.items()}
        assert index.paraphrases_of(node[0, 2]) == [node[3, 1], node[3, 2]]
        assert index.paraphrases_of(node[3, 1]) == [node[0, 2]]
        assert [span for span, (_, listed) in by_span.items() if listed] == [(0, 2), (3, 1)]
    assert capsys.readouterr().err.count("showtell: Building METEOR's index in ") == 1


@pytest.mark.usefixtures("empty_cache")
def test_of_several_that_start_at_once_one_builds(resources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: open_index(resources), range(4)))
    assert capsys.readouterr().err.count("Building") == 1


def test_a_cache_that_cannot_be_written_skips_meteor_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SHOWTELL_CACHE", str(tmp_path / "file"))
    report = showtell.score(["a dog"], [["a dog"]], metrics=["bleu", "meteor"])
    assert report.scores["meteor"] is None
    assert "SHOWTELL_CACHE" in report.skipped["meteor"]
    assert report.scores["bleu_1"] == pytest.approx(1, abs=1e-8)


def test_without_pycocoevalcap_meteor_is_skipped_with_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meteor_index.importlib.util, "find_spec", lambda name: None)
    report = showtell.score(["a dog"], [["a dog"]], metrics=["meteor", "rouge_l"])
    assert report.scores == {"meteor": None, "rouge_l": 1.0}
    install = 'pip install "pycocoevalcap>=1.2" "snowballstemmer<3,>=2.2"'
    assert report.skipped == {"meteor": f"METEOR needs files of pycocoevalcap, which is not installed; {install}."}
