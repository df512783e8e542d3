"""Opening a captioning model of transformers: what cannot be opened is refused before anything of it is loaded.

Weights come from safetensors alone, and code of a repository is never run.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError, safe_open

from showtell.captioners.contract import Source
from showtell.captioners.hugging_face import TransformersCaptioner
from showtell.captioners.hugging_face_families import FAMILIES, Family, Processor, family_of
from showtell.decoding_config import DecodingConfig
from showtell.errors import CheckpointError, DataError, MissingDependencyError, first_line, summarise
from showtell.files import read_bytes, read_json
from showtell.hub import INDEX, LOCAL, SETTINGS, WEIGHTS, missing_files, named_kernel, open_config, quiet, weight_files

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
KNOWN = ", ".join(FAMILIES)
# Generation settings of other searches than ours, which some repositories have; a search of ours is chosen by ours.
_OTHER_SEARCHES = {
    "penalty_alpha": None, "dola_layers": None, "prompt_lookup_num_tokens": None, "num_beam_groups": 1,
    "diversity_penalty": 0.0, "constraints": None, "force_words_ids": None, "stop_strings": None, "max_time": None,
}  # fmt: skip
GENERATION = "generation_config.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.msgpack", "*.h5")


def open_transformers_folder(source: Source, device: str | torch.device, dtype: str) -> TransformersCaptioner:
    """Open a folder with a captioning model of transformers.

    Args:
        source: the folder, and where it comes from.
        device: where to compute.
        dtype: a key of `PRECISIONS`.

    Raises:
        CheckpointError: it is incomplete, damaged, of another task, or needs code or pickles.
        MissingDependencyError: transformers is not installed.
    """
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f'{source.name} is a model of transformers, which is not installed: pip install "showtell[transformers]".'
        ) from error
    settings = read_json(source.folder / SETTINGS)
    _refuse_code(source)
    _check_task(source, settings)
    _check_files(source)
    with quiet():
        config = open_config(source.folder)
        processor = _open_processor(source)
        family = family_of(str(settings["model_type"]), processor)
        if family is None:
            raise CheckpointError(
                f'{source.name} is a model of type "{settings["model_type"]}" without a chat template, and it is not '
                f"known here how to ask it for a caption; the types that need no template are {KNOWN}."
            )
        model = _open_model(source, config, PRECISIONS[dtype])
    rows = model.get_input_embeddings().weight.shape[0]
    if processor.tokenizer.vocab_size > rows:
        raise CheckpointError(
            f"The tokenizer of {source.name} has {processor.tokenizer.vocab_size} tokens and its model {rows}: they "
            "are not of one repository; get both once more."
        )
    if getattr(processor.both, "num_query_tokens", 0) is None:  # BLIP-2 of before 4.46: its prompts would have no photo
        processor.both.num_query_tokens = model.config.num_query_tokens
    captioner = TransformersCaptioner(
        model=model.to(device),
        processor=processor,
        family=family,
        decoding=DecodingConfig(),
        source=source,
        dtype=dtype,
        licence=read_licence(source.folder),
    )
    for name, neutral in _OTHER_SEARCHES.items():
        if hasattr(captioner.part.generation_config, name):
            setattr(captioner.part.generation_config, name, neutral)
    _find_end(captioner)
    captioner.decoding = default_settings(captioner)
    return captioner


def _refuse_code(source: Source) -> None:
    """Make sure that no file names Python code to run: `AutoProcessor` runs it whatever it is told.

    Raises:
        CheckpointError: one does.
    """
    for file in sorted(source.folder.glob("*.json")):
        plain = re.sub(rb"\\u00([2-7][0-9a-fA-F])", lambda match: bytes([int(match[1], 16)]), read_bytes(file))
        if b'"auto_map"' in plain and _has_code(read_json(file)):
            raise CheckpointError(
                f"{source.name} needs Python code from its repository (auto_map in {file.name}), and such code is "
                "never run here; look for a version of it for transformers itself."
            )


def _has_code(content: Any) -> bool:
    """Whether an object, or one within it, has an `auto_map`; numbers are those of a token's id."""
    if isinstance(content, dict):
        return isinstance(content.get("auto_map"), dict | list | str) or any(map(_has_code, content.values()))
    return isinstance(content, list) and any(map(_has_code, content))


