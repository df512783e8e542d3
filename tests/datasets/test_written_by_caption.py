"""What `showtell caption` writes in any form is a dataset, and a file of predictions: all of it comes back."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from showtell.captions import Caption, caption_result
from showtell.cli.caption_formats import WRITERS
from showtell.datasets import read_dataset
from showtell.errors import ImageError, escaped
from showtell.scores.facts import ImageFacts
from showtell.scores.files import ScoredImages, read_prediction_file
from showtell.sidecars import TextSidecars, XmpSidecars
from tests.datasets.makers import write_files

# Names that spreadsheets, shells and tables take for something else, in folders of trainers, splits and people.
NAMES = st.tuples(
    st.sampled_from(["", "sub/", "10_dog/", "a b/c,d/", "photos/", "ünï/"]),
    st.sampled_from(["a", "b.c", "=1+1", "@x", "'y", "-z", 'q"q', "com,ma", " s p ", "#7", "0012", "[d]", "|;", "\\s"]),
    st.sampled_from([".jpg", ".JPEG", ".png"]),
).map("".join)  # fmt: skip
TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs", "S"]), min_size=1, max_size=20),
    st.sampled_from(["a dog, running", '"the best', "=1+1", "'quoted'", "a\nb", "a\r\nb", "a\tb", "[la]", "x|;", "-"]),
).filter(lambda text: text.strip() and text.strip() not in ("[]", "()"))  # fmt: skip
PHOTOS = st.dictionaries(NAMES, TEXTS, min_size=1, max_size=5)


def unique_stems(names: list[str]) -> bool:
    """Whether each photo can have a sidecar of its own, and a name that no other differs from by spaces or case."""
    return len({Path(name.strip().casefold()).with_suffix("") for name in names}) == len(names)


def captions_in(folder: Path, path: Path) -> dict[str, str]:
    dataset = read_dataset(path)
    assert dataset.problems == ()
    return {record.path.relative_to(folder).as_posix(): record.captions[0] for record in dataset.records}


def predictions_in(folder: Path, names: list[str], path: Path) -> dict[str, str]:
    files = {name: str(folder / name) for name in names}
    return read_prediction_file(path, ScoredImages(dict.fromkeys(names, ImageFacts(("a dog",))), files=files))


@pytest.mark.parametrize("style", ["csv", "json", "jsonl", "corrections", "text"])
@given(photos=PHOTOS)
def test_files(style: str, photos: dict[str, str]) -> None:
    assume(unique_stems(list(photos)))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_files(folder, dict.fromkeys(photos, ""))
        results = [caption_result("broken.jpg", ImageError("broken.jpg cannot be read."))]
        for name, text in photos.items():
            results.append(caption_result(str(folder / name), [Caption(text, -1.0, True, ())]))
        out = folder / ("out.txt" if style == "text" else f"out.{style}" if style.startswith("json") else "out.csv")
        out.write_text("".join(WRITERS[style](results, out, None)), "utf-8", newline="")
        expected = {name: (escaped(text) if style == "text" else text).strip() for name, text in photos.items()}
        for read in (captions_in(folder, out), predictions_in(folder, list(photos), out)):
            assert {name: text.strip() for name, text in read.items()} == expected


@pytest.mark.parametrize("kind", [TextSidecars(), XmpSidecars("small", "dog.xmp")])
@settings(deadline=None, max_examples=15)
@given(photos=PHOTOS)
def test_sidecars(kind: TextSidecars | XmpSidecars, photos: dict[str, str]) -> None:
    assume(unique_stems(list(photos)))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_files(folder, dict.fromkeys(photos, ""))
        for name, text in photos.items():
            kind.write(kind.file_of(folder / name), Caption(text, -1.0, True, ()))
        expected = {name: " ".join(text.split()) for name, text in photos.items()}
        assert captions_in(folder, folder) == expected
        assert predictions_in(folder, list(photos), folder) == expected
