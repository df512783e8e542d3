import threading
import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from showtell.errors import ImageError
from showtell.images.photo import decode_photo, find_photos, open_photo


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    stream = BytesIO()
    image.save(stream, format=format, **options)
    return stream.getvalue()


def pixels(image: Image.Image) -> np.ndarray:
    assert image.mode == "RGB"
    return np.asarray(image)


def two_by_three() -> Image.Image:
    """Six pixels that all differ: 3 wide, 2 high."""
    return Image.fromarray(np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 10)


# --- what opens, and as what ---


def test_a_png_comes_back_pixel_for_pixel(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    two_by_three().save(path)
    assert np.array_equal(pixels(open_photo(path)), pixels(two_by_three()))


# numpy's own words for what a camera meant: orientation n is stored so that this restores it
UPRIGHT = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(a, 2).transpose(1, 0, 2),
    8: np.rot90,
}


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
@pytest.mark.parametrize("orientation", UPRIGHT)
def test_exif_orientation_is_applied(orientation: int, format: str) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    opened = decode_photo(encoded(two_by_three(), format, exif=exif), "photo")
    assert np.array_equal(pixels(opened), UPRIGHT[orientation](pixels(two_by_three())))


def test_a_jpeg_that_a_phone_held_upright_is_turned() -> None:
    landscape = Image.new("RGB", (64, 32), "red")
    landscape.paste("blue", (0, 0, 32, 32))  # left half blue: above, once turned clockwise
    exif = Image.Exif()
    exif[274] = 6
    turned = decode_photo(encoded(landscape, "JPEG", exif=exif, quality=95), "photo")
    assert turned.size == (32, 64)
    assert pixels(turned)[8, 16, 2] > 200 and pixels(turned)[56, 16, 0] > 200


