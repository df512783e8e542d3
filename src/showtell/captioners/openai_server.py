"""Captions of a model on a server: any that speaks OpenAI's chat completions with photos, such as vLLM, llama.cpp,
LM Studio and Ollama.

    Captioner.from_pretrained("openai:http://127.0.0.1:8000/v1#MODEL")

The key comes from OPENAI_API_KEY alone. A request that gets no answer is sent again after growing pauses; then its
photo has a `NoAnswerError`, and the others go on. So has a photo whose answer holds no caption: nothing but thoughts, a
refusal, or no text. Without log-probabilities from the server there is no confidence.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import os
import re
import threading
from collections.abc import Coroutine, Sequence
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar
from urllib.parse import urlsplit

import torch
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from showtell import errors
from showtell.captioners.contract import Abilities, About, Captioner, Names, PhotoToCaption
from showtell.captions import Caption, Token, Word
from showtell.decoding_config import DecodingConfig
from showtell.errors import CheckpointError, ImageError, NoAnswerError, UsageError
from showtell.features.store import StoredImage
from showtell.hub import SERVER
from showtell.images.photo import IN_MEMORY, is_upright, photo_media_type, photo_suffix, read_photo, to_photo

try:
    import openai
except ImportError as error:
    raise errors.MissingDependencyError(
        f"openai:URL#MODEL needs OpenAI's client, which is not installed: {errors.install_command('openai')}."
    ) from error

KEY = "OPENAI_API_KEY"
PROMPT = "Describe this photo in one sentence."
AT_ONCE = 8  # requests
_CUT_OFF = ("content_filter", "error")  # why an answer ended where what there is of it is no caption
RETRIES = 4  # of a request, after 0.5 to 8 seconds or as long as the server says
SECONDS = 300.0  # that the answer about a photo may take, retries included
SECONDS_TO_OPEN = 20.0  # that the list of models may take
MAX_UNANSWERED = 16  # photos in a row after which no more are sent
_SENT_AS_IS = ("image/jpeg", "image/png", "image/webp")  # what all servers read
_MAX_BYTES = 10_000_000  # of a photo that is sent as it is
_LONGEST_SIDE = 2048  # pixels of a photo that is not

# Where thoughts begin and end in the text of an answer: <think> of most models, [THINK] of Mistral, ◁think▷ of Kimi.
_TAG = r"(?:[a-z]+:)?(?:think(?:ing)?|thought|reasoning)"
_BEGIN, _END = (re.compile(rf"[<◁\[]{slash}{_TAG}[>▷\]]", re.IGNORECASE) for slash in ("", "/"))
_SPECIAL = re.compile(r"<[|｜][^<>]{1,40}[|｜]>|</?(?:s|answer)>")  # tokens that servers leave in
_REFUSAL = re.compile(
    r"(?:(?:unfortunately|sorry|as an AI\b.{0,40}?),? (?:but )?)?I(?:(?:['’]m| am) (?:sorry|unable to)\b"
    r"| apologi[sz]e\b| (?:can ?not|can['’]t|won['’]t|am not able to) (?:do|assist|help|comply|provide|fulfil|describe"
    r"|identify|process|view|see|generate|create)\b)",
    re.IGNORECASE,
)

NamedPhoto = tuple[str, str]  # its name, for messages, and itself as a data: URL
Photos = Sequence[NamedPhoto]
ResultT = TypeVar("ResultT")


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None
    logprobs: Any = None


class _Answer(BaseModel):
    choices: list[_Choice] = Field(min_length=1)


class _Logprob(BaseModel):
    model_config = ConfigDict(strict=True)

    token: str
    logprob: float = Field(le=1e-3, allow_inf_nan=False)  # of a certain token it may be rounded to more than 0


class _Logprobs(BaseModel):
    content: list[_Logprob]


class _Model(BaseModel):
    id: str


class _Models(BaseModel):
    data: list[_Model]


@functools.cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """A loop in a thread of its own, for all such captioners: what runs there can be ended at any time."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="requests", daemon=True).start()
    return loop


