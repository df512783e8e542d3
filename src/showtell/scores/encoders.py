"""Models of transformers that learned scores compare with: CLIP, and encoders of texts."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Normalize, Resize, ToTensor

from showtell.errors import (
    CheckpointError,
    DataError,
    ImageError,
    MissingDependencyError,
    UsageError,
    first_line,
    summarise,
)
from showtell.files import read_json
from showtell.hub import (
    LOCAL,
    PICKLE,
    SETTINGS,
    commit_of,
    missing_files,
    named_kernel,
    quiet,
    repository_folder,
    weight_files,
)
from showtell.images.loading import prepare_batches
from showtell.images.photo import open_photo

# Called with what is done; gives a function that is called with the items done since the last call, and the total.
Reporting = Callable[[str], AbstractContextManager[Callable[[int, int | None], None]]]
Rows = npt.NDArray[np.float32]
PROMPT = "A photo depicts "  # before each caption, of CLIPScore and of PAC-S
FILES = (".pth", ".pt", ".bin")  # of weights without a model around them
# What OpenAI's tokenizer undoes by ftfy.
_STRAIGHT = str.maketrans({
    "‘": "'", "’": "'", "‚": "'", "‛": "'", "“": '"', "”": '"', "„": '"', "‟": '"', "ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl",
    "ﬃ": "ffi", "ﬄ": "ffl",
})  # fmt: skip
# The layers that bert_score compares, which correlate best with the judgements of WMT16, by the last part of the name.
LAYERS = {
    "bert-base-uncased": 9, "bert-large-uncased": 18, "bert-base-multilingual-cased": 9, "bert-base-chinese": 8,
    "roberta-base": 10, "roberta-large": 17, "roberta-large-mnli": 19, "xlm-roberta-base": 9, "xlm-roberta-large": 17,
    "distilbert-base-uncased": 5, "distilbert-base-multilingual-cased": 5, "distilroberta-base": 5, "mpnet-base": 8,
    "deberta-base": 9, "deberta-base-mnli": 9, "deberta-large": 16, "deberta-large-mnli": 18, "deberta-xlarge": 18,
    "deberta-xlarge-mnli": 40, "deberta-v3-base": 9, "deberta-v3-large": 12, "electra-base-discriminator": 9,
    "electra-large-discriminator": 14, "bart-base": 6, "bart-large": 10, "bart-large-mnli": 11, "t5-small": 6,
    "t5-base": 11, "t5-large": 23,
}  # fmt: skip
_NO_LIMIT = 1_000_000  # tokens from which on a limit is none
_WITH_SPACE = ("Roberta", "GPT2")  # tokenizers to which bert_score gives a space in front of a text


class Encoder:
    """A model in fp32 with its tokenizer, from a folder or the hub. Code of a repository is never run.

    Args:
        name: a folder, or a repository on the hub (owner/name or owner/name@revision).
        batch_size: photos or texts at once.
        device: where to compute; None: on a GPU if there is one.
        reporting: shows the progress of long work.

    Raises:
        CheckpointError: it is missing, incomplete, damaged, or of another kind.
        MissingDependencyError: transformers is not installed.
    """

    auto_class = "AutoModel"  # of transformers, which makes the model
    unused: tuple[str, ...] = ("pooler.",)  # weights that are not used, and that some files lack
    model: Any
    context: int | None  # tokens that it reads, special ones included; None: any number

    def __init__(self, name: str, batch_size: int, device: str | None, reporting: Reporting) -> None:
        self.folder = _model_folder(name, with_processor=self.auto_class == "CLIPModel")
        self.name = Path(name).resolve().name if Path(name).is_dir() else name
        self.batch_size, self.reporting = batch_size, reporting
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.settings = self._open("AutoConfig")
        kernel = named_kernel(read_json(self.folder / SETTINGS))
        if kernel:
            raise CheckpointError(
                f"{self.folder / SETTINGS} names a repository with code for attention ({kernel}), and code of others "
                "is never run here; remove attn_implementation from it."
            )
        self.tokenizer = self._open("AutoTokenizer")
        files = [self.folder / file for file in weight_files(self.folder)]
        self.revision = commit_of(self.folder)
        self.fingerprint = _fingerprint(files if all(map(Path.is_file, files)) else [self.folder / PICKLE])

    def open_model(self, **settings: Any) -> None:
        """Open the weights, with other settings than the folder's where given."""
        self.model, loaded = self._open(self.auto_class, dtype=torch.float32, output_loading_info=True, **settings)
        missing = sorted(key for key in loaded["missing_keys"] if not key.startswith(self.unused))
        if missing:
            raise CheckpointError(
                f"The weights in {self.folder} are not those of a whole {type(self.model).__name__}: {len(missing)} "
                f"tensors are missing ({summarise(missing, 2)})."
            )
        self.model = self.model.eval().requires_grad_(False).to(self.device)

    def _open(self, auto_class: str, **options: Any) -> Any:
        """The settings, model, tokenizer or image processor of the folder, by a class of transformers."""
        import transformers

        try:
            with quiet():
                return getattr(transformers, auto_class).from_pretrained(self.folder, **options, **LOCAL)
        except Exception as error:  # a library that answers damaged files with whatever went wrong inside it
            raise CheckpointError(
                f"{auto_class} of transformers {transformers.__version__} cannot open {self.name} from {self.folder} "
                f"({type(error).__name__}: {first_line(error)}); get its files once more."
            ) from error

    def signature_of(self, *parts: str) -> str:
        """What its vectors depend on, for people; with what depends on the kind of model."""
        import transformers

        revision = (f"revision:{self.revision}",) if self.revision else ()
        own = (f"model:{self.name}", *revision, f"weights:{self.fingerprint}")
        return "|".join((*own, *parts, "dtype:fp32", f"transformers:{transformers.__version__}"))

    def prepare(self, text: str) -> str:
        """A text as the tokenizer is given it."""
        raise NotImplementedError

    def token_ids(self, texts: Sequence[str], *, whole: bool = False) -> list[list[int]]:
        """The tokens of each text with the special ones around them; without `whole` not those beyond the context."""
        limits = {} if whole or self.context is None else {"truncation": True, "max_length": self.context}
        with quiet():
            ids: list[list[int]] = self.tokenizer(list(map(self.prepare, texts)), **limits)["input_ids"]
        return ids

    def truncation_warning(self, title: str, texts: Sequence[str]) -> str | None:
        """A sentence where texts have more tokens than it reads."""
        count = sum(len(ids) > (self.context or len(ids)) for ids in self.token_ids(texts, whole=True))
        if not count:
            return None
        return (
            f"{title}: {count} of {len(texts)} texts have more than the {self.context} tokens that {self.name} reads; "
            "what is behind them counted nothing."
        )


