"""CLIP as scores use it: photos and texts to vectors of one space.

A. Radford et al., Learning transferable visual models from natural language supervision, ICML 2021. The towers are
those of transformers. Photos are prepared and texts cleaned as in OpenAI's own code, which CLIPScore and PAC-S run:
Pillow's bicubic filter, the central square as torchvision cuts it, HTML entities and typographic quotes undone.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as transforms

from showtell.errors import CheckpointError, DataError, ImageError, MissingDependencyError, summarise
from showtell.hub import open_config, quiet
from showtell.images.loading import prepare_batches
from showtell.images.photo import open_photo, read_photo
from showtell.images.prefetch import prefetch_map
from showtell.scores.model_files import (
    ModelFolder,
    OpenedModel,
    build,
    check_tokens,
    digest_of,
    find_model,
    open_image_processor,
    open_tokenizer,
    read_tensors,
    read_weight_files,
)
from showtell.scores.model_settings import Reporting
from showtell.scores.row_journal import RowJournal, Rows, key_of

PROMPT = "A photo depicts "  # before each caption, of CLIPScore and of PAC-S
FILES = (".pth", ".pt", ".bin", ".safetensors")  # of weights without a model around them
_READERS = 4  # threads that read photos
_VERSION = 1  # of how photos and texts are prepared: a change makes new journals
# What OpenAI's tokenizer undoes by ftfy.
_STRAIGHT = str.maketrans({
    "‘": "'", "’": "'", "‚": "'", "‛": "'", "“": '"', "”": '"', "„": '"', "‟": '"', "ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl",
    "ﬃ": "ffi", "ﬄ": "ffl",
})  # fmt: skip


@dataclass(frozen=True)
class PhotoSettings:
    """How a photo becomes what a CLIP looks at."""

    size: int  # pixels of the shorter side
    crop: int  # pixels of each side of the square in the middle
    interpolation: str
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def prepare(self, photo: Image.Image) -> Tensor:
        """(3, crop, crop) float32 of an RGB photo."""
        resized = transforms.resize(photo, [self.size], InterpolationMode(self.interpolation))
        pixels = transforms.to_tensor(transforms.center_crop(resized, [self.crop, self.crop]))
        prepared: Tensor = transforms.normalize(pixels, list(self.mean), list(self.deviation))
        return prepared


@dataclass(eq=False, kw_only=True)
class ClipEncoder(OpenedModel):
    """A CLIP, and the vectors that it made."""

    photo_settings: PhotoSettings
    _keys: dict[Path, bytes] = field(default_factory=dict)  # of photos

    def __post_init__(self) -> None:
        parts = (self.fingerprint, self.architecture, self.tokenizer.get_vocab(), vars(self.photo_settings))
        self._journal = RowJournal(f"clip-{digest_of(_VERSION, *parts)}", self.model.config.projection_dim)

    @property
    def context(self) -> int:
        """How many tokens it reads, those at both ends of a text included."""
        return int(self.model.config.text_config.max_position_embeddings)

    @property
    def signature(self) -> str:
        """What its vectors depend on."""
        return self.signature_of(
            f"prefix:{PROMPT.strip()}", f"context:{self.context}", f"image:{self.photo_settings.crop}"
        )

    def embed_texts(self, captions: Sequence[str]) -> Rows:
        """Unit vectors of captions behind the prompt: (captions, D). What is beyond the context is left out."""
        keys = [key_of("text", PROMPT, caption) for caption in captions]
        return self._journal.rows(
            keys, lambda missing: self._make_texts(captions, missing), f"texts with {self.name}", self.reporting
        )

    def embed_photos(self, paths: Sequence[Path]) -> Rows:
        """Unit vectors of photos: (photos, D).

        Raises:
            DataError: some cannot be read; the message names them.
        """
        unknown = [path for path in dict.fromkeys(paths) if path not in self._keys]
        failures: dict[Path, str] = {}
        for path, key in zip(unknown, prefetch_map(_photo_key, unknown, ahead=64, workers=_READERS), strict=True):
            if isinstance(key, ImageError):
                failures[path] = str(key)
            else:
                self._keys[path] = key
        _refuse(failures, len(set(paths)))
        keys = [self._keys[path] for path in paths]
        return self._journal.rows(
            keys, lambda missing: self._make_photos(paths, missing), f"photos with {self.name}", self.reporting
        )

    def count_truncated(self, captions: Sequence[str]) -> int:
        """How many captions have more tokens than it reads."""
        long = [text for text in map(cleaned, captions) if len(text.encode()) > self.context - 2]
        with quiet():
            return sum(len(ids) > self.context for ids in self.tokenizer(long)["input_ids"]) if long else 0

    def _make_texts(self, captions: Sequence[str], missing: list[int]) -> Iterator[tuple[list[int], Rows]]:
        texts = [cleaned(captions[number]) for number in missing]
        ids = self.tokenizer(texts, truncation=True, max_length=self.context)["input_ids"]
        ordered = sorted(zip(missing, ids, strict=True), key=lambda one: len(one[1]))
        for first in range(0, len(ordered), self.batch_size):
            batch = ordered[first : first + self.batch_size]
            # Nothing looks ahead in a text, so what fills it up behind its end needs no mask.
            tokens = torch.zeros(len(batch), len(batch[-1][1]), dtype=torch.long)
            for row, (_, own) in zip(tokens, batch, strict=True):
                row[: len(own)] = torch.tensor(own)
            with torch.no_grad():
                vectors = self.model.get_text_features(input_ids=tokens.to(self.device)).pooler_output
            yield [number for number, _ in batch], _unit(vectors)

    def _make_photos(self, paths: Sequence[Path], missing: list[int]) -> Iterator[tuple[list[int], Rows]]:
        def prepare(number: int) -> Tensor:
            return self.photo_settings.prepare(open_photo(paths[number]))

        failures: dict[Path, str] = {}
        for batch in prepare_batches(missing, prepare, self.batch_size):
            failures |= {paths[number]: str(one) for number, one in batch if isinstance(one, ImageError)}
            photos = {number: one for number, one in batch if isinstance(one, Tensor)}
            if photos:
                with torch.no_grad():
                    pixels = torch.stack(list(photos.values())).to(self.device)
                    vectors = self.model.get_image_features(pixel_values=pixels).pooler_output
                yield list(photos), _unit(vectors)
        _refuse(failures, len(set(paths)))


def open_clip(name: str, base: str | None, batch_size: int, device: str | None, reporting: Reporting) -> ClipEncoder:
    """Open a CLIP.

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
    file = Path(name) if Path(name).suffix in FILES and not Path(name).is_dir() else None
    if file is not None and base is None:
        raise CheckpointError(
            f"{name} is a file of weights alone; name the CLIP whose architecture and tokenizer it has with "
            "--clip-model, such as openai/clip-vit-base-patch32."
        )
    model = find_model(name if file is None else str(base), with_processor=True)
    _check_type(model)
    config = open_config(model.folder)
    tensors, fingerprint = read_tensors(model) if file is None else read_weight_files([file])
    if file is not None and "visual.class_embedding" in tensors:
        tensors = from_openai(tensors, file)
    if not any(key.startswith("text_model.") for key in tensors):
        raise CheckpointError(
            f"{name} has no text tower, so it cannot compare photos with captions; give a whole CLIP."
        )
    built = build(model, config, tensors, name)
    tokenizer = open_tokenizer(model)
    check_tokens(model, tokenizer, config.text_config.vocab_size)
    photo_settings = _photo_settings(model)
    if photo_settings.crop != config.vision_config.image_size:
        raise CheckpointError(
            f"{model.name} looks at photos of {config.vision_config.image_size} pixels, and its image processor cuts "
            f"out {photo_settings.crop}: the files are not of one repository; get both once more."
        )
    return ClipEncoder(
        name=model.name if file is None else file.name,
        revision=model.revision if file is None else None,
        fingerprint=fingerprint,
        model=built.to(device or ("cuda" if torch.cuda.is_available() else "cpu")),
        tokenizer=tokenizer,
        photo_settings=photo_settings,
        batch_size=batch_size,
        reporting=reporting,
    )


