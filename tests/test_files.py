from pathlib import Path

import pytest

from showtell.errors import DataError
from showtell.files import cache_folder, parse_json, read_json, write_folder


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[1, 2", "x is not valid JSON: Expecting ',' delimiter at line 1, column 6."),
        ('{"a": 1, "b": {"a": 2, "a": 3}}', 'x has the key "a" twice in one object; keep one of them.'),
        ("[" * 100_000, "x cannot be read as JSON: its lists and objects are nested too deeply."),
        ("9" * 5_000, "x cannot be read as JSON: it holds a number of too many digits."),
    ],
)
def test_what_is_wrong_with_json_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_json(text, "x")
    assert str(caught.value) == sentence


def test_a_hook_sees_each_object_and_what_it_returns_stays(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('\ufeff{"a": {"n": 1}, "b": [{"n": 2}]}', encoding="utf-8")
    assert read_json(tmp_path / "a.json", lambda found: found.get("n", found)) == {"a": 1, "b": [2]}
    assert read_json(tmp_path / "a.json") == {"a": {"n": 1}, "b": [{"n": 2}]}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b" \n", "… is empty; it should hold JSON."),
        ('{"a": 1}'.encode("utf-16"), "… is not a text file in UTF-8, so it cannot be read as JSON."),
        ('{"a": "é"}'.encode("latin-1"), "… is not a text file in UTF-8, so it cannot be read as JSON."),
        (b'{"a": "\0"}', "… is not valid JSON: Invalid control character at at line 1, column 8."),
    ],
)
def test_files_that_are_no_json(tmp_path: Path, content: bytes, sentence: str) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_json(file)
    assert str(caught.value).replace(str(file), "…") == sentence


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHOWTELL_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path


def test_a_folder_that_is_found_wrong_leaves_nothing_behind(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "a").write_text("half")
        raise DataError("wrong")

    with pytest.raises(DataError, match="wrong"):
        write_folder(tmp_path / "made", fill)
    assert not list(tmp_path.iterdir())