def _wait_for(*coroutines: Coroutine[Any, Any, ResultT]) -> list[ResultT]:
    """What coroutines return; if the wait is interrupted they are cancelled."""

    async def gather() -> list[ResultT]:
        return await asyncio.gather(*coroutines)

    future = asyncio.run_coroutine_threadsafe(gather(), _event_loop())
    try:
        return future.result()
    finally:
        future.cancel()


class OpenAICaptioner(Captioner):
    """A model on a server, by openai:URL#MODEL; without #MODEL the only one that the server has."""

    def __init__(self, name: str) -> None:
        given, _, model = name.removeprefix(SERVER).partition("#")
        self._key = os.environ.get(KEY, "").strip() or "no-key"  # local servers want none, and the client wants a text
        if not re.fullmatch("[!-~]+", self._key):
            raise UsageError(f"{KEY} holds a space, a line end or a letter that no key has; set it to the key alone.")
        try:
            parts = urlsplit(given)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
                raise ValueError
            self.url = given.rstrip("/") if parts.path.strip("/") else f"{given.rstrip('/')}/v1"
            http = openai.DefaultAsyncHttpxClient(follow_redirects=False)
            self._client = openai.AsyncOpenAI(
                api_key=self._key, base_url=self.url, max_retries=RETRIES, timeout=SECONDS, http_client=http
            )
        except Exception as error:  # whatever the client raises at a host of letters that no name has
            sentence = f'"{given}" is no URL; name a server as openai:http://127.0.0.1:8000/v1#MODEL.'
            raise UsageError(sentence) from error
        if parts.username or parts.password or parts.query:
            raise UsageError(f"A URL with a name, a password or a key in it is not taken; put the key into {KEY}.")
        self.model = self._choose(model)
        self.decoding = DecodingConfig(max_length=100, prompt=PROMPT)
        self._with_logprobs = True  # until the server refuses
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._has_told = False  # that there is no confidence
        self._unanswered = 0  # photos in a row

    def _choose(self, model: str) -> str:
        try:
            (models,) = _wait_for(self._models())
        except (openai.APIError, ValueError, TimeoutError) as error:
            raise CheckpointError(
                f"{self.url} does not answer as a server of models does ({self._reason(error, SECONDS_TO_OPEN)}); "
                f"start the server, check the URL (most end on /v1), and whether it wants a key, in {KEY}."
            ) from error
        if model in models or (model and not models):
            return model
        if model:
            raise CheckpointError(f'{self.url} has no model "{model}"; {errors.nearest(model, models)}.')
        if len(models) == 1:
            return models[0]
        listed = errors.summarise(models, 20) or "it does not say which it has"
        raise CheckpointError(f"Name a model of {self.url}, as {SERVER}URL#MODEL: {listed}.")

    async def _models(self) -> list[str]:
        client = self._client.with_options(max_retries=1)
        async with asyncio.timeout(SECONDS_TO_OPEN):
            try:
                answer = await client.models.with_raw_response.list()
            except openai.NotFoundError:
                return []  # a server without a list
        return [model.id for model in _Models.model_validate_json(answer.content).data]

    @property
    def about(self) -> About:
        """Its name and its server; what it is made of is not known."""
        made_with = {"server": self.url, "model": self.model}
        library = f"a server, by openai {openai.__version__}"
        knows = f"is a model on {self.url}: its maker says what it learned from."
        return About(self.model, library, 0, {}, knows, f"{SERVER}{self.url}#{self.model}", fingerprints=made_with)

    @property
    def abilities(self) -> Abilities:
        """Greedy search, as far as the server has it, and sampling."""
        settings = ("search", "num_return_sequences", "max_length", "temperature", "top_p", "seed", "prompt")
        return Abilities(("greedy", "sample"), settings, saliency=())

    @property
    def device(self) -> torch.device:
        """Nothing is computed here."""
        return torch.device("cpu")

    def to(self, device: str | torch.device) -> Self:
        """The same: the server has its own."""
        return self

    def prepare(self, photo: PhotoToCaption) -> NamedPhoto:
        """A photo as a data: URL: its own bytes if every server reads them, else an upright JPEG."""
        if isinstance(photo, StoredImage):
            raise UsageError(f"{self.model} looks at photos; leave --features out.")
        name = str(photo) if isinstance(photo, str | Path) else IN_MEMORY
        content = read_photo(Path(photo)) if isinstance(photo, str | Path) else photo
        kind = ""
        if isinstance(content, bytes) and len(content) <= _MAX_BYTES and is_upright(content, name):
            kind = photo_media_type(photo_suffix(content, name))
        if not isinstance(content, bytes) or kind not in _SENT_AS_IS:
            image, kind, stream = to_photo(photo).image, "image/jpeg", BytesIO()
            image.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE), Image.Resampling.LANCZOS)
            image.save(stream, "JPEG", quality=95)
            content = stream.getvalue()
        return name, f"data:{kind};base64,{base64.b64encode(content).decode()}"

    def encode_prepared(self, photos: Photos) -> Photos:
        """The photos themselves."""
        return photos

    def caption_encoded(
        self, photos: Photos, settings: DecodingConfig, *, image_ids: Names = None, attention: bool = False
    ) -> list[Any]:
        """The captions of each photo, or why it has none; some are asked for at a time."""
        if attention:
            self._refuse()
        if self._unanswered >= MAX_UNANSWERED:
            raise CheckpointError(
                f"{self.url} has not answered about {self._unanswered} photos in a row; see to the server, and the "
                "same command resumes."
            )
        return _wait_for(*(self._ask(photo, settings) for photo in photos))

    async def _ask(self, photo: NamedPhoto, settings: DecodingConfig) -> list[Caption] | ImageError:
        name, content = photo
        async with self._turns:
            if self._unanswered >= MAX_UNANSWERED:
                return NoAnswerError(f"{name} was not sent, because the server did not answer about others.")
            try:
                async with asyncio.timeout(SECONDS):
                    answer = _Answer.model_validate_json(await self._complete(content, settings))
            except (openai.APIError, ValueError, TimeoutError) as error:  # half an answer, or none
                status = error.status_code if isinstance(error, openai.APIStatusError) else 500
                reason = self._reason(error, SECONDS)
                if 400 <= status < 500 and status not in (408, 409, 429):
                    return ImageError(f"{name} has no caption, for the server refuses it ({reason}).")
                self._unanswered += 1
                return NoAnswerError(f"{name} has no caption, for the server has not answered ({reason}).")
        self._unanswered = 0
        choices = answer.choices[: settings.num_return_sequences]
        captions = [caption for caption in map(self._caption, choices) if isinstance(caption, Caption)]
        return captions or NoAnswerError(f"{name} has no caption, for the server gave none: {_why_none(choices[0])}.")

    async def _complete(self, photo: str, settings: DecodingConfig) -> bytes:
        """The answer of the server, with log-probabilities if it does not refuse them."""
        content = [{"type": "text", "text": settings.prompt}] if settings.prompt else []
        messages = [{"role": "user", "content": [*content, {"type": "image_url", "image_url": {"url": photo}}]}]
        asked: dict[str, Any] = {"model": self.model, "messages": messages, "max_tokens": settings.max_length}
        asked["temperature"] = 0
        if settings.kind == "sample":
            asked |= {"temperature": settings.temperature, "top_p": settings.top_p, "seed": settings.seed}
            asked["n"] = settings.num_return_sequences
        ask: Any = self._client.chat.completions.with_raw_response.create
        if self._with_logprobs:
            try:
                return bytes((await ask(**asked, logprobs=True)).content)
            except (openai.BadRequestError, openai.UnprocessableEntityError):
                answer = await ask(**asked)  # it raises again if that was not the reason
                self._with_logprobs = False
                return bytes(answer.content)
        return bytes((await ask(**asked)).content)

    def _caption(self, choice: _Choice) -> Caption | None:
        """The caption of a choice; None if it holds none."""
        text = caption_text(choice.message.content or "")
        if not text or choice.message.refusal or _REFUSAL.match(text) or choice.finish_reason in _CUT_OFF:
            return None
        is_finished = choice.finish_reason != "length"
        tokens = _tokens_of(text, choice)
        if not tokens:
            if not self._has_told:
                reason = f"{self.url} tells no usable log-probabilities"
                errors.notify(f"{reason}, so captions of {self.model} have no confidence.")
            self._has_told = True
            return Caption(text, None, is_finished, ())
        words: list[Word] = []
        for token in tokens:
            if not words or token.token[:1].isspace():
                words.append(Word(token.token.strip(), token.logprob))
            else:
                words[-1] = Word(words[-1].word + token.token.rstrip(), words[-1].logprob + token.logprob)
        logprob = sum(token.logprob for token in tokens)
        pieces = tuple(token for token in tokens if token.token)  # the end has no text
        return Caption(text, logprob, is_finished, tuple(words), logprob, tokens=pieces)

    def _refuse(self, *given: Any, **options: Any) -> NoReturn:
        """Refuse what no such server tells."""
        raise UsageError(
            f"A server gives captions of {self.model} and no attention, explanations or log-probabilities of other "
            "texts; open the model itself, by its folder or its name on the hub."
        )

    logprobs_encoded = explain_encoded = _refuse

    def _reason(self, error: Exception, seconds: float) -> str:
        """What went wrong, in few words and without the key."""
        if isinstance(error, TimeoutError | openai.APITimeoutError):
            return f"it took more than {seconds:g} seconds"
        if not isinstance(error, openai.APIError):
            return "its answer is cut off, or not of this kind"
        if isinstance(error, openai.APIStatusError) and 300 <= error.status_code < 400:
            return "it redirects to another address, and nothing is sent there"
        cause = error.__cause__ if type(error) is openai.APIConnectionError else None
        message = error.message if cause is None else f"{error.message.rstrip('.')}: {errors.first_line(cause)}"
        return errors.shorten(errors.first_line(message).replace(self._key, "..."), 200)