class ClipEncoder(Encoder):
    """A CLIP, and the vectors that it made.

    A. Radford et al., Learning transferable visual models from natural language supervision, ICML 2021. Photos are
    prepared and texts cleaned as in OpenAI's own code, which CLIPScore and PAC-S run: Pillow's bicubic filter, the
    central square as torchvision cuts it (transformers' processors resize and cut otherwise), HTML entities and
    typographic quotes undone.
    """

    auto_class = "CLIPModel"
    unused = ()

    def __init__(self, name: str, base: str | None, batch_size: int, device: str | None, reporting: Reporting) -> None:
        is_file = Path(name).suffix in FILES and not Path(name).is_dir()
        if is_file and base is None:
            raise CheckpointError(
                f"{name} is a file of weights alone; name the CLIP whose architecture and tokenizer it has with "
                "--clip-model, such as openai/clip-vit-base-patch32."
            )
        super().__init__(str(base) if is_file else name, batch_size, device, reporting)
        if self.settings.model_type != "clip":
            raise CheckpointError(
                f'{self.name} is a model of type "{self.settings.model_type}", and CLIPScore and PAC-S are defined for '
                "a whole CLIP, which compares photos with captions; give one, such as openai/clip-vit-base-patch32."
            )
        self.open_model()
        if is_file:
            self._take_weights(Path(name))
        self.context = int(self.settings.text_config.max_position_embeddings)
        self.pixels = int(self.settings.vision_config.image_size)
        processor = self._open("AutoImageProcessor")
        self._prepare_photo = Compose([
            Resize(self.pixels, InterpolationMode.BICUBIC), CenterCrop(self.pixels), ToTensor(),
            Normalize(processor.image_mean, processor.image_std),
        ])  # fmt: skip
        self._vectors: dict[Hashable, Rows] = {}  # of photos and captions, so that each is encoded once

    def _take_weights(self, file: Path) -> None:
        """Replace the weights by those of a file."""
        from showtell.torch_weights import read_torch_file

        content = read_torch_file(file)
        content = content.get("state_dict", content) if isinstance(content, dict) else {}
        tensors = {name: tensor for name, tensor in content.items() if isinstance(tensor, Tensor)}
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
        self.name, self.revision, self.fingerprint = file.name, None, _fingerprint([file])

    @property
    def signature(self) -> str:
        """What its vectors depend on."""
        return self.signature_of(f"prefix:{PROMPT.strip()}", f"context:{self.context}", f"image:{self.pixels}")

    def prepare(self, text: str) -> str:
        """A caption behind the prompt, in the characters that OpenAI's tokenizer makes of it."""
        return PROMPT + html.unescape(html.unescape(text)).translate(_STRAIGHT)

    def embed_texts(self, captions: Sequence[str]) -> Rows:
        """Unit vectors of captions behind the prompt: (captions, D). What is beyond the context is left out."""
        new = sorted({text for text in captions if text not in self._vectors}, key=len)
        with self.reporting(f"texts with {self.name}") as report:
            for first in range(0, len(new), self.batch_size):
                texts = new[first : first + self.batch_size]
                # nothing looks ahead in a text, so what fills it up behind its end needs no mask
                ids = list(map(torch.tensor, self.token_ids(texts)))
                tokens = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True).to(self.device)
                with torch.no_grad():
                    self._keep(texts, self.model.get_text_features(input_ids=tokens).pooler_output)
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
                    pixels = torch.stack(list(photos.values())).to(self.device)
                    with torch.no_grad():
                        self._keep(photos, self.model.get_image_features(pixels).pooler_output)
                report(len(batch), len(new))
        if failures:
            raise DataError(f"{len(failures)} of {len(set(paths))} photos cannot be read: {summarise(failures, 3)}.")
        return np.stack([self._vectors[path] for path in paths])

    def _keep(self, keys: Iterable[Hashable], vectors: Tensor) -> None:
        """Keep the unit vectors of photos or captions: (B, D)."""
        if not bool(torch.isfinite(vectors).all()):
            raise CheckpointError(f"The weights of {self.name} cannot be used: its vectors are no finite numbers.")
        self._vectors.update(zip(keys, normalize(vectors.float(), dim=-1).cpu().numpy(), strict=True))


