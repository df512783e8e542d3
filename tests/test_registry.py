"""Registries: built-in entries first, those of installed packages by entry points, and what is said of broken ones."""

from pathlib import Path

import pytest

from showtell.errors import ExtensionError
from showtell.registry import Registry


def install(folder: Path, name: str, points: dict[str, dict[str, str]], modules: dict[str, str]) -> None:
    """A package as pip leaves it in a folder of sys.path: modules, and metadata with entry points by group."""
    metadata = folder / f"{name}-1.2.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    lines = []
    for group, entries in points.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(source)


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def registry(**options) -> Registry:
    return Registry("showtell.tests", {"own": 1, "other": 2}, **options)


def test_built_in_entries_come_first_and_keep_their_order(site):
    install(site, "pack_a", {"showtell.tests": {"b": "mod_a:X", "a": "mod_a:Y"}}, {"mod_a": "X, Y = 3, 4"})
    names = registry()
    assert list(names.items()) == [("own", 1), ("other", 2), ("a", 4), ("b", 3)] and len(names) == 4


def test_nothing_is_imported_before_it_is_asked_for(site):
    install(site, "pack_b", {"showtell.tests": {"boom": "mod_b:X"}}, {"mod_b": "1 / 0"})
    names = registry()
    assert "boom" in names and names["own"] == 1
    with pytest.raises(KeyError):
        names["nothing"]


def test_a_broken_package_is_named_with_its_entry_point(site):
    (site / "mod_c.py").write_text("text = 'text'\nclass Kind: ...\n")
    (site / "mod_zero.py").write_text("1 / 0")
    mend = "; mend or uninstall the package."
    reasons = {
        "mod_zero:X": f"cannot be loaded: ZeroDivisionError: division by zero{mend}",
        "mod_c:Y": f"cannot be loaded: AttributeError: module 'mod_c' has no attribute 'Y'{mend}",
        "mod_none:X": f"cannot be loaded: ModuleNotFoundError: No module named 'mod_none'{mend}",
        "mod_c:text": "is of type str; it should be a whole number.",
        "mod_c:Kind": "is the class Kind; it should be a whole number.",
    }
    install(site, "pack_c", {"showtell.tests": {f"new{i}": value for i, value in enumerate(reasons)}}, {})
    names = registry(expects="a whole number", accepts=lambda name, entry: isinstance(entry, int))
    for number, (value, reason) in enumerate(reasons.items()):
        with pytest.raises(ExtensionError) as caught:
            names[f"new{number}"]
        start = f'The entry point new{number} = "{value}" (showtell.tests) of the package pack_c 1.2 '
        assert str(caught.value) == start + reason
    assert names["own"] == 1


def test_a_name_that_is_taken_is_a_sentence_and_all_others_work(site):
    install(site, "pack_d", {"showtell.tests": {"own": "mod_d:X", "new": "mod_d:X"}}, {"mod_d": "X = 5"})
    install(site, "pack_e", {"showtell.tests": {"new": "mod_d:X"}}, {})
    names = registry()
    with pytest.raises(ExtensionError) as caught:
        names["own"]
    assert str(caught.value) == (
        'The name "own" of showtell.tests is taken more than once, by showtell and by the package pack_d 1.2; rename '
        "the entry point of the package pack_d 1.2 or uninstall that package."
    )
    with pytest.raises(ExtensionError, match=r"by the package pack_d 1\.2 and by the package pack_e 1\.2; rename"):
        names["new"]
    assert names["other"] == 2 and len(names) == 3