@pytest.mark.parametrize("exif", [b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0no TIFF header"])
def test_damaged_exif_leaves_the_photo_as_stored(exif: bytes) -> None:
    content = encoded(two_by_three(), "PNG", exif=exif)
    assert np.array_equal(pixels(decode_photo(content, "photo")), pixels(two_by_three()))


def test_transparency_is_laid_on_white() -> None:
    rgba = Image.new("RGBA", (3, 1))
    rgba.putdata([(255, 0, 0, 255), (255, 0, 0, 0), (0, 0, 0, 51)])
    opened = pixels(decode_photo(encoded(rgba, "PNG"), "photo"))
    assert opened[0].tolist() == [[255, 0, 0], [255, 255, 255], [204, 204, 204]]  # 255 * (1 - 51 / 255)


def test_a_palette_with_a_transparent_entry_is_laid_on_white() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putdata([0, 1])
    opened = pixels(decode_photo(encoded(image, "PNG", transparency=1), "photo"))
    assert opened[0].tolist() == [[10, 20, 30], [255, 255, 255]]


def test_grey_becomes_three_equal_channels() -> None:
    opened = pixels(decode_photo(encoded(Image.new("L", (1, 1), 77), "PNG"), "photo"))
    assert opened[0, 0].tolist() == [77, 77, 77]


def test_black_and_white_becomes_0_and_255() -> None:
    image = Image.new("1", (2, 1))
    image.putdata([0, 1])
    assert pixels(decode_photo(encoded(image, "PNG"), "photo"))[0, :, 0].tolist() == [0, 255]


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_sixteen_bits_of_grey_are_scaled_not_cut(format: str) -> None:
    values = np.array([[0, 257, 32768, 65535]], dtype=np.uint16)
    opened = pixels(decode_photo(encoded(Image.fromarray(values), format), "photo"))
    assert opened[0, :, 0].tolist() == [0, 1, 128, 255]  # value / 257, rounded


def test_floats_are_stretched_from_least_to_greatest() -> None:
    values = np.array([[-1.0, 0.0, 1.0, np.nan]], dtype=np.float32)
    opened = pixels(decode_photo(encoded(Image.fromarray(values), "TIFF"), "photo"))
    assert opened[0, :, 1].tolist() == [0, 128, 255, 128]  # 127.5 to even; not a number counts as 0


def test_a_flat_image_of_32_bits_is_black() -> None:
    values = np.full((2, 2), 70000, dtype=np.int32)
    assert pixels(decode_photo(encoded(Image.fromarray(values), "TIFF"), "photo")).max() == 0


def test_cmyk_becomes_rgb() -> None:
    opened = pixels(decode_photo(encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG"), "photo"))
    assert np.abs(opened[4, 4].astype(int) - [255, 0, 0]).max() < 10  # no cyan, all magenta and yellow: red


@pytest.mark.parametrize("format", ["GIF", "TIFF", "WEBP"])
def test_of_several_frames_the_first_is_taken(format: str) -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue")]
    options = {"lossless": True} if format == "WEBP" else {}
    content = encoded(frames[0], format, save_all=True, append_images=frames[1:], **options)
    assert pixels(decode_photo(content, "photo"))[8, 8].tolist() == [255, 0, 0]


def test_a_large_photo_opens_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)  # Pillow warns above 400 and refuses above 800
    assert decode_photo(encoded(Image.new("RGB", (25, 25)), "PNG"), "photo").size == (25, 25)


def test_threads_leave_the_filters_of_warnings_as_they_were() -> None:
    content, before = encoded(two_by_three(), "PNG"), list(warnings.filters)
    threads = [threading.Thread(target=lambda: [decode_photo(content, "photo") for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert warnings.filters == before


# --- what does not open, and what is said ---


def refusal(path: Path) -> str:
    with pytest.raises(ImageError) as caught:
        open_photo(path)
    return str(caught.value).replace(str(path.parent), "…")


def test_a_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.jpg") == "There is no file …/none.jpg."


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "sea.jpg").mkdir()
    assert refusal(tmp_path / "sea.jpg") == "…/sea.jpg is a folder, not an image."


def test_a_path_through_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    assert refusal(tmp_path / "a.txt" / "b.jpg") == "Cannot read …/b.jpg: Not a directory."


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    assert refusal(tmp_path / "a.jpg") == "…/a.jpg is empty; it should hold an image."


def test_a_text_file_named_jpg(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("é" * 300)  # 512 bytes end inside a character
    (tmp_path / "b.jpg").write_text("x" + "é" * 300)
    assert refusal(tmp_path / "a.jpg") == "…/a.jpg is not an image: it holds text."
    assert refusal(tmp_path / "b.jpg") == "…/b.jpg is not an image: it holds text."


def test_bytes_of_no_known_kind(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\0\1\2\3" * 100)
    assert refusal(tmp_path / "a.jpg") == (
        "…/a.jpg is not an image, or a damaged one; JPEG, PNG, GIF, TIFF, WebP, BMP and AVIF can be read."
    )


def test_a_photo_of_an_iphone(tmp_path: Path) -> None:
    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\xff" * 64)
    expected = "…/a.heic is a HEIC photo, which cannot be read; save it as JPEG or PNG."
    assert refusal(tmp_path / "a.heic") == expected


def test_a_truncated_jpeg(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    content = encoded(Image.fromarray(noise), "JPEG")
    (tmp_path / "a.jpg").write_bytes(content[: len(content) // 2])
    message = refusal(tmp_path / "a.jpg")
    assert message.startswith("…/a.jpg is damaged: it cannot be decoded (image file is truncated")


def test_a_truncated_png(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    content = encoded(Image.fromarray(noise), "PNG")
    (tmp_path / "a.png").write_bytes(content[: len(content) // 2])
    assert refusal(tmp_path / "a.png").startswith("…/a.png is damaged: it cannot be decoded (")


def test_a_decompression_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (2000, 1000)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 600_000)
    expected = "…/a.png has more pixels than are safe to open (1,200,000); save it smaller."
    assert refusal(tmp_path / "a.png") == expected


SEEDS = [
    encoded(two_by_three(), "PNG"),
    encoded(two_by_three(), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"),
    encoded(two_by_three(), "GIF"),
    encoded(two_by_three(), "TIFF", compression="tiff_lzw"),
    encoded(two_by_three(), "WEBP"),
    encoded(two_by_three(), "BMP"),
]


@settings(deadline=None)
@given(
    content=st.sampled_from(SEEDS),
    edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=8),
    kept=st.floats(0, 1),
)
@example(content=SEEDS[3], edits=[], kept=0.5)
def test_damage_is_an_image_error_or_an_image(content: bytes, edits: list, kept: float) -> None:
    damaged = bytearray(content)
    for place, value in edits:
        damaged[int(place * len(damaged))] = value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those that Pillow raises while it decodes
        try:
            assert decode_photo(bytes(damaged[: int(kept * len(damaged))]), "photo").mode == "RGB"
        except ImageError as error:
            assert str(error).startswith("photo ")


# --- which photos arguments name ---


@pytest.fixture
def album(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with photos, named by the current directory as people name them."""
    names = [
        "photo10.jpg",
        "photo2.JPG",
        "notes.txt",
        ".hidden.jpg",
        "sea/b.png",
        "sea/a.webp",
        ".trash/c.png",
    ]
    for name in [*names, "odd[1].jpg"]:
        path = tmp_path / "album" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(*arguments: str) -> list[str]:
    return [path.as_posix() for path in find_photos(arguments)]


def test_a_folder_is_searched_naturally_sorted_hidden_left_out(album: Path) -> None:
    assert found("album") == [
        "album/odd[1].jpg",
        "album/photo2.JPG",
        "album/photo10.jpg",
        "album/sea/a.webp",
        "album/sea/b.png",
    ]


def test_patterns(album: Path) -> None:
    assert found("album/photo*") == ["album/photo2.JPG", "album/photo10.jpg"]
    assert found("album/**/*.png") == ["album/sea/b.png"]
    assert found("album/*o*") == ["album/odd[1].jpg", "album/photo2.JPG", "album/photo10.jpg"]  # not notes.txt
    assert found("album/se?") == ["album/sea/a.webp", "album/sea/b.png"]  # a folder that matches is searched
    assert found(f"{album}/album/photo2.*") == [f"{album.as_posix()}/album/photo2.JPG"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(album: Path) -> None:
    assert found("album/odd[1].jpg") == ["album/odd[1].jpg"]


def test_files_are_taken_as_they_are_once_and_in_order(album: Path) -> None:
    assert found("album/sea/b.png", "album/notes.txt", "album/sea", "gone.jpg") == [
        "album/sea/b.png",
        "album/notes.txt",
        "album/sea/a.webp",
        "gone.jpg",
    ]


@pytest.mark.parametrize(
    ("argument", "opening"),
    [("empty", "The folder empty holds no image (.avif, "), ("album/*.bmp", "No image (.avif, ")],
)
def test_nothing_found_is_said(album: Path, argument: str, opening: str) -> None:
    with pytest.raises(ImageError) as caught:
        find_photos([argument])
    assert str(caught.value).startswith(opening)
    assert str(caught.value).endswith({"empty": ".webp).", "album/*.bmp": "matches album/*.bmp."}[argument])