class BertEncoder(Encoder):
    """An encoder of texts as BERTScore uses it, cut off behind the layer whose vectors are compared."""

    def __init__(self, name: str, layer: int | None, batch_size: int, device: str | None, reporting: Reporting) -> None:
        super().__init__(name, batch_size, device, reporting)
        layers = getattr(self.settings, "num_hidden_layers", None)
        if layers is None:
            raise CheckpointError(
                f'{self.name} is a model of type "{self.settings.model_type}" without one stack of layers, which '
                "BERTScore cuts off; give an encoder such as roberta-large or bert-base-uncased."
            )
        layer = LAYERS.get(self.name.partition("@")[0].rpartition("/")[2]) if layer is None else layer
        if layer is None or layer > layers:
            problem = "it is not known which one BERTScore compares" if layer is None else f"there is no layer {layer}"
            raise UsageError(
                f"{self.name} has {layers} layers, and {problem}; give --bert-layer from 0 (its embeddings) to "
                f"{layers}."
            )
        self.layer = layer
        self.open_model(num_hidden_layers=layer)
        self.model = self.model.get_encoder() if self.settings.is_encoder_decoder else self.model
        limit = int(self.tokenizer.model_max_length)
        self.context = None if limit > _NO_LIMIT else limit
        self._leading = " " if type(self.tokenizer).__name__.startswith(_WITH_SPACE) else ""
        self.special_tokens = len(self.tokenizer("")["input_ids"])  # of a text without a word

    @property
    def signature(self) -> str:
        """What its vectors depend on."""
        return self.signature_of(f"layer:{self.layer}")

    def prepare(self, text: str) -> str:
        """A text without white space around it, behind a space for some tokenizers."""
        return self._leading + text.strip() if text.strip() else ""

    def encode(self, texts: Iterable[str]) -> dict[str, tuple[list[int], Rows]]:
        """The tokens of each text, and their unit vectors: (tokens, D)."""
        ordered = sorted(set(texts), key=len)
        ids = self.token_ids(ordered)
        encoded: dict[str, tuple[list[int], Rows]] = {}
        for first in range(0, len(ordered), self.batch_size):
            part = slice(first, first + self.batch_size)
            padded = self.tokenizer.pad({"input_ids": ids[part]}, return_tensors="pt")
            with torch.no_grad():
                hidden = self.model(**padded.to(self.device)).last_hidden_state
            units = normalize(hidden.float(), dim=-1).cpu().numpy()
            for text, own, rows in zip(ordered[part], ids[part], units, strict=True):
                encoded[text] = own, rows[: len(own)]
        return encoded


def _model_folder(name: str, *, with_processor: bool) -> Path:
    """The folder of a model, from the hub if it is none here."""
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f'{name} is a model of transformers, which is not installed: pip install "showtell[transformers]".'
        ) from error
    folder = Path(name)
    if not folder.is_dir():
        if folder.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
            raise CheckpointError(
                f"There is no folder {name} of a model; give a folder with {SETTINGS} and weights, or the name of a "
                "repository on the Hugging Face hub (owner/name or owner/name@revision)."
            )
        folder = repository_folder(name, with_processor=with_processor, or_pickle=True)
    missing = missing_files(folder, with_processor=with_processor, or_pickle=True)
    if missing:
        raise CheckpointError(f"The model {name} is incomplete: {folder} lacks {', '.join(missing)}; put it there.")
    return folder


def _fingerprint(files: Sequence[Path]) -> str:
    """Of the content of files."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:12]


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
    merged = {name: tensor.float() for name, tensor in tensors.items() if "lora_" not in name}
    for name, down in tensors.items():
        if name.endswith("lora_A") and ".mlp." not in name:
            stem = name.removesuffix("lora_A")
            matrix = stem.removesuffix("_") if stem.endswith("_") else f"{stem}weight"
            weight = merged[matrix]
            rank = down.shape[0] // (weight.shape[-1] if weight.dim() == 4 else 1)  # of a convolution, times its side
            merged[matrix] = weight + (tensors[f"{stem}lora_B"].float() @ down.float()).view(weight.shape) / rank
    converted: dict[str, Tensor] = {}
    for name, tensor in merged.items():
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