def _check_task(source: Source, settings: Any) -> None:
    """Whether the type of a model is one that captions, and known without code of its own."""
    import transformers
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    kind = settings["model_type"]
    if not isinstance(kind, str):
        raise CheckpointError(f'{source.folder / SETTINGS} is damaged: its "model_type" is no text.')
    kernel = named_kernel(settings)
    if kernel:
        raise CheckpointError(
            f"{source.folder / SETTINGS} names a repository with code for attention ({kernel}), and code of others is "
            "never run here; remove attn_implementation from it."
        )
    if kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        return
    if kind not in CONFIG_MAPPING:
        raise CheckpointError(
            f'{source.name} has a model of type "{kind}", which transformers {transformers.__version__} does not know; '
            "a newer one may: pip install --upgrade transformers."
        )
    raise CheckpointError(
        f'{source.name} has a model of type "{kind}", which does not caption photos; types that do are {KNOWN}, and '
        "chat models that see, such as llava, qwen2_vl and smolvlm."
    )


def _check_files(source: Source) -> None:
    """Whether all files are there, and those with weights whole."""
    folder = source.folder
    if not (folder / WEIGHTS).is_file() and not (folder / INDEX).is_file():
        pickles = sorted(file.name for pattern in _PICKLES for file in folder.glob(pattern))
        if pickles:
            raise CheckpointError(
                f"{source.name} has its weights as pickles alone ({summarise(pickles, 3)}), which can run code when "
                f"they are opened, so they are not opened here; get {WEIGHTS}, or convert them where you trust them."
            )
    missing = missing_files(folder)
    if missing:
        raise CheckpointError(
            f"{source.name} is not whole: {folder} lacks {', '.join(missing)}; get what is missing from the repository "
            "that it comes from, and put it into that folder."
        )
    if (folder / GENERATION).is_file() and not isinstance(_read_whole(folder / GENERATION), dict):
        raise CheckpointError(f"{folder / GENERATION} is damaged: it should hold an object; get it once more.")
    for name in weight_files(folder):
        try:
            with safe_open(folder / name, "pt") as file:
                file.keys()
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{folder / name} is damaged or was not fetched to its end ({first_line(error)}); get it once more."
            ) from error


def _open_processor(source: Source) -> Processor:
    """The processor, or the image processor and tokenizer of a model that has no processor of its own."""
    import transformers

    library: Any = transformers
    try:
        both = library.AutoProcessor.from_pretrained(source.folder, **LOCAL)
        if hasattr(both, "image_processor") and hasattr(both, "tokenizer"):
            images, tokenizer = both.image_processor, both.tokenizer
        else:  # this is one of them
            both = None
            images = library.AutoImageProcessor.from_pretrained(source.folder, **LOCAL)
            tokenizer = library.AutoTokenizer.from_pretrained(source.folder, **LOCAL)
    except Exception as error:  # processors answer damaged or missing files with whatever went wrong inside them
        raise CheckpointError(
            f"The processor and tokenizer of {source.name} cannot be opened from {source.folder} "
            f"({type(error).__name__}: {first_line(error)}); get their files once more (preprocessor_config.json, "
            "tokenizer.json, tokenizer_config.json and what the repository has beside them)."
        ) from error
    tokenizer.padding_side = "left"  # generation goes on at the right
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if both is not None and not getattr(both, "chat_template", None):
        both.chat_template = getattr(tokenizer, "chat_template", None)
    return Processor(images, tokenizer, both)


