"""Where a run starts: with fresh weights and the words of its captions, or where a checkpoint ended.

With `training.start_from` the encoder, the decoder and the vocabulary come from a checkpoint, to be trained on with
other captions, such as those that a person corrected. The recipe's encoder and model have to be the checkpoint's, as
they are where its sections have no `name`; whether and how fast they learn, and dropout, may differ.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml

from showtell.checkpoint import Checkpoint, load_checkpoint
from showtell.errors import RecipeError, summarise
from showtell.features import Encoder, build_encoder
from showtell.hub import find_checkpoint
from showtell.models import Decoder, build_decoder
from showtell.text.vocabulary import SPECIAL, Vocabulary
from showtell.training.recipe import Recipe

_LEARNS = {
    "dropout",
    "input_dropout",
}  # settings of models that say how weights learn, and nothing of what they compute


@dataclass(frozen=True)
class Start:
    """What is there before the first step."""

    vocabulary: Vocabulary
    encoder: Encoder
    decoder: Decoder
    unknown: tuple[str, ...] = ()  # words of the captions that the checkpoint's vocabulary lacks, most frequent first
    added: int = 0  # how many of them got an id of their own
    about: Mapping[str, Any] = field(default_factory=dict)  # what the checkpoint remembers

    def describe(self, checkpoint: str) -> str:
        """What a person should know of a start from this checkpoint."""
        known = len(self.vocabulary) - len(SPECIAL) - self.added
        message = f"starting from {checkpoint}, vocabulary {known}"
        if self.added:
            message += f" and {self.added} new: {summarise(self.unknown[: self.added])}"
        left = self.unknown[self.added :]
        if left:
            hint = "" if self.added else "; vocabulary.extend=true adds words"
            message += f"; {len(left)} words of the captions stay unknown: {summarise(left)}{hint}"
        return message


def start(recipe: Recipe, captions: Sequence[Sequence[str]], checkpoint: Path | str | None) -> Start:
    """Make or take vocabulary, encoder and decoder.

    Args:
        recipe: of the run.
        captions: the words of each training caption.
        checkpoint: to start from; None: afresh.

    Raises:
        RecipeError: the recipe's encoder or model is not the checkpoint's; the message names the keys.
        CheckpointError: there is no such checkpoint, or it is damaged.
    """
    if checkpoint is None:
        if recipe.vocabulary.extend:
            raise RecipeError("vocabulary.extend adds words to those of a checkpoint; name it in training.start_from.")
        vocabulary = Vocabulary.build(captions, recipe.vocabulary.min_count, recipe.vocabulary.max_size)
        if len(vocabulary) == len(SPECIAL):
            raise RecipeError(
                f"No word of the captions occurs {recipe.vocabulary.min_count} times, so there is nothing to learn to "
                "say; lower vocabulary.min_count."
            )
        encoder = build_encoder(recipe.encoder)
        return Start(vocabulary, encoder, _decoder(recipe, encoder, vocabulary))
    before = load_checkpoint(find_checkpoint(checkpoint))
    _compare(recipe, before, checkpoint)
    vocabulary, unknown = _vocabulary(recipe, captions, before.vocabulary)
    encoder = build_encoder(recipe.encoder, load_weights=False)
    encoder.load_state_dict(before.encoder.state_dict())
    decoder = _decoder(recipe, encoder, vocabulary)
    _take_weights(decoder, before.decoder)
    added = len(vocabulary) - len(before.vocabulary)
    return Start(vocabulary, encoder, decoder, unknown, added, before.about)


def _decoder(recipe: Recipe, encoder: Encoder, vocabulary: Vocabulary) -> Decoder:
    return build_decoder(recipe.model, feature_size=encoder.feature_size, vocabulary_size=len(vocabulary))


def _compare(recipe: Recipe, before: Checkpoint, checkpoint: Path | str) -> None:
    model = before.decoder.config
    if recipe.model.name != model.name:
        raise RecipeError(
            f"training.start_from={checkpoint} has the model {model.name} and the recipe {recipe.model.name}; leave "
            f"model.name out, or choose a recipe of {model.name}."
        )
    pairs = {
        "encoder": (recipe.encoder.feature_settings(), before.encoder.config.feature_settings()),
        "model": (
            recipe.model.model_dump(mode="json", exclude=_LEARNS),
            model.model_dump(mode="json", exclude=_LEARNS),
        ),
    }
    wanted = [
        f"{section}.{key}={_as_yaml(then, key)} (the recipe has {_as_yaml(now, key)})"
        for section, (now, then) in pairs.items()
        for key in {**then, **now}
        if now.get(key) != then.get(key)
    ]
    if wanted:
        overrides = shlex.join(
            f"{section}.{key}={_as_yaml(then, key)}"
            for section, (now, then) in pairs.items()
            for key in then
            if now.get(key) != then[key]
        )
        raise RecipeError(
            f"training.start_from={checkpoint} has another encoder or model than the recipe; to start from it, set "
            f"{summarise(wanted, 10)}. On the command line: {overrides}"
        )


def _as_yaml(settings: Mapping[str, Any], key: str) -> str:
    """A setting as a recipe has it."""
    if key not in settings:
        return "no such key"
    return yaml.safe_dump(settings[key], default_flow_style=True).removesuffix("...\n").strip()


def _vocabulary(
    recipe: Recipe, captions: Sequence[Sequence[str]], before: Vocabulary
) -> tuple[Vocabulary, tuple[str, ...]]:
    """The checkpoint's words, with the new ones behind them if the recipe wants those; and the words it lacks."""
    settings = recipe.vocabulary
    lacking = [[word for word in caption if word not in before] for caption in captions]
    counts = Counter(word for caption in lacking for word in caption)
    unknown = tuple(sorted(counts, key=lambda word: (-counts[word], word)))
    if not settings.extend:
        return before, unknown
    room = None if settings.max_size is None else max(0, settings.max_size + len(SPECIAL) - len(before))
    new = Vocabulary.build(lacking, settings.min_count, room).words[len(SPECIAL) :]
    return Vocabulary([*before.words[len(SPECIAL) :], *new]), unknown


@torch.no_grad()
def _take_weights(decoder: Decoder, before: Decoder) -> None:
    """Take all weights; where there are more words now, those of the old ones bit by bit; the new ones stay fresh."""
    kept = before.state_dict()
    for name, tensor in decoder.state_dict().items():
        tensor[tuple(slice(size) for size in kept[name].shape)] = kept[name]
