"""CLIP as scores use it: photos and texts to vectors of one space.

A. Radford et al., Learning transferable visual models from natural language supervision, ICML 2021. The towers are
those of transformers. Photos are prepared and texts cleaned as in OpenAI's own code, which CLIPScore and PAC-S run:
Pillow's bicubic filter, the central square as torchvision cuts it (transformers' processors resize and cut otherwise),
HTML entities and typographic quotes undone.
"""

from __future__ import annotations

import html
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Normalize, Resize, ToTensor

from showtell.errors import CheckpointError, DataError, ImageError, first_line, summarise
from showtell.images.loading import prepare_batches
from showtell.images.photo import open_photo
from showtell.scores.encoders import Encoder, Reporting, fingerprint_of

PROMPT = "A photo depicts "  # before each caption, of CLIPScore and of PAC-S
FILES = (".pth", ".pt", ".bin", ".safetensors")  # of weights without a model around them
Rows = npt.NDArray[np.float32]
# What OpenAI's tokenizer undoes by ftfy.
_STRAIGHT = str.maketrans({
    "‘": "'", "’": "'", "‚": "'", "‛": "'", "“": '"', "”": '"', "„": '"', "‟": '"', "ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl",
    "ﬃ": "ffi", "ﬄ": "ffl",
})  # fmt: skip


class ClipEncoder(Encoder):
    """A CLIP, and the vectors that it made.

    Args:
        name: a folder, a repository on the hub, or a file of weights in the layout of OpenAI's code.
        base: for a file, the folder or repository of the CLIP whose architecture, tokenizer and preprocessing it has.
        batch_size: photos or texts at once.
        device: where to compute; None: on a GPU if there is one.
        reporting: shows the progress of long work.

    Raises:
        CheckpointError: it is missing, incomplete, damaged, or no whole CLIP.
        MissingDependencyError: transformers is not installed.
    """

    with_processor = True

    def __init__(self, name: str, base: str | None, batch_size: int, device: str | None, reporting: Reporting) -> None:
        file = Path(name) if Path(name).suffix in FILES and not Path(name).is_dir() else None
        if file is not None and base is None:
            raise CheckpointError(
                f"{name} is a file of weights alone; name the CLIP whose architecture and tokenizer it has with "
                "--clip-model, such as openai/clip-vit-base-patch32."
            )
        super().__init__(name if file is None else str(base), batch_size, device, reporting, "CLIPModel")
        if file is not None:
            self._take_weights(file)
        self.context = int(self.model.config.text_config.max_position_embeddings)
        processor = self.open_part("AutoImageProcessor")
        self.pixels = int(self.model.config.vision_config.image_size)
        self._prepare_photo = Compose([
            Resize(self.pixels, InterpolationMode.BICUBIC), CenterCrop(self.pixels), ToTensor(),
            Normalize(processor.image_mean, processor.image_std),
        ])  # fmt: skip
        self._vectors: dict[Hashable, Rows] = {}  # of photos and captions, so that each is encoded once

    def _check_settings(self, settings: Any) -> None:
        super()._check_settings(settings)
        if self.model_type != "clip":
            raise CheckpointError(
                f'{self.name} is a model of type "{self.model_type}", and CLIPScore and PAC-S are defined for a whole '
                "CLIP, which compares photos with captions; give one, such as openai/clip-vit-base-patch32."
            )

    def _take_weights(self, file: Path) -> None:
        """Replace the weights by those of a file."""
        tensors = read_state_dict(file)
        if "visual.class_embedding" in tensors:
            tensors = from_openai(tensors)
        try:
            missing = self.model.load_state_dict(tensors, strict=False).missing_keys
        except RuntimeError as error:  # shapes
            raise CheckpointError(
                f"{file} is not of the architecture of {self.name}: {first_line(str(error).partition(':')[2])}"
            ) from error
        if missing:
            raise CheckpointError(f"{file} is no whole CLIP with a ViT: it lacks {summarise(missing, 2)}.")
        self.name, self.revision, self.fingerprint = file.name, None, fingerprint_of([file])

    @property
    def signature(self) -> str:
        """What its vectors depend on."""
        return self.signature_of(f"prefix:{PROMPT.strip()}", f"context:{self.context}", f"image:{self.pixels}")

    def prepare(self, text: str) -> str:
        """A caption behind the prompt, in the characters that OpenAI's tokenizer makes of it."""
        return PROMPT + html.unescape(html.unescape(text)).translate(_STRAIGHT)

    def embed_texts(self, captions: Sequence[str]) -> Rows:
        """Unit vectors of captions behind the prompt: (captions, D). What is beyond the context is left out."""
        new = [text for text in dict.fromkeys(captions) if text not in self._vectors]
        ordered = sorted(zip(new, self.token_ids(new), strict=True), key=lambda pair: len(pair[1]))
        with self.reporting(f"texts with {self.name}") as report:
            for first in range(0, len(ordered), self.batch_size):
                texts, ids = zip(*ordered[first : first + self.batch_size], strict=True)
                # nothing looks ahead in a text, so what fills it up behind its end needs no mask
                tokens = torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, ids)), batch_first=True)
                with torch.no_grad():
                    output = self.model.get_text_features(input_ids=tokens.to(self.device))
                self._keep(texts, output.pooler_output)
                report(len(texts), len(new))
        return np.stack([self._vectors[text] for text in captions])

    def embed_photos(self, paths: Sequence[Path]) -> Rows:
        """Unit vectors of photos: (photos, D).

        Raises:
            DataError: some cannot be read; the message names them.
        """
        new = [path for path in dict.fromkeys(paths) if path not in self._vectors]
        failures: list[str] = []
        with self.reporting(f"photos with {self.name}") as report:
            for batch in prepare_batches(new, lambda path: self._prepare_photo(open_photo(path)), self.batch_size):
                failures += [str(photo).rstrip(".") for _, photo in batch if isinstance(photo, ImageError)]
                photos = {path: photo for path, photo in batch if isinstance(photo, Tensor)}
                if photos:
                    with torch.no_grad():
                        output = self.model.get_image_features(torch.stack(list(photos.values())).to(self.device))
                    self._keep(photos, output.pooler_output)
                report(len(batch), len(new))
        if failures:
            raise DataError(f"{len(failures)} of {len(set(paths))} photos cannot be read: {summarise(failures, 3)}.")
        return np.stack([self._vectors[path] for path in paths])

    def _keep(self, keys: Iterable[Hashable], vectors: Tensor) -> None:
        """Keep the unit vectors of photos or captions: (B, D)."""
        if not bool(torch.isfinite(vectors).all()):
            raise CheckpointError(f"The weights of {self.name} cannot be used: its vectors are no finite numbers.")
        units: Rows = torch.nn.functional.normalize(vectors.float(), dim=-1).cpu().numpy()
        self._vectors.update(zip(keys, units, strict=True))


