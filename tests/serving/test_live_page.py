"""The live page in a real Chromium: photos come in, are looked at, corrected and exported, over a real server."""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from showtell.captions import Caption, ExplainedCaption, ExplainedWord, ModelExplanation, Word
from showtell.datasets import read_dataset
from showtell.images.descriptions import description_of
from showtell.images.photo import to_photo
from showtell.serving.corrections import CorrectionStore
from showtell.serving.engine import Answer, Question, QueueFullError
from tests.chromium import Chromium
from tests.serving.fakes import BOXES, FakeEngine, Served
from tests.serving.servers import Running, running_server

COLOURS = {"red": 0.9, "green": 0.3, "blue": 0.6}  # of photos, and how sure the captioner is of each
STATUS = "document.querySelector('.pane header .badge').textContent"
NONE_WAITS = "![...document.querySelectorAll('.row')].some(row => /^(being|waiting)/.test(row.textContent.trim()))"
READY = "document.documentElement.dataset.ready == 'true'"

OVERFLOWING = (  # classes of what is wider than its place
    "[...document.querySelectorAll('main *')].filter(one => one.clientWidth && one.scrollWidth > one.clientWidth + 1"
    " && !['hidden', 'clip'].includes(getComputedStyle(one).overflowX)).map(one => one.className)"
)


