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
    # Of models with cross-attention, which look at a photo once for all its captions: one pass over the inputs of B
    # photos and the tokens (B * N, T) of N captions of each. The outputs, and how many positions precede the tokens.
    read: Callable[..., tuple[Any, int]] | None = None

    def generating_part(self, model: Any) -> Any:
        """The part of a model that generates."""
        return attrgetter(self.generator)(model) if self.generator else model

    def writes(self, layer: str) -> bool:
        """Whether the layer of this name is part of what writes the text."""
        return re.match(self.text, layer) is not None

    def logits(self, model: Any, inputs: Inputs, tokens: Tensor) -> Tensor:
        """The logits of each token of given captions and of what follows the last, by one pass with gradients.

        Args:
            model: of this family.
            inputs: for `generate`, of a photo for each caption; with `read` of B photos with N captions each.
            tokens: (B * N, T), those of a photo beside each other, padded with anything.

        Returns:
            (B * N, T + 1, V).
        """
        if self.read is not None:
            outputs, _ = self.read(model, inputs, tokens)
        elif self.generating_part(model).config.is_encoder_decoder:
            outputs = _read_with_encoder(model, self.generating_part(model), inputs, tokens)
        else:
            outputs = _read_behind(model, inputs, tokens)
        logits: Tensor = outputs.logits[:, -tokens.shape[1] - 1 :]  # before them stand photos and prompt
        return logits

    def attention(self, model: Any, inputs: Inputs, tokens: Tensor) -> Tensor:
        """The cross-attention of a model with `read`, for each token (B, T) of captions and the end: the mean over
        layers and heads, (B, T + 1, positions), of which the last are the patches of the photo."""
        assert self.read is not None
        outputs, begin = self.read(model, inputs, tokens, output_attentions=True)
        mean = torch.stack([layer.float().mean(1) for layer in outputs.cross_attentions]).mean(0)
        return mean[:, begin - 1 :]


# --- inputs ---


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


def _paligemma_inputs(processor: Processor, images: Photos, prompt: str | None) -> Inputs:
    inputs = _photos_and_prompt(processor, images, f"<image>{prompt or ''}")
    inputs.pop("labels", None)  # are for training
    return inputs


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


# --- given captions ---


def _read_blip(model: Any, inputs: Inputs, tokens: Tensor, **options: Any) -> tuple[Any, int]:
    images = len(inputs["pixel_values"])
    rows = len(tokens) // images
    begin = inputs["input_ids"][:, :-1].clone() if "input_ids" in inputs else tokens.new_zeros(images, 1)
    begin[:, 0] = model.config.text_config.bos_token_id
    patches = model.vision_model(pixel_values=inputs["pixel_values"])[0].repeat_interleave(rows, 0)
    ids = torch.cat((begin.repeat_interleave(rows, 0), tokens), 1)
    return model.text_decoder(input_ids=ids, encoder_hidden_states=patches, **options), begin.shape[1]


def _read_vision_encoder_decoder(model: Any, inputs: Inputs, tokens: Tensor, **options: Any) -> tuple[Any, int]:
    patches = model.encoder(pixel_values=inputs["pixel_values"])[0]
    patches = patches.repeat_interleave(len(tokens) // len(patches), 0)
    ids = torch.cat((_start(model, tokens), tokens), 1)
    if options:
        model.decoder.set_attn_implementation("eager")  # the others compute no weights that could be looked at
    return model(encoder_outputs=(patches,), decoder_input_ids=ids, **options), 1


def _read_with_encoder(model: Any, part: Any, inputs: Inputs, tokens: Tensor) -> Any:
    forced = getattr(part.generation_config, "forced_bos_token_id", None)
    begin = [_start(part, tokens)] + ([] if forced is None else [tokens.new_full((len(tokens), 1), forced)])
    return model(**inputs, decoder_input_ids=torch.cat((*begin, tokens), 1))


def _read_behind(model: Any, inputs: Inputs, tokens: Tensor) -> Any:
    """The tokens stand behind the prompt, or the token that texts begin with."""
    begin = inputs.get("input_ids")
    begin = tokens.new_full((len(tokens), 1), model.generation_config.bos_token_id) if begin is None else begin
    masks = {"attention_mask": 1, "token_type_ids": 1, "mm_token_type_ids": 0}
    longer = {name: F.pad(inputs[name], (0, tokens.shape[1]), value=masks[name]) for name in masks if name in inputs}
    return model(**{**inputs, **longer, "input_ids": torch.cat((begin, tokens), 1)})


def _start(part: Any, tokens: Tensor) -> Tensor:
    """The token that a decoder behind an encoder begins with: (rows, 1)."""
    config = part.generation_config
    start = config.bos_token_id if config.decoder_start_token_id is None else config.decoder_start_token_id
    return tokens.new_full((len(tokens), 1), start)


CHAT = Family(_chat_inputs, prompt=CHAT_PROMPT, max_length=100)
FAMILIES: Mapping[str, Family] = {
    "blip": Family(
        _photos_and_prompt, generator="text_decoder", end="sep_token_id", text=r"text_decoder\.", read=_read_blip
    ),
    "blip-2": Family(_blip_2_inputs, generator="language_model"),
    "git": Family(_git_inputs, text=r"git\.encoder\."),
    "florence2": Family(_photos_and_prompt, prompt="<CAPTION>", prompts=CAPTION_TASKS, max_length=100),
    "paligemma": Family(_paligemma_inputs, prompt="caption en"),
    "vision-encoder-decoder": Family(
        _photos_and_prompt, takes_prompt=False, text=r"decoder\.", read=_read_vision_encoder_decoder
    ),
}
