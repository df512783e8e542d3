"""Models of transformers that learned scores compare with: CLIP, and encoders of texts."""

from __future__ import annotations

import hashlib
import html
import importlib.util
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import normalize
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Normalize, Resize, ToTensor

from showtell import errors
from showtell.hub import LOCAL, missing_files, quiet, read_model_settings, repository_folder
from showtell.images.loading import prepare_batches
from showtell.images.photo import open_photo
from showtell.progress import counting

Rows = npt.NDArray[np.float32]
PROMPT = "A photo depicts "  # before each caption, of CLIPScore and of PAC-S
# What OpenAI's tokenizer undoes by ftfy.
_STRAIGHT = str.maketrans({
    "‘": "'", "’": "'", "‚": "'", "‛": "'", "“": '"', "”": '"', "„": '"', "‟": '"', "ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl",
    "ﬃ": "ffi", "ﬄ": "ffl",
})  # fmt: skip
# The layers that bert_score compares in the models that are most used, by the last part of the name.
LAYERS = {
    "bert-base-uncased": 9, "bert-large-uncased": 18, "bert-base-multilingual-cased": 9, "distilbert-base-uncased": 5,
    "roberta-base": 10, "roberta-large": 17, "roberta-large-mnli": 19, "deberta-large-mnli": 18,
    "deberta-xlarge-mnli": 40,
}  # fmt: skip
_NO_LIMIT = 1_000_000  # tokens, in place of the 1e30 of a tokenizer without a limit
_WITH_SPACE = ("Roberta", "GPT2")  # tokenizers to which bert_score gives a space in front of a text


class Encoder:
    """A model in fp32 with its tokenizer, from a folder or the hub. Code of a repository is never run.

    Raises:
        CheckpointError: it is missing, incomplete, damaged, or of another kind.
        MissingDependencyError: transformers is not installed.
    """

    auto_class = "AutoModel"  # of transformers, which makes the model
    model: Any
    context: int  # tokens that it reads, special ones included
    details: str  # of the signature

    def __init__(self, name: str, batch_size: int) -> None:
        if importlib.util.find_spec("transformers") is None:
            raise errors.MissingDependencyError(
                f"{name} is a model of transformers, which is not installed: {errors.install_command('transformers')}."
            )
        is_folder = Path(name).is_dir()
        self.folder = Path(name) if is_folder else repository_folder(name, or_pickle=True)
        if missing := missing_files(self.folder):
            raise errors.CheckpointError(f"The model {name} is incomplete: {self.folder} lacks {', '.join(missing)}.")
        self.name = Path(name).resolve().name if is_folder else name
        self.batch_size = batch_size
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        read_model_settings(self.folder)
        self.settings = self._open("AutoConfig")
        self.tokenizer = self._open("AutoTokenizer")

    def open_model(self, **settings: Any) -> None:
        """Open the weights, with other settings than the folder's where given."""
        self.model, loaded = self._open(self.auto_class, dtype=torch.float32, output_loading_info=True, **settings)
        missing = sorted(key for key in loaded["missing_keys"] if not key.startswith("pooler."))  # which nothing uses
        if missing:
            raise errors.CheckpointError(
                f"The weights in {self.folder} are not those of a whole {type(self.model).__name__}: {len(missing)} "
                f"tensors are missing ({errors.summarise(missing, 2)})."
            )
        self.model = self.model.eval().requires_grad_(False).to(self.device)

    def _open(self, auto_class: str, **options: Any) -> Any:
        """The settings, model or tokenizer of the folder, by a class of transformers."""
        import transformers

        try:
            with quiet():
                return getattr(transformers, auto_class).from_pretrained(self.folder, **options, **LOCAL)
        except Exception as error:  # a library that answers damaged files with whatever went wrong inside it
            raise errors.CheckpointError(
                f"{auto_class} of transformers {transformers.__version__} cannot open {self.name} from {self.folder} "
                f"({type(error).__name__}: {errors.first_line(error)}); get its files once more."
            ) from error

    @cached_property
    def signature(self) -> str:
        """What its vectors depend on; the weights are told by a hash of them, whatever file they came from."""
        import transformers

        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode() + tensor.cpu().numpy().tobytes())
        own = f"model:{self.name}|weights:{digest.hexdigest()[:12]}|{self.details}"
        return f"{own}|dtype:fp32|transformers:{transformers.__version__}"

    def prepare(self, text: str) -> str:
        """A text as the tokenizer is given it."""
        raise NotImplementedError

    def token_ids(self, texts: Sequence[str], *, whole: bool = False) -> list[list[int]]:
        """The tokens of each text, special ones around them; those beyond the context where they are whole."""
        limits = {} if whole else {"truncation": True, "max_length": self.context}
        with quiet():
            ids: list[list[int]] = self.tokenizer(list(map(self.prepare, texts)), **limits)["input_ids"]
        return ids


