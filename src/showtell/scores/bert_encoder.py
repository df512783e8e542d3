"""An encoder of texts as BERTScore uses it: the vectors of one of its layers, for each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from showtell.errors import CheckpointError, UsageError, summarise
from showtell.hub import open_config, quiet
from showtell.scores.model_files import (
    ModelFolder,
    OpenedModel,
    build,
    check_tokens,
    digest_of,
    find_model,
    open_tokenizer,
    read_tensors,
)
from showtell.scores.model_settings import Reporting

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
_POSITIONS_AFTER_PAD = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")  # which count them from there
_NO_LIMIT = 1_000_000  # tokens from which on a limit is none
_WITH_SPACE = ("Roberta", "GPT2")  # tokenizers to which bert_score gives a space in front of a text


@dataclass(eq=False, kw_only=True)
class BertEncoder(OpenedModel):
    """An encoder cut off behind a layer."""

    layer: int
    context: int | None  # tokens that it reads, special ones included; None: any number

    @property
    def digest(self) -> str:
        """A fingerprint of all that its vectors depend on."""
        return digest_of(self.fingerprint, self.architecture, self.layer, self.tokenizer.get_vocab())

    @property
    def signature(self) -> str:
        """What its vectors depend on, for people."""
        return self.signature_of(f"layer:{self.layer}")

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text with the special ones around them; what is beyond the context is left out."""
        stripped = [text.strip() for text in texts]
        if type(self.tokenizer).__name__.startswith(_WITH_SPACE):
            stripped = [f" {text}" if text else text for text in stripped]
        limits = {} if self.context is None else {"truncation": True, "max_length": self.context}
        ids: list[list[int]] = self.tokenizer(stripped, **limits)["input_ids"] if stripped else []
        return ids

    def count_truncated(self, texts: Sequence[str]) -> int:
        """How many texts have more tokens than it reads."""
        if self.context is None:
            return 0
        context = self.context
        long = [text for text in texts if len(text.encode()) > context // 2]
        with quiet():
            return sum(len(ids) > context for ids in self.tokenizer(long)["input_ids"]) if long else 0

    def weightless(self) -> set[int]:
        """The special tokens around a text, which count nothing."""
        return {one for one in (self.tokenizer.cls_token_id, self.tokenizer.sep_token_id) if one is not None}

    def num_special_tokens(self) -> int:
        """Of a text without a word."""
        return len(self.tokenizer("")["input_ids"])

    def encode(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Unit vectors of the tokens of a batch of texts, filled up behind their ends: (B, T, D)."""
        longest = max(map(len, ids))
        pad = self.tokenizer.pad_token_id
        tokens = torch.full((len(ids), longest), 0 if pad is None else pad)
        is_token = torch.zeros(len(ids), longest, dtype=torch.bool)
        for number, own in enumerate(ids):
            tokens[number, : len(own)] = torch.tensor(own)
            is_token[number, : len(own)] = True
        tokens, is_token = tokens.to(self.device), is_token.to(self.device)
        with torch.no_grad():
            vectors = self.model(tokens, attention_mask=is_token.long()).last_hidden_state
        return nn.functional.normalize(vectors.float(), dim=-1)


def open_bert(name: str, layer: int | None, batch_size: int, device: str | None, reporting: Reporting) -> BertEncoder:
    """Open an encoder of texts.

    Args:
        name: a folder, or a repository on the hub.
        layer: whose vectors are compared; 0 are those of the embeddings; None: that of `LAYERS`.
        batch_size: texts at once.
        device: where to compute; None: on a GPU if there is one.
        reporting: shows the progress of long work.

    Raises:
        CheckpointError: it is missing, incomplete, damaged or no encoder of texts.
        UsageError: it does not have the layer, or none is known for its name.
        MissingDependencyError: transformers is not installed.
    """
    model = find_model(name, with_processor=False)
    config = open_config(model.folder)
    tensors, fingerprint = read_tensors(model)
    built: Any = build(model, config, tensors, name)
    if config.is_encoder_decoder:
        built = built.get_encoder()
    layers = _layers(built, model)
    short = model.name.partition("@")[0].rpartition("/")[2]
    if layer is None and short not in LAYERS:
        raise UsageError(
            f"It is not known which layer of {model.name} BERTScore compares; name one of its {len(layers)} with "
            "--bert-layer."
        )
    chosen = LAYERS[short] if layer is None else layer
    if chosen > len(layers):
        raise UsageError(
            f"{model.name} has {len(layers)} layers, and BERTScore was to compare layer {chosen}; give --bert-layer "
            f"from 0 (its embeddings) to {len(layers)}."
        )
    del layers[chosen:]
    tokenizer = open_tokenizer(model)
    check_tokens(model, tokenizer, built.get_input_embeddings().weight.shape[0])
    return BertEncoder(
        name=model.name,
        revision=model.revision,
        fingerprint=fingerprint,
        layer=chosen,
        model=built.to(device or ("cuda" if torch.cuda.is_available() else "cpu")),
        tokenizer=tokenizer,
        context=_context(tokenizer, config),
        batch_size=batch_size,
        reporting=reporting,
    )


def _layers(built: Any, model: ModelFolder) -> nn.ModuleList:
    """The stack of layers, the one outermost list of modules.

    Raises:
        CheckpointError: there is none, or more than one.
    """
    lists = {name: module for name, module in built.named_modules() if isinstance(module, nn.ModuleList)}
    outermost = [name for name in lists if not any(name.startswith(f"{other}.") for other in lists)]
    if len(outermost) != 1 or len(lists[outermost[0]]) != built.config.num_hidden_layers:
        raise CheckpointError(
            f'{model.name} is a model of type "{model.model_type}" without one stack of layers '
            f"({summarise(outermost, 3) or 'there is none'}), which BERTScore cuts off; give an encoder such as "
            "roberta-large, bert-base-uncased or deberta-large-mnli."
        )
    layers: nn.ModuleList = lists[outermost[0]]
    return layers


def _context(tokenizer: Any, config: Any) -> int | None:
    """How many tokens an encoder reads: as many as its tokenizer says, and as it has positions for."""
    limits = [int(tokenizer.model_max_length)]
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and getattr(config, "position_biased_input", True):
        counted_from = config.pad_token_id + 1 if config.model_type in _POSITIONS_AFTER_PAD else 0
        limits.append(positions - counted_from)
    return None if min(limits) > _NO_LIMIT else min(limits)
