"""What stands between the routes and the captioners: a question about one photo goes in, its answer comes out.

    answer = await engine.ask(Question("captions", "scenes", content, settings))

`LocalEngine` (`batcher.py`) answers with captioners of this process, `RayEngine` (`ray_engine.py`) with replicas in
others; routes know only what is here.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from showtell.captioners.contract import Abilities, About, check_abilities
from showtell.captions import Caption, ModelExplanation, TextLogprobs
from showtell.decoding_config import DecodingConfig
from showtell.errors import ShowtellError

if TYPE_CHECKING:
    from showtell.serving.metrics import Metrics

Kind = Literal["captions", "logprobs", "explanation"]
Answer = list[Caption] | list[TextLogprobs] | ModelExplanation


@dataclass(frozen=True)
class Question:
    """What is asked about one photo. Questions that are equal but for photo and texts can share a batch."""

    kind: Kind
    captioner: str  # one of the names of `Engine.captioners`
    photo: bytes  # an image file, of at most `ServeSettings.max_body` bytes
    settings: DecodingConfig  # that `ServedCaptioner.settings` made
    texts: tuple[str, ...] = ()  # of "logprobs"
    occlusion: str | None = None  # method, of "explanation"
    attention: bool = False  # keep the attention of the words, of "captions"
    timeout: float | None = None  # seconds until nobody waits for the answer any more; None: the engine's own


@dataclass(frozen=True)
class ServedCaptioner:
    """What is known of a captioner without asking its process."""

    name: str  # in URLs and on the page: the name of its folder, numbered if two are equal
    about: About
    abilities: Abilities
    decoding: DecodingConfig  # default settings
    is_calibrated: bool = False

    def settings(self, **given: Any) -> DecodingConfig:
        """Its default settings with those that a person gives, as the command line takes them.

        What only the captioner itself can judge, such as a word that it does not know, is refused by `Engine.ask`.

        Raises:
            UsageError: an unknown name, a value out of range, or a setting that the captioner cannot honour.
        """
        settings = self.decoding.changed(**self.decoding.with_implied_search(given))
        check_abilities(self.about.name, self.abilities, settings)
        return settings


class QueueFullError(ShowtellError):
    """As many questions wait as may wait; `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TooLateError(ShowtellError):
    """The answer was not there in time and will not be computed."""


class ClosingError(ShowtellError):
    """The server is ending and takes no new questions."""


class LostError(ShowtellError):
    """The processes that were to answer died, one after another."""


class Engine(abc.ABC):
    """Answers questions. Its methods are called on the thread of the event loop."""

    metrics: Metrics | None = None  # what it measures of itself, if it does

    @property
    @abc.abstractmethod
    def captioners(self) -> Mapping[str, ServedCaptioner]:
        """Those that it has, by name; the first is the default."""

    @abc.abstractmethod
    async def start(self) -> None:
        """Get ready to answer: returns once each captioner has answered a question of its own."""

    @abc.abstractmethod
    async def ask(self, question: Question) -> Answer:
        """The answer, equal to what the captioner says of this photo alone.

        If the caller is cancelled and the question is still waiting, it is never computed.

        Raises:
            ImageError: the photo cannot be read; the questions beside it are not touched.
            UsageError: the captioner cannot honour a setting.
            QueueFullError: too many are waiting.
            TooLateError: the time-out passed.
            ClosingError: `close` was called.
            LostError: whoever was asked died.
        """

    def refusal(self) -> ShowtellError | None:
        """Why no question would be taken now, whatever it asked; None: one may be."""
        return None

    @abc.abstractmethod
    def status(self) -> dict[str, Any]:
        """How it is: {"ready": bool, "waiting": int, "running": int}, and what the engine adds."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Take no new questions, answer those that wait, and free threads and processes."""