def _check_type(model: ModelFolder) -> None:
    if model.model_type == "clip_vision_model":
        raise CheckpointError(
            f"{model.name} has no text tower (it is a clip_vision_model), so it cannot compare photos with captions; "
            "give a whole CLIP, such as openai/clip-vit-base-patch32."
        )
    if model.model_type != "clip":
        raise CheckpointError(
            f'{model.name} is a model of type "{model.model_type}", and CLIPScore and PAC-S are defined for CLIP; give '
            "one, such as openai/clip-vit-base-patch32."
        )


def _photo_settings(model: ModelFolder) -> PhotoSettings:
    try:
        processor = open_image_processor(model)
    except CheckpointError as error:
        if "torchvision" in str(error):
            raise MissingDependencyError(str(error)) from error
        raise
    size, crop = processor.size, processor.crop_size
    shorter = size.get("shortest_edge") or (size.get("height") if size.get("height") == size.get("width") else None)
    if not shorter or crop is None or crop["height"] != crop["width"]:
        raise CheckpointError(
            f"The image processor of {model.name} resizes to {dict(size)} and cuts out {crop and dict(crop)}; CLIP's "
            "resizes the shorter side and cuts out a square."
        )
    names = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
    return PhotoSettings(
        size=int(shorter),
        crop=int(crop["height"]),
        interpolation=names.get(int(processor.resample), "bicubic"),
        mean=tuple(map(float, processor.image_mean)),
        deviation=tuple(map(float, processor.image_std)),
    )


