"""The tokenizer against the reference: a table of its answers, two real data sets, and the jar itself."""

import csv
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from showtell.errors import CheckpointError, UsageError
from showtell.text import tokenizer
from showtell.text.tokenizer import PUNCTUATION, tokenize
from showtell.text.vocabulary import SPECIAL, Vocabulary

# Answers of the reference: PTBTokenizer of pycocoevalcap 1.2 (Stanford CoreNLP 3.4.1), Java 17, 2026-11-20, each
# caption followed by an empty line. `test_captions_and_lines_as_the_jar_has_them` makes them again.
TABLE = {
    # what is dropped, and what is not
    "A man, a plan: Panama!": "a man a plan panama",
    "wait... what -- now; yes - no.": "wait what now yes no",
    "really?! yes!!! (no) [a] {b}": "really ?! yes !!! -lrb- no -rrb- -lsb- a -rsb- -lcb- b -rcb-",
    "a '\"`` quoted '' word\" ’ “ « »": "a quoted word",
    "a ‘b’” c": "a b ''' c",
    "-- --- ----- a": "----- a",
    # apostrophes
    "The boy's dogs' dog can't, won't; I'll, they've 'd": "the boy 's dogs dog ca n't wo n't i 'll they 've 'd",
    "don’t it’s dog’sa don`t": "do n't it 's dog 'sa don`t".replace("dog 'sa don`t", "dog 's a do n`t"),
    "o'clock O'Brien Hawai'i ma'am y'all rock'n'roll 'em": "o'clock o'brien hawai'i ma'am y' all rock 'n' roll 'em",
    "'tis 'twas the '90s '07 model's nothin' somethin'": "'t is 't was the '90s '07 model 's nothin somethin'",
    # compounds
    "cannot gonna gotta wanna lemme gimme gonna-be": "can not gon na got ta wan na lem me gim me gonna-be",
    "gonna've gonna 've": "gonna 've gon na 've",
    # full stops
    "at 5 p.m. on Main St. in the U.S. with Mr. K. and Dr. No.": (
        "at 5 p.m. on main st. in the u.s. with mr. k. and dr. no"
    ),
    "plan B. The end. Plan B. then": "plan b the end plan b. then",
    "approx. 5 ft. or no. 5, no. six approx., see": "approx 5 ft. or no. 5 no six approx. see",
    "a dog.A cat Ill. ill. Ph.D. Co.x": "a dog.a cat ill. ill ph.d. co. x",
    # numbers
    "1,000.50 of 12:30pm 1/2 2 1/2 +5 -5 5% 1st #1 1980's": (
        "1,000.50 of 12:30 pm 1/2 2\xa01/2 +5 -5 5 % 1st # 1 1980 's"
    ),
    "call (650) 723-0293 or 650 723 0293": "call -lrb-650-rrb-\xa0723-0293 or 650\xa0723\xa00293",
    # signs and markup
    "£5 €5 5¢ ½ US$5 R&B rock&roll AT&amp;T C++ c# f#": "# 5 $ 5 5 cents 1/2 us$ 5 r&b rock & roll at&t c++ c# f#",
    '<b>x</b> <a href="y">me@x.com http://a.b/c www.a.com/bc 1.jpg': (
        '<b> x </b> <a\xa0href="y"> me@x.com http://a.b/c www.a.com/bc 1.jpg'
    ),
    ":) :-( ;D ^_^ <3 and/or w/ mother-in-law #tag @user a_b": (
        ":-rrb- :--lrb- ;d ^_^ < 3 and/or w / mother-in-law #tag @user a_b"
    ),
    # characters
    "dog 🐶 Ⅳ \x01 soft\xadhyphen zero\u200bwidth ÉCOLE Straße": "dog softhyphen zero width école straße",
    "５ 東京 e\u0301a caf&eacute;": "５ 東京 e\u0301a caf&eacute;",
}


def test_table() -> None:
    assert {caption: " ".join(tokenize(caption)) for caption in TABLE} == TABLE


@pytest.mark.shared
@pytest.mark.parametrize("name", ["flickr8k", "odd_inputs"])
def test_all_captions_of_the_shared_cases(shared_data: Path, name: str) -> None:
    given_text = json.loads((shared_data / "metrics" / f"case_{name}.json").read_text())
    expected = json.loads((shared_data / "metrics" / f"tokenized_{name}.json").read_text())
    for image, text in given_text["predictions"].items():
        assert " ".join(tokenize(text)) == expected["predictions"][image]
        for reference, words in zip(given_text["references"][image], expected["references"][image], strict=True):
            assert " ".join(tokenize(reference)) == words


