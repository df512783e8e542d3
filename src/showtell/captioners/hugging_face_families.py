"""The captioning models of transformers by type: how each is asked for a caption, and what ends it.

Chat models need no entry in the table: whatever has a chat template is asked with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from PIL import Image
from torch import Tensor

CHAT_PROMPT = "Describe this photo in one short sentence."
CAPTION_TASKS = ("<CAPTION>", "<DETAILED_CAPTION>", "<MORE_DETAILED_CAPTION>")  # Florence-2's others draw boxes

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

    inputs: Callable[[Processor, Sequence[Image.Image], str | None], Inputs]  # of photos and a prompt, for `generate`
    prompt: str | None = None  # the default
    takes_prompt: bool = True
    prompts: tuple[str, ...] = ()  # those that it knows; empty: any
    max_length: int = 50  # tokens of a caption by default
    generator: str = ""  # the part of the model that generates, and whose generation settings count; "": the model
    end: str = ""  # setting of its text model with the token that ends captions; "": the generation settings name it
    # The cross-attention of a model, its inputs and the tokens (B, T) of captions: (B, T + 1, positions), the mean over
    # layers and heads for each token and the end; the patches of the photo are the last positions.
    attention: Callable[[Any, Inputs, Tensor], Tensor] | None = None

    def generating_part(self, model: Any) -> Any:
        """The part of a model that generates."""
        return attrgetter(self.generator)(model) if self.generator else model


# --- inputs ---


def _photos_and_prompt(processor: Processor, images: Sequence[Image.Image], prompt: str | None) -> Inputs:
    """Photos alone, or each with a text that the caption continues."""
    text = {"text": [prompt] * len(images), "padding": True} if prompt else {}
    return dict((processor.both or processor.images)(images=list(images), return_tensors="pt", **text))


def _git_inputs(processor: Processor, images: Sequence[Image.Image], prompt: str | None) -> Inputs:
    """The prompt follows the first token without the token that ends captions."""
    inputs = _photos_and_prompt(processor, images, None)
    if prompt:
        ids = processor.tokenizer(prompt, add_special_tokens=False).input_ids
        inputs["input_ids"] = torch.tensor([[processor.tokenizer.cls_token_id, *ids]] * len(images))
    return inputs


def _paligemma_inputs(processor: Processor, images: Sequence[Image.Image], prompt: str | None) -> Inputs:
    inputs = _photos_and_prompt(processor, images, f"<image>{prompt or ''}")
    inputs.pop("labels", None)  # are for training
    return inputs


def _chat_inputs(processor: Processor, images: Sequence[Image.Image], prompt: str | None) -> Inputs:
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


# --- cross-attention ---


def _blip_attention(model: Any, inputs: Inputs, tokens: Tensor) -> Tensor:
    begin = inputs["input_ids"][:, :-1].clone() if "input_ids" in inputs else tokens.new_zeros(len(tokens), 1)
    begin[:, 0] = model.config.text_config.bos_token_id
    patches = model.vision_model(pixel_values=inputs["pixel_values"])[0]
    ids = torch.cat((begin, tokens), 1)
    outputs = model.text_decoder(input_ids=ids, encoder_hidden_states=patches, output_attentions=True)
    return _mean_attention(outputs.cross_attentions, begin.shape[1])


def _encoder_decoder_attention(model: Any, inputs: Inputs, tokens: Tensor) -> Tensor:
    config = model.generation_config
    start = config.bos_token_id if config.decoder_start_token_id is None else config.decoder_start_token_id
    ids = torch.cat((tokens.new_full((len(tokens), 1), start), tokens), 1)
    model.decoder.set_attn_implementation("eager")  # the others compute no weights that could be looked at
    outputs = model(pixel_values=inputs["pixel_values"], decoder_input_ids=ids, output_attentions=True)
    return _mean_attention(outputs.cross_attentions, 1)


def _mean_attention(layers: Sequence[Tensor], begin: int) -> Tensor:
    """The mean over layers, (B, heads, begin + T, positions) each, and heads, from where the first token is chosen."""
    mean = torch.stack([layer.float().mean(1) for layer in layers]).mean(0)
    return mean[:, begin - 1 :]


CHAT = Family(_chat_inputs, prompt=CHAT_PROMPT, max_length=100)
FAMILIES: Mapping[str, Family] = {
    "blip": Family(_photos_and_prompt, generator="text_decoder", end="sep_token_id", attention=_blip_attention),
    "blip-2": Family(_photos_and_prompt, generator="language_model"),
    "git": Family(_git_inputs),
    "florence2": Family(_photos_and_prompt, prompt="<CAPTION>", prompts=CAPTION_TASKS, max_length=100),
    "paligemma": Family(_paligemma_inputs, prompt="caption en"),
    "vision-encoder-decoder": Family(_photos_and_prompt, takes_prompt=False, attention=_encoder_decoder_attention),
}
