"""Captions of a model on a server: any that speaks OpenAI's chat completions with photos, such as vLLM, llama.cpp,
LM Studio, Ollama and `showtell serve`.

    Captioner.from_pretrained("openai:http://127.0.0.1:8000/v1#MODEL")

The key comes from OPENAI_API_KEY alone. A request that gets no answer is sent again after growing pauses; then its
photo has a `NoAnswerError`, and the others go on. Without log-probabilities from the server there is no confidence.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn, Self
from urllib.parse import urlsplit

import torch
from PIL import Image

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
AT_ONCE = 8  # requests, or as many as a batch has photos
RETRIES = 4  # of a request, after 0.5 to 8 seconds or as long as the server says
SECONDS = 300.0  # that an answer may take
MAX_UNANSWERED = 16  # photos in a row after which no more are sent
_SENT_AS_IS = ("image/jpeg", "image/png", "image/webp")  # what all servers read
_MAX_BYTES = 10_000_000  # of a photo that is sent as it is
_LONGEST_SIDE = 2048  # pixels of a photo that is not

NamedPhoto = tuple[str, str]  # its name, for messages, and itself as a data: URL
Photos = Sequence[NamedPhoto]
Answered = list[Caption] | ImageError


class OpenAICaptioner(Captioner):
    """A model on a server, by openai:URL#MODEL; without #MODEL the only one that the server has.

    Raises:
        UsageError: the URL is none, or has a key in it.
        CheckpointError: nobody answers there, the key is refused, or there is no such model.
    """

    def __init__(self, name: str) -> None:
        url, _, model = name.removeprefix(SERVER).partition("#")
        parts = urlsplit(url)
        if parts.username or parts.password or parts.query:
            raise UsageError(f"A URL with a name, a password or a key in it is not taken; put the key into {KEY}.")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f'"{url}" is no URL; name a server as openai:http://127.0.0.1:8000/v1#MODEL.')
        self.url = url.rstrip("/") if parts.path.strip("/") else f"{url.rstrip('/')}/v1"
        self._key = os.environ.get(KEY) or "no key"  # local servers want none, and the client wants a text
        self._client = openai.OpenAI(api_key=self._key, base_url=self.url, max_retries=RETRIES, timeout=SECONDS)
        self.model = self._choose(model)
        self.decoding = DecodingConfig(max_length=100, prompt=PROMPT)
        self._with_logprobs = True  # until the server refuses
        self._has_told = False  # that there is no confidence
        self._unanswered = 0  # photos in a row

    def _choose(self, model: str) -> str:
        try:
            models = [one.id for one in self._client.with_options(max_retries=1, timeout=20).models.list().data or ()]
        except openai.NotFoundError:
            models = []  # a server without a list
        except (openai.APIError, ValueError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{self.url} does not answer as a server of models does ({self._reason(error)}); start the server, "
                f"check the URL (most end on /v1), and whether it wants a key, in {KEY}."
            ) from error
        if model in models or (model and not models):
            return model
        if model:
            raise CheckpointError(f'{self.url} has no model "{model}"; {errors.nearest(model, models)}.')
        if len(models) == 1:
            return models[0]
        listed = errors.summarise(models, 20) or "it does not say which it has"
        raise CheckpointError(f"Name a model of {self.url}, as {SERVER}URL#MODEL: {listed}.")

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
        return Abilities(("greedy", "sample"), settings, occlusion=())

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
        pool = ThreadPoolExecutor(min(AT_ONCE, len(photos)))
        try:
            return list(pool.map(lambda photo: self._ask(photo, settings), photos))
        finally:  # interrupted, no further one is sent
            pool.shutdown(cancel_futures=True)

    def _ask(self, photo: NamedPhoto, settings: DecodingConfig) -> Answered:
        name, content = photo
        if self._unanswered >= MAX_UNANSWERED:
            return NoAnswerError(f"{name} was not sent, because the server did not answer about others.")
        try:
            captions = [self._caption(choice) for choice in self._complete(content, settings).choices]
            if not captions:
                raise ValueError("no caption in it")
        except (openai.OpenAIError, ValueError, TypeError, AttributeError) as error:  # half an answer, or none
            status = error.status_code if isinstance(error, openai.APIStatusError) else 500
            if status < 500 and status not in (408, 409, 429):
                return ImageError(f"{name} has no caption, for the server refuses it ({self._reason(error)}).")
            self._unanswered += 1
            return NoAnswerError(f"{name} has no caption, for the server has not answered ({self._reason(error)}).")
        self._unanswered = 0
        return captions

    def _complete(self, photo: str, settings: DecodingConfig) -> Any:
        """The answer of the server, with log-probabilities if it does not refuse them."""
        content = [{"type": "text", "text": settings.prompt}] if settings.prompt else []
        messages = [{"role": "user", "content": [*content, {"type": "image_url", "image_url": {"url": photo}}]}]
        asked: dict[str, Any] = {"model": self.model, "messages": messages, "max_tokens": settings.max_length}
        asked |= {"temperature": 0}
        if settings.kind == "sample":
            asked |= {"temperature": settings.temperature, "top_p": settings.top_p, "seed": settings.seed}
            asked |= {"n": settings.num_return_sequences}
        ask = self._client.chat.completions.create
        if self._with_logprobs:
            try:
                return ask(**asked, logprobs=True)
            except (openai.BadRequestError, openai.UnprocessableEntityError):
                answer = ask(**asked)  # it raises again if that was not the reason
                self._with_logprobs = False
                return answer
        return ask(**asked)

    def _caption(self, choice: Any) -> Caption:
        text, is_finished = " ".join((choice.message.content or "").split()), choice.finish_reason != "length"
        tokens = (choice.logprobs and choice.logprobs.content) or ()
        if not tokens:
            if not self._has_told:
                errors.notify(f"{self.url} tells no log-probabilities, so captions of {self.model} have no confidence.")
            self._has_told = True
            return Caption(text, None, is_finished, ())
        words: list[Word] = []
        for one in tokens:
            if not words or one.token[:1].isspace():
                words.append(Word(one.token.strip(), one.logprob))
            else:
                words[-1] = Word(words[-1].word + one.token.rstrip(), words[-1].logprob + one.logprob)
        logprob = sum(one.logprob for one in tokens)
        pieces = tuple(Token(-1, one.token, one.logprob) for one in tokens if one.token)  # the end has no text
        return Caption(text, logprob, is_finished, tuple(words), logprob, tokens=pieces)

    def _refuse(self, *given: Any, **options: Any) -> NoReturn:
        """Refuse what no such server tells."""
        raise UsageError(
            f"A server gives captions of {self.model} and no attention, explanations or log-probabilities of other "
            "texts; open the model itself, by its folder or its name on the hub."
        )

    logprobs_encoded = explain_encoded = _refuse

    def _reason(self, error: Exception) -> str:
        """What went wrong, in few words and without the key."""
        if not isinstance(error, openai.OpenAIError):
            return "its answer is cut off, or not of this kind"
        return errors.shorten(errors.first_line(getattr(error, "message", error)).replace(self._key, "..."), 200)
