"""A captioner that says what it is shown, counts what it is asked, and waits where a test wants it to."""

import threading
from collections.abc import Sequence
from typing import Any, Self

import torch

from showtell.captioners import Abilities, About, Captioner
from showtell.captions import Caption, ExplainedCaption, ModelExplanation, TextLogprobs, Word
from showtell.decoding import SEARCHES, DecodingConfig
from showtell.errors import ImageError
from tests.serving.servers import PATIENCE


class Gate:
    """Where a thread waits until a test opens it."""

    def __init__(self) -> None:
        self._is_open = threading.Event()
        self._is_reached = threading.Event()
        self.open()

    def open(self) -> None:
        self._is_open.set()

    def close(self) -> None:
        self._is_open.clear()
        self._is_reached.clear()

    def wait_until_reached(self) -> None:
        assert self._is_reached.wait(PATIENCE)

    def pass_through(self) -> None:
        self._is_reached.set()
        assert self._is_open.wait(PATIENCE)


class FakeCaptioner(Captioner):
    """The caption of a photo is its bytes. Photos that begin with "broken" are no images, those with "poison" make the
    model fail for the whole batch, and those with "nan" have a caption whose probability is no number."""

    about = About(name="fake", library="tests", parameters=0, preprocessing={}, knows="knows nothing.")
    abilities = Abilities(searches=tuple(SEARCHES), settings=tuple(DecodingConfig.model_fields))
    device = torch.device("cpu")

    def __init__(self) -> None:
        self.decoding = DecodingConfig()
        self.prepared: list[bytes] = []  # photos, in the order in which they were prepared
        self.batches: list[list[bytes]] = []  # that were encoded
        self.outstanding = 0  # prepared and not encoded yet
        self.most_outstanding = 0
        self.preparing = Gate()
        self.encoding = Gate()
        self._lock = threading.Lock()

    def to(self, device: str | torch.device) -> Self:
        return self

    def prepare(self, photo: Any) -> bytes:
        with self._lock:
            self.prepared.append(photo)
        self.preparing.pass_through()
        if photo.startswith(b"broken"):
            raise ImageError(f"{photo.decode()} is no image.")
        with self._lock:
            self.outstanding += 1
            self.most_outstanding = max(self.most_outstanding, self.outstanding)
        return bytes(photo)

    def encode_prepared(self, photos: Sequence[bytes]) -> list[bytes]:
        self.encoding.pass_through()
        with self._lock:
            self.batches.append(list(photos))
            self.outstanding -= len(photos)
        if any(photo.startswith(b"poison") for photo in photos):
            raise RuntimeError("the model fell over")
        return list(photos)

    def caption_encoded(self, photos: list[bytes], settings: DecodingConfig, **_: Any) -> list[list[Caption]]:
        logprobs = [float("nan") if photo.startswith(b"nan") else -1.0 for photo in photos]
        pairs = zip(photos, logprobs, strict=True)
        return [[Caption(f"{photo!r} {settings.num_beams}", one, True, (Word("a", -1.0),))] for photo, one in pairs]

    def logprobs_encoded(
        self, photos: list[bytes], texts: Sequence[Sequence[str | Caption]], settings: DecodingConfig
    ) -> list[list[TextLogprobs]]:
        pairs = zip(photos, texts, strict=True)
        return [[TextLogprobs(f"{photo!r} {text}", (), -1.0) for text in of_photo] for photo, of_photo in pairs]

    def explain_encoded(
        self, photos: list[bytes], settings: DecodingConfig, *, saliency: str | None = None, **_: Any
    ) -> list[ModelExplanation]:
        captions = [(ExplainedCaption(str(photo), (), -1.0, True, 0.5),) for photo in photos]
        titles = [f"{photo!r} {saliency}" for photo in photos]
        return [ModelExplanation(title, caption, None) for title, caption in zip(titles, captions, strict=True)]