class ColourEngine(FakeEngine):
    """Says the colour of the pixel in the middle of a photo."""

    def __init__(self) -> None:
        super().__init__(toy=Served(), other=Served())
        self.say: Callable[[str], str] = "a {} photo".format
        self.refusals = 0  # questions to send away before one is answered

    async def ask(self, question: Question) -> Answer:
        self.questions.append(question)
        if self.refusals:
            self.refusals -= 1
            raise QueueFullError("Too many photos wait.", 0.01)
        image = to_photo(question.photo).image.convert("RGB")
        pixel = image.getpixel((image.width // 2, image.height // 2))
        assert isinstance(pixel, tuple)
        colour = max(zip(pixel, COLOURS, strict=True))[1]
        text, sure = self.say(colour), COLOURS[colour]
        if question.settings.prefix is not None:
            text = f"{question.settings.prefix} thing"
        words = text.split()
        if question.kind == "explanation":
            peaks = [position % 4 for position in range(len(words) + 1)]
            explained = tuple(ExplainedWord(word, sure, (("dog", 0.2), ("", 0.1))) for word in (*words, ""))
            caption = ExplainedCaption(text, explained, -1.0, True, sure, attention=torch.eye(4)[peaks])
            return ModelExplanation("", (caption,), BOXES, (2, 2))
        best = Caption(text, -1.0, True, tuple(Word(word, -0.1) for word in words), None, calibrated_confidence=sure)
        others = [replace(best, text=f"{text} {number}") for number in range(1, question.settings.num_return_sequences)]
        return [best, *others]


@pytest.fixture
def engine() -> ColourEngine:
    return ColourEngine()


@pytest.fixture
def server(engine: ColourEngine, album: Path, tmp_path: Path) -> Iterator[Running]:
    with running_server(engine, corrections=tmp_path / "kept", photos=album) as running:
        yield running


@pytest.fixture
def page(browser: Chromium, server: Running) -> Iterator[Chromium]:
    """The page with an empty session; nothing may be asked of another server, nor complained of."""
    yield from fresh_page(browser, server)


def fresh_page(browser: Chromium, server: Running) -> Iterator[Chromium]:
    browser.call("Storage.clearDataForOrigin", origin=server.url, storageTypes="all")
    browser.resize(1280, 900)
    browser.open(f"{server.url}/")
    browser.wait_for(READY)
    yield browser
    own = ("data:", f"blob:{server.url}/", f"{server.url}/")
    assert [address for address in browser.requests if not address.startswith(own)] == []
    assert [one for one in browser.complaints if "status of 4" not in one] == []  # answers that tests ask for


def save(file: Path, colour: str, size: tuple[int, int] = (48, 32), number: int = 0) -> Path:
    """A photo of one colour; those of different numbers differ in a corner."""
    file.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", size, {"green": (0, 200, 0)}.get(colour, colour))
    image.putpixel((0, 0), (number % 256, number // 256, 0))
    image.save(file)
    return file


@pytest.fixture
def album(tmp_path: Path) -> Path:
    """A folder of three photos, one in a folder of its own."""
    folder = tmp_path / "album"
    for name, colour in (("one.png", "red"), ("=two.png", "green"), ("deeper/three.png", "blue")):
        save(folder / name, colour)
    return folder


def add(page: Chromium, *files: Path) -> None:
    page.choose_files("#files", files)
    captioned(page, len(files))


def captioned(page: Chromium, photos: int) -> None:
    """Wait until so many photos are there, and all have their captions."""
    page.wait_for(f"document.querySelector('.shown').textContent.includes('{photos} photo') && {READY} && {NONE_WAITS}")


def rows(page: Chromium) -> list[str]:
    """Captions, names and more of the list."""
    return page.ask(
        "[...document.querySelectorAll('.row')].map(row => "
        "[...row.querySelectorAll('p:first-child, .meta span')].map(one => one.textContent).join(' | '))"
    )


def click(page: Chromium, text: str) -> None:
    """Click the button with a text that can be seen."""
    page.ask(
        "(() => { for (const old of document.querySelectorAll('.to-click')) old.classList.remove('to-click');"
        " [...document.querySelectorAll('button')].find(one => one.textContent.trim() == "
        f"{json.dumps(text)} && one.offsetParent).classList.add('to-click') }})()"
    )
    page.click(".to-click")


def text(page: Chromium, selector: str) -> str:
    return page.ask(f"document.querySelector({json.dumps(selector)}).textContent")


def test_photos_are_chosen_dropped_and_pasted(page: Chromium, album: Path, tmp_path: Path):
    (album / "notes.txt").write_text("no photo")
    page.drop([album])
    captioned(page, 3)
    assert rows(page) == [  # the least sure first
        "a green photo | =two.png | 30% | probably wrong",
        "a blue photo | three.png | 60%",
        "a red photo | one.png | 90%",
    ]
    page.wait_for("document.querySelector('.announcer').textContent.endsWith('captioned.')")
    add_more = save(tmp_path / "more" / "one.png", "blue", number=1)
    page.choose_files("#files", [add_more, album / "one.png"])  # the second is there already
    captioned(page, 4)
    content = list(add_more.read_bytes())
    page.ask(  # what a browser does when a picture is pasted
        f"(() => {{ const file = new File([new Uint8Array({content}).reverse()], 'image.png', {{ type: 'image/png' }});"
        " const clipboardData = new DataTransfer(); clipboardData.items.add(file);"
        " document.body.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true })) })()"
    )
    captioned(page, 5)
    last = rows(page)[-1]
    assert re.fullmatch(r"(pasted [\d. -]+ image.png) is not an image, .* \| \1 \| failed", last), last
    assert page.ask("document.querySelector('.row .name').title") == "album/=two.png"
    assert text(page, ".shown") == "5 photos: 4 unchecked, 1 failed"


def test_a_full_server_is_asked_again_when_it_says(page: Chromium, engine: ColourEngine, album: Path):
    engine.refusals = 3
    add(page, album / "one.png", album / "=two.png")
    assert len(rows(page)) == 2
    assert [question.kind for question in engine.questions].count("captions") == 5


def test_words_are_buttons_and_a_runner_up_goes_on_from_there(page: Chromium, engine: ColourEngine, album: Path):
    add(page, album / "one.png")
    page.wait_for("document.querySelector('.words button')")
    assert page.ask("[...document.querySelectorAll('.thumbnails li')].map(one => one.hidden)") == [False] * 4
    page.click(".words button:nth-child(2)")
    assert "Looks at the upper right (peak 100%, even 25%, at row 1, column 2)." in text(page, ".details")
    shade = "[...document.querySelector('canvas.attention').getContext('2d').getImageData(0, 60, 640, 1).data]"
    line = page.ask(shade)[3::4]
    looked_at, beside = line[480], line[60]
    assert looked_at < beside
    click(page, "dog")
    page.wait_for("document.querySelector('.explained').dataset.text == 'a dog thing'")
    assert engine.questions[-1].settings.prefix == "a dog"
    page.wait_for("document.querySelector('.notice').textContent.startsWith('From “a dog” on.')")
    click(page, "Use this caption")
    assert page.ask("document.querySelector('#caption').value") == "a dog thing"
    click(page, "Back to the whole caption")
    page.wait_for("document.querySelector('.explained').dataset.text == 'a red photo'")
    assert page.ask("document.querySelector('#caption').value") == "a dog thing"  # what was chosen stays


def test_two_captioners_stand_beside_each_other_with_settings(page: Chromium, engine: ColourEngine, album: Path):
    click(page, "Settings")
    assert page.ask("document.querySelector('[data-field=prompt]').hidden")  # that this captioner does not know
    assert page.ask("document.querySelector('#set-max_length').placeholder") == "20"
    page.ask("document.querySelector('#set-beside').value = 'other'")
    page.ask("document.querySelector('#set-num_beams').value = '3'")  # how careful, of the settings that most want
    page.click("#settings summary")
    page.click("#set-num_return_sequences")
    page.type("2")
    page.click("#set-bad_words")
    page.type("a cow, cat")
    click(page, "Use from now on")
    add(page, album / "one.png")
    page.wait_for("document.querySelectorAll('.model').length == 2")
    assert page.ask("[...document.querySelectorAll('.model h3')].map(one => one.textContent)") == ["toy", "other"]
    assert text(page, ".others") == "Other captionsa red photo 190%"
    settings = [question.settings for question in engine.questions]
    assert {(one.num_beams, one.bad_words) for one in settings} == {(3, ("a cow", "cat"))}
    page.open(page.ask("location.href"))  # settings survive
    captioned(page, 1)
    assert text(page, ".models-served").startswith("toy beside other, How careful: 3, ")


def test_a_model_that_has_gone_wrong_looks_like_it(page: Chromium, engine: ColourEngine, tmp_path: Path):
    engine.say = {"red": "", "green": "a cow", "blue": "a cow"}.__getitem__
    add(page, *(save(tmp_path / f"{n}.png", list(COLOURS)[n % 3], number=n) for n in range(12)))
    assert page.ask("[...document.querySelectorAll('.banners li')].map(one => one.textContent)") == [
        "4 of 12 captions are empty: the model ends before its first word.",
        "8 of 12 photos have one and the same caption, “a cow”: the model seems to say it whatever it sees.",
    ]


def test_a_setting_that_is_refused_stops_the_queue_with_its_sentence(page: Chromium, tmp_path: Path):
    click(page, "Settings")
    page.click("#settings summary")
    page.click("#set-temperature")
    page.type("0.5")
    click(page, "Use from now on")
    files = [save(tmp_path / f"{number}.png", "red", number=number) for number in range(30)]
    page.choose_files("#files", files)
    page.wait_for("document.querySelector('.banners li')")
    assert "temperature=0.5 has no effect with search=greedy; use search=sample." in text(page, ".banners")
    page.wait_for("/[12]\\d waiting/.test(document.querySelector('.shown').textContent)")
    click(page, "Settings")
    page.ask("document.querySelector('#set-temperature').value = ''")
    click(page, "Use, and caption anew")
    captioned(page, 30)


def test_html_in_names_and_captions_is_text(page: Chromium, engine: ColourEngine, tmp_path: Path):
    engine.say = lambda colour: "<img src=x onerror=alert(1)> </script><b>bold</b>"
    add(page, save(tmp_path / "<b>bold<b>&amp;.png", "red"))
    page.wait_for("document.querySelector('.words button')")
    assert rows(page) == ["<img src=x onerror=alert(1)> </script><b>bold</b> | <b>bold<b>&amp;.png | 90%"]
    assert text(page, ".pane h2") == "<b>bold<b>&amp;.png"
    assert page.ask("document.querySelectorAll('main b:not(.details b), img[src=x]').length") == 0


def test_corrections_survive_a_reload_and_are_exported_for_training(page: Chromium, album: Path, tmp_path: Path):
    page.drop([album])
    captioned(page, 3)
    page.wait_for("document.querySelector('.position').textContent == '1 of 3'")  # the least sure, whichever came first
    page.click(".list")
    page.press("Home")
    page.press("a")  # accepts, and goes on
    is_next = "document.querySelector('.pane h2').textContent == 'album/deeper/three.png'"
    page.wait_for(f"{STATUS} == 'unchecked' && {is_next}")
    page.press("e")
    page.press("End")
    page.type(', with a "quote"')
    page.press("Enter")
    page.wait_for("document.querySelector('.shown').textContent == '3 photos: 1 unchecked, 1 accepted, 1 corrected'")
    page.press("s")  # letters are keys again
    page.wait_for("document.querySelector('.shown').textContent.includes('skipped')")
    page.open(page.ask("location.href"))
    page.wait_for("document.querySelector('.shown').textContent == '3 photos: 1 accepted, 1 corrected, 1 skipped'")
    assert rows(page)[1] == 'a blue photo, with a "quote" | three.png | corrected'
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path / "downloads"))
    click(page, "Export")
    page.ask("document.querySelector('#export a').click()")
    downloaded = wait_for_file(tmp_path / "downloads" / "corrections.csv")
    table = tmp_path / downloaded.name
    table.write_bytes(downloaded.read_bytes())
    dataset = read_dataset(table)
    assert dataset.problems == ()
    records = {record.path: (record.captions, record.split == "unchecked") for record in dataset.records}
    assert records == {
        album / "=two.png": (("a green photo",), False),
        album / "deeper" / "three.png": (('a blue photo, with a "quote"',), False),
        album / "one.png": (("a red photo",), True),
    }


def wait_for_file(file: Path) -> Path:
    for _ in range(3000):
        if file.exists() and file.stat().st_size:  # Chromium makes an empty one first
            return file
        threading.Event().wait(0.01)
    raise AssertionError(f"{file} was not written")


def test_two_tabs_do_not_overwrite_each_other(browser: Chromium, album: Path, tmp_path: Path):
    with running_server(ColourEngine(), corrections=tmp_path / "kept") as server:
        for page in fresh_page(browser, server):
            add(page, album / "one.png", album / "=two.png")
            store = CorrectionStore(tmp_path / "kept")
            photo = hashlib.sha256((album / "one.png").read_bytes()).hexdigest()
            store.change(photo, 1, caption="theirs")  # somebody else, who was faster
            page.wait_for("[...document.querySelectorAll('.row')].some(one => one.textContent.includes('one.png'))")
            page.ask("[...document.querySelectorAll('.row')].find(one => one.textContent.includes('one.png')).click()")
            page.click("#caption")
            page.ask("document.querySelector('#caption').select()")
            page.type("mine")
            page.press("Enter")
            page.wait_for("document.querySelector('.conflict dl')")
            assert text(page, ".conflict dl") == "Theirs (corrected)theirsMine (corrected)mine"
            click(page, "Keep mine")
            page.wait_for("document.querySelector('.shown').textContent.includes('1 corrected')")
            page.ask("[...document.querySelectorAll('.row')].find(one => one.textContent.includes('one.png')).click()")
            page.wait_for("document.querySelector('.words button') && !document.querySelector('.own').hidden")
            own, words = "document.querySelector('.own')", "document.querySelector('.words')"
            page.wait_for(f"{own}.textContent === 'Your caption: mine'")  # a row may have been opened before
            assert page.ask(f"{own}.getBoundingClientRect().bottom <= {words}.getBoundingClientRect().top")
            click(page, "Export")
            assert f"data.path={tmp_path / 'kept'} training.start_from=" in text(page, "#export code")
            click(page, "Close")
            captions = {row.name: row.caption for row in store.page().rows}
            assert captions == {"one.png": "mine", "=two.png": "a green photo"}


def test_from_many_photos_to_sidecars_and_another_browser(page: Chromium, server: Running, album: Path, tmp_path: Path):
    page.drop([album])
    captioned(page, 3)
    click(page, "Accept many")
    lines = "[...document.querySelectorAll('#many li')].filter(one => !one.hidden).map(one => one.textContent)"
    assert page.ask(lines) == ["a red photo90%", "a blue photo60%"]
    page.click("#least-sure")  # in its middle
    for _ in range(25):
        page.press("ArrowLeft")
    assert page.ask(lines)[2] == "a green photo30%probably wrong"
    counts = "3 of 3 unchecked photos in the list. Those that are marked are not ticked."
    assert text(page, "#many .counts").startswith(counts)
    store = CorrectionStore(tmp_path / "kept")
    red, blue = (hashlib.sha256((album / name).read_bytes()).hexdigest() for name in ("one.png", "deeper/three.png"))
    store.change(blue, 1, caption="theirs")  # somebody else, while the list is looked at
    click(page, "Accept 2 captions")
    page.wait_for("document.querySelector('.banners li')")
    assert text(page, ".banners li").startswith("1 caption accepted. 1 caption changed elsewhere in the meantime and")
    assert text(page, ".shown") == "3 photos: 1 unchecked, 1 accepted, 1 corrected"
    click(page, "Undo")
    page.wait_for("document.querySelector('.banners').textContent.startsWith('1 caption unchecked again.')")
    changed = {row.id: (row.status, row.revision) for row in store.page().rows if row.revision > 1}
    assert changed == {red: ("unchecked", 3), blue: ("corrected", 2)}
    store.change(red, 3, status="accepted")
    page.ask("dispatchEvent(new Event('focus'))")  # somebody comes back to this window
    page.wait_for("document.querySelector('.shown').textContent == '3 photos: 1 unchecked, 1 accepted, 1 corrected'")
    click(page, "Close")
    page.click(".row")
    page.press("e")
    page.press("End")
    page.type(" of two puppies")
    page.wait_for("document.querySelector('.keywords').textContent == 'Keywords: puppy, dog'")
    page.press("Enter")
    page.wait_for("document.querySelector('.shown').textContent == '3 photos: 1 accepted, 2 corrected'")
    page.ask("document.querySelector('[name=text]').focus()")
    page.type("dogs")
    page.wait_for("document.querySelectorAll('.row').length == 1")
    assert rows(page) == ["a green photo of two puppies | =two.png | corrected"]
    (album / "one.png").rename(album / "deeper" / "uno.png")  # is found by its content
    save(album / "deeper" / "three.png", "red", number=7)  # is another photo by now
    click(page, "Export")
    page.wait_for("document.querySelector('[data-action=write-sidecars]').textContent == 'Write 2 sidecars'")
    page.click(".sidecars input")  # keywords, too
    page.wait_for("!document.querySelector('[data-action=write-sidecars]').disabled")
    click(page, "Write 2 sidecars")
    page.wait_for("document.querySelector('.outcome').textContent.startsWith('2 sidecars written')")
    edited = f"{album / 'deeper' / 'three.png'} was edited after its caption was corrected; correct it again."
    assert text(page, ".sidecars .left-out") == edited
    described = {file: description_of(album / file) for file in ("=two.png", "deeper/uno.png", "deeper/three.png")}
    assert {file: there and (there.text, there.is_of_person) for file, there in described.items()} == {
        "=two.png": ("a green photo of two puppies", True),
        "deeper/uno.png": ("a red photo", True),
        "deeper/three.png": None,
    }
    assert "<rdf:li>dog</rdf:li>" in (album / "=two.png.xmp").read_text(encoding="utf-8")
    page.open("about:blank")
    page.call("Storage.clearDataForOrigin", origin=server.url, storageTypes="all")
    page.open(f"{server.url}/")  # as another browser sees it
    captioned(page, 3)
    assert rows(page) == [
        "a green photo of two puppies | =two.png | corrected",
        "theirs | three.png | corrected",
        "a red photo | one.png | 90% | accepted",
    ]
    page.wait_for("[...document.querySelectorAll('.row img')].every(one => one.naturalWidth)")


def test_without_a_folder_captions_are_shown_and_nothing_is_kept(browser: Chromium, album: Path):
    with running_server(ColourEngine()) as server:
        for page in fresh_page(browser, server):
            add(page, album / "one.png")
            page.wait_for("document.querySelector('.words button')")
            assert page.ask("[...document.querySelectorAll('.editor, [data-action=export]')].every(one => one.hidden)")
            assert "start the server with --corrections FOLDER" in text(page, "footer")
            page.open(page.ask("location.href"))
            page.wait_for(READY)
            assert rows(page) == []


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_it_fits_the_window_and_axe_finds_nothing(page: Chromium, album: Path, width: int, scheme: str):
    page.resize(width, 900, scheme)
    assert page.accessibility_problems() == []
    tall = save(album / f"{'very_' * 30}long.png", "red", (9, 140))
    add(page, album / "one.png", tall)
    for state in ("list", "photo", "settings"):
        if state == "photo":
            page.click(".row")
            page.wait_for("document.querySelector('.words button')")
            page.click(".words button")
        if state == "settings":
            page.ask("document.querySelector('[data-action=settings]').click()")
            page.ask("document.querySelector('#settings details').open = true")
        assert page.ask("document.documentElement.scrollWidth") <= width, state
        assert set(page.ask(OVERFLOWING)) <= {"word-values"}, state
        assert page.accessibility_problems() == [], state
    ground = page.ask("Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])")
    assert (ground > 128) == (scheme == "light")