def caption_text(answer: str) -> str:
    """The caption in an answer, in one line: what a model says beside its thoughts; "" if there is nothing."""
    behind = _END.split(answer)[-1]  # where the prompt of the model began the thoughts, there is no beginning
    caption = _SPECIAL.sub(" ", _BEGIN.split(behind)[0])
    has_words = any(char.isalnum() or ord(char) > 0xFFFF for char in caption)  # or pictures
    return " ".join(caption.split()) if has_words else ""


def _why_none(choice: _Choice) -> str:
    """Why a choice holds no caption."""
    message, text = choice.message, caption_text(choice.message.content or "")
    if refusal := message.refusal or text:
        return f'it refuses, "{errors.shorten(errors.first_line(refusal), 100)}"'
    has_thoughts = _BEGIN.search(message.content or "") or message.reasoning_content or message.reasoning
    what = "thoughts alone" if has_thoughts else "no text"
    if choice.finish_reason == "length":
        return f"{what} up to its last token; raise max_length"
    return f"{what}, as it ended by {choice.finish_reason or 'itself'}"


def _tokens_of(text: str, choice: _Choice) -> list[Token]:
    """The tokens of a caption and of its end; none if the server does not tell usable log-probabilities."""
    try:
        told = _Logprobs.model_validate(choice.logprobs).content
    except ValidationError:
        return []
    tokens = [Token(-1, one.token, min(0.0, one.logprob)) for one in told]
    begin = "".join(token.token for token in tokens).rfind(text)
    if begin < 0:  # of bytes that are no letters yet, or of other spaces; thoughts would count as well
        message = choice.message
        is_all = " ".join(str(message.content).split()) == text
        return tokens if is_all and not (message.reasoning_content or message.reasoning) else []
    ends = accumulate(len(token.token) for token in tokens)
    return tokens[next(index for index, end in enumerate(ends) if end > begin) :]