def _open_model(source: Source, config: Any, dtype: torch.dtype) -> Any:
    import transformers

    library: Any = transformers
    try:
        model, report = library.AutoModelForImageTextToText.from_pretrained(
            source.folder, config=config, dtype=dtype, use_safetensors=True, output_loading_info=True, **LOCAL
        )  # fmt: skip
    except Exception as error:  # a library that answers bad settings and weights with whatever went wrong inside it
        if "ignore_mismatched_sizes" in str(error):
            raise CheckpointError(
                f"The weights of {source.name} have other shapes than its {SETTINGS} says: the files are not of the "
                "same model; get both once more."
            ) from error
        raise CheckpointError(
            f"{source.name} cannot be opened by transformers {transformers.__version__} ({type(error).__name__}: "
            f"{first_line(error)})."
        ) from error
    # The poolers of vision models are part of no caption, and often not saved.
    missing = sorted(name for name in report["missing_keys"] if ".pooler." not in name)
    if missing:
        made = config.architectures or ["another class"]
        raise CheckpointError(
            f"The weights of {source.name} are not those of a captioner: they were saved by {made[0]}, and "
            f"{type(model).__name__} needs {len(missing)} more tensors ({summarise(missing, 2)})."
        )
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            kind = "NaN" if bool(tensor.isnan().any()) else "infinity"
            raise CheckpointError(
                f"The weights of {source.name} cannot be used: {name} contains {kind}"
                f"{'; open it in fp32 or bf16' if dtype is torch.float16 else ''}."
            )
    return model


def _find_end(captioner: TransformersCaptioner) -> None:
    """Make sure that captions end: some repositories name the token in the settings of their tokenizer alone."""
    if captioner.family.end_ids(captioner.model):
        return
    config, tokenizer = captioner.part.config.get_text_config(decoder=True), captioner.tokenizer
    candidates = (getattr(config, "eos_token_id", None), tokenizer.eos_token_id, tokenizer.sep_token_id)
    end = next((token for token in candidates if token is not None), None)
    if end is None:
        raise CheckpointError(
            f"{captioner.name} names no token that ends a caption; set eos_token_id in its generation_config.json."
        )
    captioner.part.generation_config.eos_token_id = end


def read_licence(folder: Path) -> str | None:
    """The licence that the README of a repository names in its first lines."""
    file = folder / "README.md"
    if not file.is_file():
        return None
    parts = file.read_text(encoding="utf-8", errors="replace").split("---", 2)
    if len(parts) < 3 or parts[0].strip():
        return None
    try:
        head = yaml.safe_load(parts[1])
    except yaml.YAMLError:
        return None
    licence = head.get("license_name") or head.get("license") if isinstance(head, dict) else None
    return str(licence) if isinstance(licence, str) else None


def _read_whole(file: Path) -> Any:
    try:
        return read_json(file)
    except DataError as error:
        raise CheckpointError(f"{error} It is damaged or was not fetched to its end; get it once more.") from error


def default_settings(captioner: TransformersCaptioner) -> DecodingConfig:
    """The settings that a model comes with, as far as they concern the search; it never samples unless it is asked.

    Raises:
        CheckpointError: its generation settings have values of another kind.
    """
    try:
        return _default_settings(captioner)
    except (TypeError, ValueError) as error:  # of pydantic too
        raise CheckpointError(
            f"The generation settings of {captioner.name} cannot be used ({first_line(error)}); mend {GENERATION} in "
            f"{captioner.source.folder}, or get it once more."
        ) from error


def _default_settings(captioner: TransformersCaptioner) -> DecodingConfig:
    family: Family = captioner.family
    config = captioner.part.generation_config
    length = getattr(config, "max_new_tokens", None)
    most = getattr(config, "max_length", None)
    if length is None and most not in (None, 20) and not family.takes_prompt:  # 20 is what it is if nobody sets it
        length = most - 1  # counts the token that captions begin with
    length = family.max_length if length is None else length
    limit = captioner.position_limit
    values: dict[str, Any] = {
        "max_length": max(1, min(length, 1000, length if limit is None else limit // 2)),
        "no_repeat_ngram_size": getattr(config, "no_repeat_ngram_size", None) or 0,
    }
    if (getattr(config, "num_beams", None) or 1) > 1 and not getattr(config, "do_sample", False):
        values["num_beams"] = config.num_beams
    if family.prompt is not None:
        values["prompt"] = family.prompt
    return DecodingConfig(**values)
