"""An engine without a model: it answers at once, or when it is told to, and remembers what it was asked."""

import asyncio
import io
from typing import Any

import torch
from PIL import Image

from showtell.captioners.contract import Abilities, About
from showtell.captions import Caption, ExplainedCaption, ExplainedWord, ModelExplanation, Word
from showtell.decoding import DecodingConfig
from showtell.images.photo import to_photo
from showtell.serving.engine import Answer, Engine, Question
from showtell.serving.settings import ServeSettings
from tests.serving.fake_captioner import FakeCaptioner

WORDS = ("a", "red", "circle")
BOXES = torch.tensor([[0.0, 0, 24, 16], [24, 0, 48, 16], [0, 16, 24, 32], [24, 16, 48, 32]])  # of `photo_bytes()`
LOGPROBS = (-0.25, -0.5, -0.125)


def photo_bytes(size: tuple[int, int] = (48, 32), kind: str = "PNG", color: str = "red") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size, color).save(stream, kind)
    return stream.getvalue()


class Served(FakeCaptioner):
    """A captioner that only says what it is."""

    about = About(name="toy model", library="tests", parameters=1, preprocessing={}, knows="knows nothing.")
    _fields = tuple(field for field in DecodingConfig.model_fields if field != "prompt")
    abilities = Abilities(("greedy", "beam", "sample"), _fields, attention="grid", saliency=("mean", "pixels"))

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        vars(self).update(changes)


class FakeEngine(Engine):
    """Answers with the same words for each photo, after reading it."""

    def __init__(self, *, error: Exception | None = None, **captioners: Served) -> None:
        super().__init__(captioners or {"toy": Served()}, ServeSettings())
        self.questions: list[Question] = []
        self.error = error
        self.go = asyncio.Event()
        self.go.set()
        self.cancelled = 0
        self.state = "new"
        self.words = WORDS

    async def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.state, self.is_ready = "started", True

    def release(self) -> None:
        """Answer, from any thread."""
        self.loop.call_soon_threadsafe(self.go.set)

    async def ask(self, question: Question) -> Answer:
        self.require_affordable(question)
        self.questions.append(question)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        to_photo(question.photo)
        words = tuple(Word(*pair) for pair in zip(self.words, LOGPROBS, strict=True))
        text, logprob = " ".join(self.words), sum(LOGPROBS) - 1
        if question.kind == "explanation":
            explained = tuple(ExplainedWord(word, 0.5, (("blue", 0.25),)) for word in self.words)
            caption = ExplainedCaption(text, explained, logprob, True, 0.5, attention=torch.full((3, 4), 0.25))
            return ModelExplanation("", (caption,), BOXES, grid=(2, 2))
        calibrated = None if self.captioners[question.captioner].calibration is None else 0.75
        best = Caption(text, logprob, True, words, logprob, calibrated)
        return [best] * question.settings.num_return_sequences

    async def close(self) -> None:
        self.state = "closed"
