"""The CLIP of transformers that CLIPScore compares with."""

from __future__ import annotations

import hashlib
import html
import importlib.util
from collections.abc import Hashable, Sequence
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
PROMPT = "A photo depicts "  # before each caption
BATCH_SIZE = 64  # photos or texts
# What OpenAI's tokenizer undoes by ftfy.
_STRAIGHT = str.maketrans({
    "‘": "'", "’": "'", "‚": "'", "‛": "'", "“": '"', "”": '"', "„": '"', "‟": '"', "ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl",
    "ﬃ": "ffi", "ﬄ": "ffl",
})  # fmt: skip


class ClipEncoder:
    """A CLIP (A. Radford et al., ICML 2021) in fp32, from a folder or the hub, whose code is not run, and its vectors.

    Photos and texts are prepared as in OpenAI's own code, which CLIPScore runs, not as by transformers' processors:
    Pillow's bicubic filter, the central square as torchvision cuts it, HTML entities and typographic quotes undone."""

    def __init__(self, name: str) -> None:
        if importlib.util.find_spec("transformers") is None:
            raise errors.MissingDependencyError(
                f"{name} is a model of transformers, which is not installed: {errors.install_command('transformers')}."
            )
        is_folder = Path(name).is_dir()
        self.folder = Path(name) if is_folder else repository_folder(name, or_pickle=True)
        if missing := missing_files(self.folder):
            raise errors.CheckpointError(f"The model {name} is incomplete: {self.folder} lacks {', '.join(missing)}.")
        self.name = Path(name).resolve().name if is_folder else name
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        read_model_settings(self.folder)
        settings = self._open("AutoConfig")
        self.tokenizer = self._open("AutoTokenizer")
        if settings.model_type != "clip":
            raise errors.CheckpointError(
                f'{self.name} is a model of type "{settings.model_type}", and CLIPScore is defined for a whole '
                "CLIP, which compares photos with captions; give one, such as openai/clip-vit-base-patch32."
            )
        model, loaded = self._open("CLIPModel", dtype=torch.float32, output_loading_info=True)
        if missing := sorted(loaded["missing_keys"]):
            raise errors.CheckpointError(
                f"The weights in {self.folder} are not those of a whole CLIPModel: {len(missing)} tensors are missing "
                f"({errors.summarise(missing, 2)})."
            )
        self.model = model.eval().requires_grad_(False).to(self.device)
        self.context = int(settings.text_config.max_position_embeddings)  # tokens that it reads, special ones included
        pixels = int(settings.vision_config.image_size)
        self._details = f"prefix:{PROMPT.strip()}|context:{self.context}|image:{pixels}"
        processor = self._open("AutoImageProcessor")
        self._prepare_photo = Compose([
            Resize(pixels, InterpolationMode.BICUBIC), CenterCrop(pixels), ToTensor(),
            Normalize(processor.image_mean, processor.image_std),
        ])  # fmt: skip
        self._vectors: dict[Hashable, Rows] = {}  # of photos and captions, so that each is encoded once

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
        own = f"model:{self.name}|weights:{digest.hexdigest()[:12]}|{self._details}"
        return f"{own}|dtype:fp32|transformers:{transformers.__version__}"

    def token_ids(self, texts: Sequence[str], *, whole: bool = False) -> list[list[int]]:
        """The tokens of each caption behind the prompt, special ones around them; all of them where they are whole."""
        texts = [PROMPT + html.unescape(html.unescape(text)).translate(_STRAIGHT) for text in texts]
        limits = {} if whole else {"truncation": True, "max_length": self.context}
        with quiet():
            ids: list[list[int]] = self.tokenizer(texts, **limits)["input_ids"]
        return ids

    @torch.no_grad()
    def embed(self, items: Sequence[str] | Sequence[Path]) -> Rows:
        """Unit vectors of captions behind the prompt, or of photos, each encoded once: (items, D)."""
        features: Any = self._photo_features if isinstance(items[0], Path) else self._text_features
        new = [item for item in dict.fromkeys(items) if item not in self._vectors]
        new.sort(key=lambda item: len(str(item)))  # texts of about the same length together
        with counting(f"vectors of {self.name}", len(new)) as progress:
            for first in range(0, len(new), BATCH_SIZE):
                batch = new[first : first + BATCH_SIZE]
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
        batches = prepare_batches(paths, lambda path: self._prepare_photo(open_photo(path)), BATCH_SIZE)
        photos: dict[Path, Any] = dict(chain.from_iterable(batches))
        failures = [str(photo).rstrip(".") for photo in photos.values() if isinstance(photo, errors.ImageError)]
        if failures:
            raise errors.DataError(
                f"{len(failures)} of {len(paths)} photos cannot be read: {errors.summarise(failures, 3)}."
            )
        pixels = torch.stack([photos[path] for path in paths]).to(self.device)
        return self.model.get_image_features(pixels).pooler_output
