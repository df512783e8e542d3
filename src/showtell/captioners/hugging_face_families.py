"""The captioning models of transformers by type: how each is asked for a caption, and what ends it.

Chat models need no entry in the table: whatever has a chat template is asked with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

CHAT_PROMPT = "Describe this photo in one short sentence."
CAPTION_TASKS = ("<CAPTION>", "<DETAILED_CAPTION>", "<MORE_DETAILED_CAPTION>")  # Florence-2's others draw boxes

Photos = Sequence[Image.Image]
Inputs = dict[str, Any]  # the arguments of `generate` that depend on the photos


@dataclass(frozen=True)
class Processor:
    """What makes the inputs of a model: its image processor, its tokenizer, and what joins both."""

    images: Any  # an image processor
    tokenizer: Any
    both: Any = None  # a processor; None where the model has none of its own


@dataclass(frozen=True)
class Family:
    """How models of a type caption."""

    inputs: Callable[[Processor, Photos, str | None], Inputs]  # of photos and a prompt, for `generate`
    prompt: str | None = None  # the default
    takes_prompt: bool = True
    prompts: tuple[str, ...] = ()  # those that it knows; empty: any
    max_length: int = 50  # tokens of a caption by default
    generator: str = ""  # the part of the model that generates, and whose generation settings count; "": the model
    end: str = ""  # setting of its text model with the token that ends captions; "": the generation settings name it
    text: str = r"(.+\.)?(language_model|text_model)\."  # names of the modules that write, whose layers learn
    begin: Callable[[Any, Inputs], Tensor] | None = None  # what captions follow, (B, T), if not `input_ids` or a token

    def generating_part(self, model: Any) -> Any:
        """The part of a model that generates."""
        return attrgetter(self.generator)(model) if self.generator else model

    def writes(self, layer: str) -> bool:
        """Whether the layer of this name is part of what writes the text."""
        return re.match(self.text, layer) is not None

    def logits(self, model: Any, inputs: Inputs, tokens: Tensor) -> Tensor:
        """The logits (B, T + 1, V) of given captions (B, T) and of what follows them, by one pass with gradients."""
        part = self.generating_part(model)
        if part.config.is_encoder_decoder:
            generation = part.generation_config
            start, forced = generation.decoder_start_token_id, getattr(generation, "forced_bos_token_id", None)
            begin = [generation.bos_token_id if start is None else start, *([] if forced is None else [forced])]
            given = {"decoder_input_ids": torch.cat((tokens.new_tensor(begin).expand(len(tokens), -1), tokens), 1)}
        else:
            given = _behind_prompt(self.begin(model, inputs) if self.begin else None, inputs, tokens, part)
        logits: Tensor = model(**{**inputs, **given}).logits
        return logits[:, -tokens.shape[1] - 1 :]  # before them stand photos and prompt


def _photos_and_prompt(processor: Processor, images: Photos, prompt: str | None) -> Inputs:
    """Photos alone, or each with a text that the caption continues."""
    text = {"text": [prompt] * len(images), "padding": True} if prompt else {}
    return dict((processor.both or processor.images)(images=list(images), return_tensors="pt", **text))


def _git_inputs(processor: Processor, images: Photos, prompt: str | None) -> Inputs:
    """The prompt follows the first token without the token that ends captions."""
    inputs = _photos_and_prompt(processor, images, None)
    if prompt:
        ids = processor.tokenizer(prompt, add_special_tokens=False).input_ids
        inputs["input_ids"] = torch.tensor([[processor.tokenizer.cls_token_id, *ids]] * len(images))
    return inputs


def _blip_2_inputs(processor: Processor, images: Photos, prompt: str | None) -> Inputs:
    """The places of the photo, then what texts begin with, then the prompt."""
    return dict(processor.both(images=list(images), text=[prompt or ""] * len(images), return_tensors="pt"))


def _chat_inputs(processor: Processor, images: Photos, prompt: str | None) -> Inputs:
    """One turn of a user: the photo, then the prompt."""
    text = [{"type": "text", "text": prompt}] if prompt else []
    turns = [[{"role": "user", "content": [{"type": "image", "image": image}, *text]}] for image in images]
    silent = {"enable_thinking": False} if "enable_thinking" in str(processor.both.chat_template) else {}
    options = {"padding": True, "return_tensors": "pt"}
    return dict(
        processor.both.apply_chat_template(
            turns, add_generation_prompt=True, tokenize=True, return_dict=True, processor_kwargs=options, **silent
        )
    )


def _blip_begin(model: Any, inputs: Inputs) -> Tensor:
    """As its `generate` changes the prompt: another first token, and without the last."""
    prompt = inputs.pop("input_ids", None)
    inputs.pop("attention_mask", None)
    begin = model.config.text_config.bos_token_id
    if prompt is None:
        return torch.full((len(inputs["pixel_values"]), 1), begin, device=model.device)
    return F.pad(prompt[:, 1:-1], (1, 0), value=begin)


def _behind_prompt(begin: Tensor | None, inputs: Inputs, tokens: Tensor, part: Any) -> Inputs:
    """The tokens behind the prompt, or behind the token that texts begin with, and masks that are as long."""
    if begin is None:
        first = tokens.new_full((len(tokens), 1), part.generation_config.bos_token_id or 0)
        begin = inputs.get("input_ids", first)
    masks = {"attention_mask": 1, "token_type_ids": 1, "mm_token_type_ids": 0}
    longer = {name: F.pad(inputs[name], (0, tokens.shape[1]), value=masks[name]) for name in masks if name in inputs}
    return {**longer, "input_ids": torch.cat((begin, tokens), 1)}


CHAT = Family(_chat_inputs, prompt=CHAT_PROMPT, max_length=100)
FAMILIES: Mapping[str, Family] = {
    "blip": Family(
        _photos_and_prompt, generator="text_decoder", end="sep_token_id", text=r"text_decoder\.", begin=_blip_begin
    ),
    "blip-2": Family(_blip_2_inputs, generator="language_model"),
    "git": Family(_git_inputs, text=r"git\.encoder\."),
    "florence2": Family(_photos_and_prompt, prompt="<CAPTION>", prompts=CAPTION_TASKS, max_length=100),
    "vision-encoder-decoder": Family(_photos_and_prompt, takes_prompt=False, text=r"decoder\."),
}
