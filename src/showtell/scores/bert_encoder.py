"""An encoder of texts as BERTScore uses it: the vectors of one of its layers, for each token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from showtell.errors import CheckpointError, UsageError
from showtell.scores.bert_score import Rows
from showtell.scores.encoders import Encoder, Reporting

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


class BertEncoder(Encoder):
    """An encoder cut off behind a layer, as in bert_score.

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

    def __init__(self, name: str, layer: int | None, batch_size: int, device: str | None, reporting: Reporting) -> None:
        super().__init__(name, batch_size, device, reporting)
        if self.model.config.is_encoder_decoder:
            self.model = self.model.get_encoder()
        layers = self._layers()
        short = self.name.partition("@")[0].rpartition("/")[2]
        if layer is None and short not in LAYERS:
            raise UsageError(
                f"It is not known which layer of {self.name} BERTScore compares; name one of its {len(layers)} with "
                "--bert-layer."
            )
        self.layer = LAYERS[short] if layer is None else layer
        if self.layer > len(layers):
            raise UsageError(
                f"{self.name} has {len(layers)} layers, and BERTScore was to compare layer {self.layer}; give "
                f"--bert-layer from 0 (its embeddings) to {len(layers)}."
            )
        del layers[self.layer :]
        limit = int(self.tokenizer.model_max_length)
        self.context = None if limit > _NO_LIMIT else limit
        self._leading = " " if type(self.tokenizer).__name__.startswith(_WITH_SPACE) else ""
        self.special_tokens = len(self.tokenizer("")["input_ids"])  # of a text without a word

    def _layers(self) -> nn.ModuleList:
        """The stack of layers, the outermost list of as many modules as the settings say."""
        layers = getattr(self.model.config, "num_hidden_layers", None)
        for module in self.model.modules():
            if isinstance(module, nn.ModuleList) and len(module) == layers:
                return module
        raise CheckpointError(
            f'{self.name} is a model of type "{self.model_type}" without one stack of layers, which BERTScore cuts '
            "off; give an encoder such as roberta-large, bert-base-uncased or deberta-large-mnli."
        )

    @property
    def signature(self) -> str:
        """What its vectors depend on, for people."""
        return self.signature_of(f"layer:{self.layer}")

    def prepare(self, text: str) -> str:
        """A text without white space around it, behind a space for some tokenizers."""
        return self._leading + text.strip() if text.strip() else ""

    def encode(self, ids: Sequence[Sequence[int]]) -> list[Rows]:
        """Unit vectors of the tokens of some texts, (tokens, D) each; texts of about one length are a batch."""
        ordered = sorted(range(len(ids)), key=lambda index: len(ids[index]))
        vectors: dict[int, Rows] = {}
        for first in range(0, len(ids), self.batch_size):
            batch = ordered[first : first + self.batch_size]
            padded = self.tokenizer.pad({"input_ids": [ids[index] for index in batch]}, return_tensors="pt")
            with torch.no_grad():
                hidden = self.model(**padded.to(self.device)).last_hidden_state
            units = nn.functional.normalize(hidden.float(), dim=-1).cpu().numpy()
            vectors |= {index: row[: len(ids[index])] for index, row in zip(batch, units, strict=True)}
        return [vectors[index] for index in range(len(ids))]
