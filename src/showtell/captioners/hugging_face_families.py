"""The captioning models of transformers by type: how each is asked for a caption, and what ends it.

A family says how a batch of photos becomes the inputs of `generate`, which part of the model generates, and whether its
cross-attention is over patches of the photo. Chat models need no entry: whatever has a chat template is asked with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from showtell.errors import UsageError, shorten

CHAT_PROMPT = "Describe this photo in one short sentence."
CAPTION_TASKS = (
    "<CAPTION>",
    "<DETAILED_CAPTION>",
    "<MORE_DETAILED_CAPTION>",
)  # of Florence-2; its other tasks draw boxes

Inputs = dict[str, Any]  # the arguments of `generate` that depend on the photos


@dataclass(frozen=True)
class Processor:
    """What makes the inputs of a model: its image processor, its tokenizer, and what joins both."""

    images: Any  # an image processor
    tokenizer: Any
    both: Any = None  # a processor; None where the model has none of its own


@dataclass(frozen=True)
class Family:
    """How models of a type caption.

    Args:
        prompt: the default one; None: it is asked nothing.
        takes_prompt: whether there can be one.
        max_length: tokens of a caption by default.
        generator: path to the part of the model that generates, and whose generation settings count; "" is the model.
        inputs: makes the arguments of `generate`.
        attention: the cross-attention, of a model, its inputs and the tokens (B, T) of captions: (B, T + 1, positions),
            the mean over layers and heads for each token and the end; the patches of the photo are the last positions.
    """

    prompt: str | None = None
    takes_prompt: bool = True
    max_length: int = 50
    generator: str = ""
    inputs: Callable[[Processor, Sequence[Image.Image], str | None], Inputs] = lambda *_: {}
    attention: Callable[[Any, Inputs, Tensor], Tensor] | None = None

    def generating_part(self, model: Any) -> Any:
        """The part of a model that generates."""
        return attrgetter(self.generator)(model) if self.generator else model

    def end_ids(self, model: Any) -> list[int]:
        """The tokens that end a caption; it may be any of them."""
        if self is FAMILIES["blip"]:  # its `generate` ends with this one, whatever its generation settings say
            return [int(model.config.text_config.sep_token_id)]
        end = self.generating_part(model).generation_config.eos_token_id
        return [int(token) for token in end] if isinstance(end, list | tuple) else [] if end is None else [int(end)]

    def check_prompt(self, prompt: str | None, name: str) -> None:
        """Refuse a prompt that the family does not know.

        Raises:
            UsageError: it takes none, or only others.
        """
        if self is FAMILIES["florence2"] and prompt not in CAPTION_TASKS:
            raise UsageError(
                f"{name} is of Florence-2, which captions for the prompts {', '.join(CAPTION_TASKS)}; "
                f'"{shorten(str(prompt))}" is none of them.'
            )


def family_of(model_type: str, processor: Processor) -> Family | None:
    """The family of a model type, or None if it is not known how to ask it for a caption."""
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    return CHAT if getattr(processor.both, "chat_template", None) else None


# --- inputs ---


def _photos_and_prompt(processor: Processor, images: Sequence[Image.Image], prompt: str | None) -> Inputs:
    """As BLIP and BLIP-2: photos alone, or each with a text that the caption continues."""
    if not prompt:
        return dict(processor.both(images=list(images), return_tensors="pt"))
    return dict(processor.both(images=list(images), text=[prompt] * len(images), padding=True, return_tensors="pt"))


def _git_inputs(processor: Processor, images: Sequence[Image.Image], prompt: str | None) -> Inputs:
    """The prompt follows the first token without the token that ends captions."""
    inputs = dict(processor.images(images=list(images), return_tensors="pt"))
    if prompt:
        ids = processor.tokenizer(prompt, add_special_tokens=False).input_ids
        inputs["input_ids"] = torch.tensor([[processor.tokenizer.cls_token_id, *ids]] * len(images))
    return inputs


def _photos_alone(processor: Processor, images: Sequence[Image.Image], prompt: str | None) -> Inputs:
    return dict(processor.images(images=list(images), return_tensors="pt"))


def _paligemma_inputs(processor: Processor, images: Sequence[Image.Image], prompt: str | None) -> Inputs:
    inputs = _photos_and_prompt(processor, images, f"<image>{prompt or ''}")
    inputs.pop("labels", None)  # are for training
    return inputs


def _chat_inputs(processor: Processor, images: Sequence[Image.Image], prompt: str | None) -> Inputs:
    """One turn of a user: the photo, then the prompt."""
    content = [{"type": "image"}, *([{"type": "text", "text": prompt}] if prompt else [])]
    silent = {"enable_thinking": False} if "enable_thinking" in str(processor.both.chat_template) else {}
    text = processor.both.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, **silent
    )
    begin = processor.tokenizer.bos_token
    has_begin = {"add_special_tokens": False} if begin and text.startswith(begin) else {}
    return dict(
        processor.both(
            images=[[image] for image in images],
            text=[text] * len(images),
            padding=True,
            return_tensors="pt",
            **has_begin,
        )
    )


# --- cross-attention ---


def _blip_attention(model: Any, inputs: Inputs, tokens: Tensor) -> Tensor:
    config = model.config.text_config
    begin = inputs["input_ids"][:, :-1].clone() if "input_ids" in inputs else tokens.new_zeros(len(tokens), 1)
    begin[:, 0] = config.bos_token_id
    patches = model.vision_model(pixel_values=inputs["pixel_values"])[0]
    outputs = model.text_decoder(
        input_ids=torch.cat((begin, tokens), 1), encoder_hidden_states=patches, output_attentions=True, return_dict=True
    )
    return _mean_attention(outputs.cross_attentions, begin.shape[1])


def _encoder_decoder_attention(model: Any, inputs: Inputs, tokens: Tensor) -> Tensor:
    config = model.generation_config
    start = config.bos_token_id if config.decoder_start_token_id is None else config.decoder_start_token_id
    begin = tokens.new_full((len(tokens), 1), start)
    before = model.decoder.config._attn_implementation
    model.decoder.set_attn_implementation("eager")  # the others compute no weights that could be looked at
    try:
        outputs = model(
            pixel_values=inputs["pixel_values"],
            decoder_input_ids=torch.cat((begin, tokens), 1),
            output_attentions=True,
            return_dict=True,
        )
    finally:
        model.decoder.set_attn_implementation(before)
    return _mean_attention(outputs.cross_attentions, 1)


def _mean_attention(layers: Sequence[Tensor], begin: int) -> Tensor:
    """The mean over layers, (B, heads, begin + T, positions) each, and heads, from where the first token is chosen."""
    mean = torch.stack([layer.float().mean(1) for layer in layers]).mean(0)
    return mean[:, begin - 1 :]


def patch_grid(model_type: str, config: Any) -> int | None:
    """Patches along each side of the photo, where the cross-attention is over a square grid of them."""
    family = FAMILIES.get(model_type)
    if family is None or family.attention is None:
        return None
    vision = config.vision_config if hasattr(config, "vision_config") else config.encoder
    image, patch = getattr(vision, "image_size", None), getattr(vision, "patch_size", None)
    if (
        not isinstance(image, int) or not isinstance(patch, int) or hasattr(vision, "depths")
    ):  # stages that merge patches
        return None
    return image // patch


CHAT = Family(prompt=CHAT_PROMPT, max_length=100, inputs=_chat_inputs)
FAMILIES: Mapping[str, Family] = {
    "blip": Family(generator="text_decoder", inputs=_photos_and_prompt, attention=_blip_attention),
    "blip-2": Family(generator="language_model", inputs=_photos_and_prompt),
    "git": Family(inputs=_git_inputs),
    "florence2": Family(prompt="<CAPTION>", max_length=100, inputs=_photos_and_prompt),
    "paligemma": Family(prompt="caption en", inputs=_paligemma_inputs),
    "vision-encoder-decoder": Family(takes_prompt=False, inputs=_photos_alone, attention=_encoder_decoder_attention),
}
