"""Opening a captioning model of transformers: what cannot be opened is refused before anything of it is loaded.

Weights come from safetensors alone, and code of a repository is never run.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from showtell.captioners.contract import Source
from showtell.captioners.hugging_face import TransformersCaptioner, translate_errors
from showtell.captioners.hugging_face_families import CHAT, FAMILIES, Family, Processor
from showtell.decoding_config import DecodingConfig
from showtell.errors import CheckpointError, MissingDependencyError, install_command, summarise
from showtell.files import read_json
from showtell.hub import INDEX, LOCAL, WEIGHTS, entries, missing_files, read_model_settings

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Generation settings of other searches than ours, which some repositories have.
_OTHER_SEARCHES = ("penalty_alpha", "dola_layers", "prompt_lookup_num_tokens", "stop_strings", "max_time")
_PROCESSORS = ("processor_config.json", "preprocessor_config.json")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.msgpack", "*.h5")


def open_transformers_folder(
    source: Source, device: str | torch.device, dtype: str | None = None
) -> TransformersCaptioner:
    """Open a captioning model of transformers; on the device "meta" without its weights, for its settings alone."""
    try:
        import transformers
    except ImportError as error:
        raise MissingDependencyError(
            f"{source.name} is a model of transformers, which is not installed: {install_command('transformers')}."
        ) from error
    _check_folder(source, transformers.__version__)
    advice = "a file is damaged, was not fetched to its end, or is of another model; get the files once more"
    with translate_errors(f"{source.name} cannot be opened", advice):
        processor = _open_processor(source.folder)
        dtype = dtype or "fp32"
        model = _open_settings(source) if str(device) == "meta" else _open_model(source, PRECISIONS[dtype])
        kind = model.config.model_type
        family = FAMILIES.get(kind, CHAT if getattr(processor.both, "chat_template", None) else None)
        if family is None:
            raise CheckpointError(
                f'{source.name} is a model of type "{kind}" without a chat template, and it is not known here how to '
                f"ask it for a caption; the types that need no template are {', '.join(FAMILIES)}."
            )
        _set_generation(model, processor.tokenizer, family)
        parts = {"model": model.to(device), "processor": processor, "family": family, "source": source}
        licence = _read_licence(source.folder)
        captioner = TransformersCaptioner(**parts, decoding=DecodingConfig(), dtype=dtype, licence=licence)
        captioner.decoding = _default_settings(captioner)
        return captioner


def _check_folder(source: Source, version: str) -> None:
    """Make sure that a folder holds a whole captioner that needs neither code of its own nor pickles."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    folder = source.folder
    for file in sorted(folder.rglob("*.json")):  # `AutoProcessor` runs code whatever it is told
        if any(key == "auto_map" and isinstance(value, dict | list | str) for key, value in entries(read_json(file))):
            raise CheckpointError(
                f"{source.name} needs Python code from its repository (auto_map in {file.name}), and such code is "
                "never run here; look for a version of it for transformers itself."
            )
    settings = read_model_settings(folder)
    kind = str(settings.get("model_type"))
    if kind not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        raise CheckpointError(
            f'{source.name} has a model of type "{kind}", which does not caption photos in transformers '
            f"{version}; types that do are {', '.join(FAMILIES)}, and chat models that see, such as "
            "llava, qwen2_vl and smolvlm. A new type may need: pip install --upgrade transformers."
        )
    pickles = sorted(file.name for pattern in _PICKLES for file in folder.glob(pattern))
    if pickles and not (folder / WEIGHTS).is_file() and not (folder / INDEX).is_file():
        raise CheckpointError(
            f"{source.name} has its weights as pickles alone ({summarise(pickles, 3)}), which can run code when they "
            f"are opened, so they are not opened here; get {WEIGHTS}, or convert them where you trust them."
        )
    missing = missing_files(folder)
    if not any((folder / name).is_file() for name in _PROCESSORS):
        missing.append(" or ".join(_PROCESSORS))
    if missing:
        raise CheckpointError(
            f"{source.name} is not whole: {folder} lacks {', '.join(missing)}; get what is missing from where it comes "
            "from, and put it into that folder."
        )