# --- weights in the layout of OpenAI's code ---

_RENAMED = (
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
)
_RENAMED_IN_LAYERS = (
    (".attn.out_proj.", ".self_attn.out_proj."), (".mlp.c_fc.", ".mlp.fc1."), (".mlp.c_proj.", ".mlp.fc2."),
    (".ln_1.", ".layer_norm1."), (".ln_2.", ".layer_norm2."),
)  # fmt: skip
_TRANSPOSED = ("visual.proj", "text_projection")  # which the code multiplies from the right


def from_openai(tensors: Mapping[str, Tensor], file: Path) -> dict[str, Tensor]:
    """Weights of OpenAI's CLIP, of open_clip's and of PAC-S under the names of transformers.

    PAC-S++ has a low-rank change beside each matrix (E. J. Hu et al., LoRA, ICLR 2022; alpha 1), which is added to it,
    W + B A / r, but in the MLPs, whose matrices the authors' script takes as they stand in the file.

    Raises:
        CheckpointError: the file holds a ResNet, which transformers' CLIP has not.
    """
    if any(name.startswith("visual.layer1.") for name in tensors):
        raise CheckpointError(
            f"{file} holds a CLIP with a ResNet, which transformers does not have; give one with a ViT."
        )
    converted: dict[str, Tensor] = {}
    for name, tensor in _merged(tensors).items():
        if name in _TRANSPOSED:
            tensor = tensor.T.contiguous()
        for old, new in (*_RENAMED, *_RENAMED_IN_LAYERS):
            if name.startswith(old) if old in dict(_RENAMED) else old in name:
                name = name.replace(old, new, 1)
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


def cleaned(caption: str) -> str:
    """A caption behind the prompt, in the characters that OpenAI's tokenizer makes of it."""
    return PROMPT + html.unescape(html.unescape(caption)).translate(_STRAIGHT)


def _unit(vectors: Tensor) -> Rows:
    rows: Rows = torch.nn.functional.normalize(vectors.float(), dim=-1).cpu().numpy()
    return rows


def _photo_key(path: Path) -> bytes | ImageError:
    try:
        return key_of("photo", read_photo(path))
    except ImageError as error:
        return error


def _refuse(failures: Mapping[Path, str], photos: int) -> None:
    if failures:
        reasons = summarise([reason.rstrip(".") for reason in failures.values()], 3)
        raise DataError(f"{len(failures)} of {photos} photos cannot be read: {reasons}.")