# --- weights in the layout of OpenAI's code ---


def read_state_dict(file: Path) -> dict[str, Tensor]:
    """The tensors of a file of weights by their names.

    Raises:
        CheckpointError: it is missing or damaged, or holds other things than tensors.
    """
    from safetensors.torch import load_file

    try:
        is_safe = file.suffix == ".safetensors"
        content: Any = load_file(file) if is_safe else torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"There is no file of weights {file}.") from error
    except Exception as error:  # torch answers damaged files with whatever went wrong inside it
        raise CheckpointError(
            f"{file} holds no weights that torch reads without running code ({type(error).__name__}: "
            f"{first_line(error)}); get it once more, or save its state_dict."
        ) from error
    content = content.get("state_dict", content) if isinstance(content, dict) else {}
    return {name: tensor for name, tensor in content.items() if isinstance(tensor, Tensor)}


_RENAMED = (  # in this order
    ("visual.transformer.resblocks.", "vision_model.encoder.layers."),
    ("visual.conv1.weight", "vision_model.embeddings.patch_embedding.weight"),
    ("visual.class_embedding", "vision_model.embeddings.class_embedding"),
    ("visual.positional_embedding", "vision_model.embeddings.position_embedding.weight"),
    ("visual.ln_pre.", "vision_model.pre_layrnorm."),
    ("visual.ln_post.", "vision_model.post_layernorm."),
    ("visual.proj", "visual_projection.weight"),
    ("transformer.resblocks.", "text_model.encoder.layers."),
    ("token_embedding.weight", "text_model.embeddings.token_embedding.weight"),
    ("positional_embedding", "text_model.embeddings.position_embedding.weight"),
    ("ln_final.", "text_model.final_layer_norm."),
    ("text_projection", "text_projection.weight"),
    (".attn.out_proj.", ".self_attn.out_proj."),
    (".mlp.c_fc.", ".mlp.fc1."),
    (".mlp.c_proj.", ".mlp.fc2."),
    (".ln_1.", ".layer_norm1."),
    (".ln_2.", ".layer_norm2."),
)
_TRANSPOSED = ("visual.proj", "text_projection")  # which the code multiplies from the right


def from_openai(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of OpenAI's CLIP, of open_clip's and of PAC-S under the names of transformers.

    PAC-S++ has a low-rank change beside each matrix (E. J. Hu et al., LoRA, ICLR 2022; alpha 1), which is added to it,
    W + B A / r, but in the MLPs, whose matrices the authors' script takes as they stand in the file.
    """
    converted: dict[str, Tensor] = {}
    for name, tensor in _merged(tensors).items():
        if name in _TRANSPOSED:
            tensor = tensor.T.contiguous()
        for old, new in _RENAMED:
            name = name.replace(old, new)
        layer, is_packed, kind = name.partition(".attn.in_proj_")
        if is_packed:
            for projection, part in zip("qkv", tensor.chunk(3), strict=True):
                converted[f"{layer}.self_attn.{projection}_proj.{kind}"] = part.clone()
        else:
            converted[name] = tensor
    return converted


def _merged(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices with their low-rank changes."""
    merged = {name: tensor.float() for name, tensor in tensors.items() if "lora_" not in name}
    for name, down in tensors.items():
        if name.endswith("lora_A") and ".mlp." not in name:
            stem = name.removesuffix("lora_A")
            matrix = stem.removesuffix("_") if stem.endswith("_") else f"{stem}weight"
            weight = merged[matrix]
            rank = down.shape[0] // (weight.shape[-1] if weight.dim() == 4 else 1)  # of a convolution, times its side
            merged[matrix] = weight + (tensors[f"{stem}lora_B"].float() @ down.float()).view(weight.shape) / rank
    return merged