def reference(captions: list[str], lines: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """What the jar makes of captions, each before an empty line and a word that nothing hangs on, and of lines."""
    if shutil.which("java") is None:
        pytest.skip("no Java on this machine: the tokenizer is not compared with the reference's jar")
    package = pytest.importorskip("pycocoevalcap.tokenizer.ptbtokenizer", reason="pycocoevalcap is not installed")
    apart = {number: [{"caption": text}, {"caption": ""}, {"caption": "z"}] for number, text in enumerate(captions)}
    tokenized = package.PTBTokenizer().tokenize(apart | {"lines": [{"caption": line} for line in lines]})
    return [tokenized[number][0] for number in range(len(captions))], tokenized.get("lines", [])


@pytest.mark.shared
def test_every_flickr8k_caption_as_the_jar_has_it(shared_data: Path) -> None:
    with (shared_data / "flickr8k" / "captions.txt").open(encoding="utf-8", newline="") as stream:
        captions = [row[1] for row in csv.reader(stream) if row]
    assert len(captions) == 40_455
    assert [" ".join(tokenize(text)) for text in captions] == reference(captions)[0]


def tokenize_lines(captions: Sequence[str]) -> list[list[str]]:
    """The words of captions that are the lines of one file, as the reference reads them."""
    words, following = [], ""
    for caption in reversed(captions):
        words.append(tokenize(caption, following))
        following = caption if caption.strip() else f"\n{following}"
    return words[::-1]


def test_captions_and_lines_as_the_jar_has_them() -> None:
    """The table, nasty captions, and lines whose ends hang together: initials, abbreviations, numbers, tags."""
    captions = list(nasty_captions(random.Random(0), 10_000))
    lines = list(hanging_lines(random.Random(0), 12_000))
    theirs, of_lines = reference([*TABLE, *captions], lines)  # at once: Java takes long to start
    assert theirs[: len(TABLE)] == list(TABLE.values())
    pairs = zip(captions, theirs[len(TABLE) :], strict=True)
    differ = [(text, words) for text, words in pairs if " ".join(tokenize(text)) != words]
    assert not differ, differ[:5]
    ours = map(" ".join, tokenize_lines(lines))
    lines_differ = [one for one in zip(pairwise([*lines, ""]), ours, of_lines, strict=True) if one[1] != one[2]]
    assert not lines_differ, lines_differ[:5]
    # the cases are there: line by line many are other words
    assert sum(" ".join(tokenize(line)) != words for line, words in zip(lines, of_lines, strict=True)) > 400


BEGINNINGS = [
    "A", "An", "The", "the", "a", "THE", "Two", "There", "Once", "once", "You", "Mr.", "MR.", "It's", "A.", "A,",
    "3", "3 dogs", "3/4", "12", "/2", "0293 2", "%", "no. 3", "K.", "K", "'s", "-A", ") x", ". .", '"A', "'A", " A",
    "<b>", "<b> x", "<a href='x'> y", "<!-- c --> d", "\tThe", "", " ",
]  # fmt: skip
ENDINGS = [
    "K.", "k.", "B. ", "D.C.", "U.S.", "no.", "No.", "fig.", "pp.", "op.", "prop.", "art.", "Ca.", "Dr. No.", "vs.",
    "st.", "St.", "ave.", "approx.", "Mr.", "Tenn.", "Ill.", "co.", "Ph.D.", "a.m.", "Ave/CTH D.", "AT&T.", "C++.",
    "22 3/4 st.", "3/4", "22", "12.", "1.", "723 0293", "'07", "'n", "x", "dog.", "K", "K .", "K..", "K...", ". .",
    "(K.)", '"K."', "K.'", "-K.", "a-K.", "é.", "É.", "wo", "#", "US$", ":)", "<b", "<", "&", "@x", " K.\t", "K.\xa0",
]  # fmt: skip


def hanging_lines(rng: random.Random, count: int) -> Iterator[str]:
    """Short captions of what a rule that looks past the end of a line may begin or end with; some are empty."""
    middle = ["dog", "on", "a", "sign", "the", "runs", "K.", "no. 3", "22 3/4", "st."]
    for _ in range(count):
        parts = [rng.choice(BEGINNINGS), *rng.choices(middle, k=rng.randint(0, 3)), rng.choice(ENDINGS)]
        yield " ".join(parts) if rng.random() < 0.9 else rng.choice(BEGINNINGS)


def test_what_follows_decides_on_a_full_stop() -> None:
    # what the reference makes of two lines, 2026-11-22
    assert tokenize("a sign that reads K.")[-1] == "k."
    assert tokenize("a sign that reads K.", "A dog")[-1] == "k"
    assert tokenize("a sign that reads K.", "\n\nThe dog")[-1] == "k"
    assert tokenize("a sign that reads K.", "two dogs")[-1] == "k."
    assert tokenize("a sign in the U.S.", "A dog")[-1] == "u.s."
    assert tokenize("a sign on 8th st.", "A dog")[-1] == "st."
    assert tokenize("page no.", "3 dogs")[-1] == "no."
    assert tokenize("page no.", "A dog")[-1] == "no"


def nasty_captions(rng: random.Random, count: int) -> Iterator[str]:
    """Words, abbreviations, numbers and signs in any order, with and without spaces between them."""
    units = [unit for caption in TABLE for unit in caption.split() if unit.isascii() or len(unit) > 1]
    units = [unit for unit in units if "\xad" not in unit]
    letters = "abnstNSTKO013.,-'/& "
    for _ in range(count):
        picked = [
            rng.choice(units) if rng.random() < 0.6 else "".join(rng.choices(letters, k=rng.randint(1, 4)))
            for _ in range(rng.randint(1, 6))
        ]
        yield "".join(unit + rng.choice(["", " ", " "]) for unit in picked)


@given(st.text())
def test_no_text_raises_and_no_word_is_empty_spaced_or_punctuation(text: str) -> None:
    assert all(word and " " not in word and "\n" not in word and word not in PUNCTUATION for word in tokenize(text))


# Pieces of addresses, files, tags, initials and signs: what the rules that look far ahead are made of.
PIECES = [
    "a", "b", "A", "1", "23", ".", "..", ",", "-", "_", "@", "%", "'", "/", "<", ">", "!", "?", "(", ")", ":",
    ";", "&", "&amp;", "&lt;", "&gt;", "&apos;", "www.", "http://", ".com", ".org", ".jpg", ".c", "com",
    "n't", "é", "=", "<a", "<!a", "</a>", '"', "$", "+", "#", "\\", "*", "co.", "Mr.", "1/2", "~", '="x"',
    "b='y'", "a.b.", "-a.b.", "x-", "{", "}", "[", "|",
]  # fmt: skip


@settings(max_examples=100)
@given(pieces=st.lists(st.sampled_from([*PIECES, " ", "\n", "a. ", "The ", "\xa0", "\u2003"]), max_size=14))
def test_greedy_rules_change_no_token(monkeypatch: pytest.MonkeyPatch, pieces: list[str]) -> None:
    """The plain form tries every rule at every character and takes the longest of all its matches."""
    text = "".join(pieces)
    words = tokenizer._words(text)
    plain = {
        start: [rule._replace(pattern=partial(regex.compile, rule.pattern().pattern, regex.POSIX)) for rule in rules]
        for start, rules in tokenizer._BY_START.items()
    }
    monkeypatch.setattr(tokenizer, "_BY_START", plain)
    assert tokenizer._words(text) == words


CAPTIONS = [["a", "dog", "runs"], ["a", "dog", "sits"], ["a", "cat", "sits"], ["the", "dog"]]


def test_words_are_ordered_by_count_and_then_by_alphabet():
    vocabulary = Vocabulary.build(CAPTIONS)
    assert vocabulary.words == (*SPECIAL, "a", "dog", "sits", "cat", "runs", "the")
    assert len(vocabulary) == 10
    with pytest.raises(UsageError, match='The vocabulary holds "a" twice'):
        Vocabulary(["a", "b", "a"])


def test_rare_words_and_words_beyond_the_limit_are_unknown():
    assert Vocabulary.build(CAPTIONS, min_count=2).words[4:] == ("a", "dog", "sits")
    assert Vocabulary.build(CAPTIONS, max_size=2).words[4:] == ("a", "dog")
    assert Vocabulary.build([["<end>", "a"]]).words[4:] == ("a",)  # no word that looks special
    few = Vocabulary.build(CAPTIONS, min_count=2)
    assert few.encode(["a", "cat", "sits"]) == [few.begin, 4, few.unknown, 6, few.end]
    assert few.encode(["a", "dog", "runs"], max_length=2) == [1, 4, 5, 2]  # cut, but with its end
    assert few.unknown_rate(CAPTIONS) == pytest.approx(3 / 11)
    assert few.unknown_rate([]) == 0


@given(st.lists(st.sampled_from(["a", "dog", "sits", "cat", "runs", "the"])))
def test_decoding_undoes_encoding(words):
    vocabulary = Vocabulary.build(CAPTIONS)
    assert vocabulary.decode([*vocabulary.encode(words), vocabulary.pad, 5]) == words


def test_the_fingerprint_changes_with_words_and_order_and_is_checked():
    one, other = Vocabulary(["a", "b"]), Vocabulary(["b", "a"])
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == Vocabulary(["a", "b"]).fingerprint
    content = one.to_json()
    assert Vocabulary.from_json(content, "config.json").words == one.words
    content["words"] = ["a", "c"]
    with pytest.raises(CheckpointError, match=r"The vocabulary in config.json has fingerprint .* words were changed"):
        Vocabulary.from_json(content, "config.json")