class ClipEncoder(Encoder):
    """A CLIP (A. Radford et al., ICML 2021), and the vectors that it made.

    Photos are prepared and texts cleaned as in OpenAI's own code, which CLIPScore and PAC-S run: Pillow's bicubic
    filter, the central square as torchvision cuts it (transformers' processors resize and cut otherwise), HTML entities
    and typographic quotes undone.
    """

    auto_class = "CLIPModel"

    def __init__(self, name: str, batch_size: int) -> None:
        super().__init__(name, batch_size)
        if self.settings.model_type != "clip":
            raise errors.CheckpointError(
                f'{self.name} is a model of type "{self.settings.model_type}", and CLIPScore and PAC-S are defined for '
                "a whole CLIP, which compares photos with captions; give one, such as openai/clip-vit-base-patch32."
            )
        self.open_model()
        self.context = int(self.settings.text_config.max_position_embeddings)
        pixels = int(self.settings.vision_config.image_size)
        self.details = f"prefix:{PROMPT.strip()}|context:{self.context}|image:{pixels}"
        processor = self._open("AutoImageProcessor")
        self._prepare_photo = Compose([
            Resize(pixels, InterpolationMode.BICUBIC), CenterCrop(pixels), ToTensor(),
            Normalize(processor.image_mean, processor.image_std),
        ])  # fmt: skip
        self._vectors: dict[Hashable, Rows] = {}  # of photos and captions, so that each is encoded once

    def prepare(self, text: str) -> str:
        """A caption behind the prompt, in the characters that OpenAI's tokenizer makes of it."""
        return PROMPT + html.unescape(html.unescape(text)).translate(_STRAIGHT)

    @torch.no_grad()
    def embed(self, items: Sequence[str] | Sequence[Path]) -> Rows:
        """Unit vectors of captions behind the prompt, or of photos, each encoded once: (items, D).

        Raises:
            DataError: some photos cannot be read.
        """
        features: Any = self._photo_features if isinstance(items[0], Path) else self._text_features
        new = [item for item in dict.fromkeys(items) if item not in self._vectors]
        new.sort(key=lambda item: len(str(item)))  # texts of about the same length together
        with counting(f"vectors of {self.name}", len(new)) as progress:
            for first in range(0, len(new), self.batch_size):
                batch = new[first : first + self.batch_size]
                vectors = features(batch)
                if not bool(torch.isfinite(vectors).all()):
                    raise errors.CheckpointError(f"The weights of {self.name} give vectors that are not finite.")
                self._vectors.update(zip(batch, normalize(vectors.float(), dim=-1).cpu().numpy(), strict=True))
                progress(len(batch))
        return np.stack([self._vectors[item] for item in items])

    def _text_features(self, texts: list[str]) -> Any:
        """(texts, D). Nothing looks ahead in a text, so what fills it up behind its end needs no mask."""
        ids = list(map(torch.tensor, self.token_ids(texts)))
        tokens = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True).to(self.device)
        return self.model.get_text_features(input_ids=tokens).pooler_output

    def _photo_features(self, paths: list[Path]) -> Any:
        """(photos, D)."""
        batches = prepare_batches(paths, lambda path: self._prepare_photo(open_photo(path)), self.batch_size)
        photos: dict[Path, Any] = dict(chain.from_iterable(batches))
        failures = [str(photo).rstrip(".") for photo in photos.values() if isinstance(photo, errors.ImageError)]
        if failures:
            raise errors.DataError(
                f"{len(failures)} of {len(paths)} photos cannot be read: {errors.summarise(failures, 3)}."
            )
        pixels = torch.stack([photos[path] for path in paths]).to(self.device)
        return self.model.get_image_features(pixels).pooler_output


class BertEncoder(Encoder):
    """An encoder of texts as BERTScore uses it, cut off behind the layer whose vectors are compared."""

    def __init__(self, name: str, layer: int | None, batch_size: int) -> None:
        super().__init__(name, batch_size)
        layers = getattr(self.settings, "num_hidden_layers", 0)  # 0: it is no encoder of texts
        layer = LAYERS.get(self.name.partition("@")[0].rpartition("/")[2]) if layer is None else layer
        if not layers or layer is None or layer > layers:
            problem = "it is not known which one BERTScore compares" if layer is None else f"there is no layer {layer}"
            raise errors.UsageError(
                f"{self.name} has {layers} layers of an encoder of texts, and {problem}; give --bert-layer from 0 (the "
                "embeddings) on, or another model, such as roberta-large."
            )
        self.details = f"layer:{layer}"
        self.open_model(num_hidden_layers=layer)
        self.model = self.model.get_encoder() if self.settings.is_encoder_decoder else self.model
        self.context = min(int(self.tokenizer.model_max_length), _NO_LIMIT)
        self._leading = " " if type(self.tokenizer).__name__.startswith(_WITH_SPACE) else ""

    def prepare(self, text: str) -> str:
        """A text without white space around it, behind a space for some tokenizers."""
        return self._leading + text.strip() if text.strip() else ""

    @torch.no_grad()
    def encode(self, texts: Iterable[str]) -> dict[str, tuple[npt.NDArray[np.bool_], Rows]]:
        """Which tokens of each text are not special: (tokens,), and the unit vectors of all: (tokens, D)."""
        ordered = sorted(dict.fromkeys(texts), key=len)
        ids = self.token_ids(ordered)
        special = [self.tokenizer.cls_token_id, self.tokenizer.sep_token_id]
        encoded = {}
        for first in range(0, len(ordered), self.batch_size):
            part = slice(first, first + self.batch_size)
            padded = self.tokenizer.pad({"input_ids": ids[part]}, return_tensors="pt")
            hidden = self.model(**padded.to(self.device)).last_hidden_state
            units = normalize(hidden.float(), dim=-1).cpu().numpy()
            for text, own, rows in zip(ordered[part], ids[part], units, strict=True):
                encoded[text] = np.isin(own, special, invert=True), rows[: len(own)]
        return encoded