def _open_processor(folder: Path) -> Processor:
    """The processor, or the image processor and tokenizer of a model that has no processor of its own."""
    library = import_module("transformers")
    both = library.AutoProcessor.from_pretrained(folder, **LOCAL)
    if hasattr(both, "image_processor") and hasattr(both, "tokenizer"):
        images, tokenizer = both.image_processor, both.tokenizer
        both.chat_template = both.chat_template or getattr(tokenizer, "chat_template", None)
    else:  # this is one of them
        both = None
        images = library.AutoImageProcessor.from_pretrained(folder, **LOCAL)
        tokenizer = library.AutoTokenizer.from_pretrained(folder, **LOCAL)
    tokenizer.padding_side = "left"  # generation continues on the right
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return Processor(images, tokenizer, both)


def _open_settings(source: Source) -> Any:
    """The model without its weights."""
    library = import_module("transformers")
    config = library.AutoConfig.from_pretrained(source.folder, **LOCAL)
    with torch.device("meta"):
        model = library.AutoModelForImageTextToText.from_config(config)
    if (source.folder / "generation_config.json").is_file():
        model.generation_config = library.GenerationConfig.from_pretrained(source.folder, **LOCAL)
    return model


def _open_model(source: Source, dtype: torch.dtype) -> Any:
    library = import_module("transformers")
    model, report = library.AutoModelForImageTextToText.from_pretrained(
        source.folder, dtype=dtype, use_safetensors=True, output_loading_info=True, **LOCAL
    )
    # The poolers of vision models are part of no caption, and often not saved.
    missing = sorted(name for name in report["missing_keys"] if ".pooler." not in name)
    if missing:
        raise CheckpointError(
            f"The weights of {source.name} are not those of a captioner: {type(model).__name__} needs {len(missing)} "
            f"more tensors ({summarise(missing, 2)})."
        )
    return model


def _set_generation(model: Any, tokenizer: Any, family: Family) -> None:
    """Leave out other searches, and make sure that captions end: sometimes the tokenizer alone names the token."""
    part = family.generating_part(model)
    config, generation = part.config.get_text_config(decoder=True), part.generation_config
    for name in _OTHER_SEARCHES:
        setattr(generation, name, None)
    if family.end:
        generation.eos_token_id = getattr(config, family.end)
    candidates = (generation.eos_token_id, config.eos_token_id, tokenizer.eos_token_id, tokenizer.sep_token_id)
    generation.eos_token_id = next((token for token in candidates if token is not None), None)
    if generation.eos_token_id is None:
        raise CheckpointError(
            "The model names no token that ends a caption; set eos_token_id in its generation_config.json."
        )


def _read_licence(folder: Path) -> str | None:
    """The licence that the README of a repository names in its first lines."""
    from huggingface_hub import metadata_load

    head = (metadata_load(folder / "README.md") if (folder / "README.md").is_file() else None) or {}
    licence = head.get("license_name") or head.get("license")
    return None if licence is None else str(licence)


def _default_settings(captioner: TransformersCaptioner) -> DecodingConfig:
    """The settings that a model comes with, as far as they concern the search; it never samples unless it is asked."""
    family = captioner.family
    config = captioner.generator.part.generation_config
    length, most = config.max_new_tokens, config.max_length
    if length is None and most not in (None, 20) and not family.takes_prompt:  # 20 is what it is if nobody sets it
        length = most - 1  # counts the token that captions begin with
    length = family.max_length if length is None else length
    limit = captioner.position_limit
    beams = {} if config.do_sample or (config.num_beams or 1) < 2 else {"num_beams": config.num_beams}
    return DecodingConfig(
        max_length=max(1, min(length, 1000, length if limit is None else limit // 2)),
        no_repeat_ngram_size=config.no_repeat_ngram_size or 0,
        prompt=family.prompt,
        **beams,
    )
