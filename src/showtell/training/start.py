"""The start of a run: new weights and the words of its captions, or the weights and words of a checkpoint.

With `training.start_from` the recipe's encoder and model have to be the checkpoint's, as they are where its sections
have no `name`; whether and how fast they learn, and dropout, may differ.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from showtell.captioners import Captioner, EncoderDecoderCaptioner
from showtell.captioners.opening import TRANSFORMERS, is_of_transformers
from showtell.checkpoint import Checkpoint, load_checkpoint
from showtell.config import differences, flat
from showtell.errors import RecipeError, summarise
from showtell.features import Encoder, build_encoder
from showtell.hub import find_checkpoint
from showtell.models import Decoder, build_decoder
from showtell.text.vocabulary import SPECIAL, Vocabulary
from showtell.training.recipe import Recipe
from showtell.training.recipe_loading import as_yaml

_ONLY_FOR_LEARNING = {"dropout", "input_dropout"}  # settings of models that do not change what trained weights compute


@dataclass(frozen=True)
class Start:
    """What a run begins with."""

    vocabulary: Vocabulary
    encoder: Encoder
    decoder: Decoder
    unknown: tuple[str, ...] = ()  # words of the captions that the checkpoint's vocabulary lacks, most frequent first
    added: int = 0  # how many of them got an id of their own
    about: Mapping[str, Any] = field(default_factory=dict)  # the checkpoint's record of its origin
    kind: type[EncoderDecoderCaptioner] = EncoderDecoderCaptioner  # of captioner, that the parts make

    def describe(self, checkpoint: str) -> str:
        """What a person should know of a start from this checkpoint."""
        if self.kind is not EncoderDecoderCaptioner:
            return f"starting from {checkpoint}"
        new, left = self.unknown[: self.added], self.unknown[self.added :]
        message = f"starting from {checkpoint}, vocabulary {len(self.vocabulary) - len(SPECIAL) - len(new)}"
        if new:
            message += f" and {len(new)} new: {summarise(new)}"
        if left:
            hint = "" if new else "; vocabulary.extend=true adds words"
            message += f"; {len(left)} words of the captions stay unknown: {summarise(left)}{hint}"
        return message


def start(recipe: Recipe, captions: Sequence[Sequence[str]], checkpoint: Path | str | None) -> Start:
    """Make vocabulary, encoder and decoder, or take a checkpoint's; a RecipeError names settings that differ there."""
    if recipe.model.name == TRANSFORMERS:
        return _start_of_transformers(recipe, str(checkpoint))
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
        decoder = build_decoder(recipe.model, feature_size=encoder.feature_size, vocabulary_size=len(vocabulary))
        return Start(vocabulary, encoder, decoder)
    folder = find_checkpoint(checkpoint)
    if is_of_transformers(folder):
        raise RecipeError(
            f"training.start_from={checkpoint} is a captioner of transformers, and the recipe has the model "
            f"{recipe.model.name}; leave the sections encoder and model out, as the recipe adapt/corrections does."
        )
    before = load_checkpoint(folder)
    _require_same_settings(recipe, before, checkpoint)
    vocabulary, unknown = _vocabulary(recipe, captions, before.vocabulary)
    encoder = build_encoder(recipe.encoder, load_weights=False)
    encoder.load_state_dict(before.encoder.state_dict())
    decoder = build_decoder(recipe.model, feature_size=encoder.feature_size, vocabulary_size=len(vocabulary))
    _take_weights(decoder, before.decoder)
    return Start(vocabulary, encoder, decoder, unknown, len(vocabulary) - len(before.vocabulary), before.origin)


def _start_of_transformers(recipe: Recipe, checkpoint: str) -> Start:
    """Take a captioner of transformers and give it adapters, or go on with the adapters of one that has learned."""
    from showtell.captioners import hugging_face_training as learning
    from showtell.captioners.hugging_face import TransformersCaptioner
    from showtell.captioners.hugging_face_adapters import TransformersConfig, adapt

    assert isinstance(recipe.model, TransformersConfig)
    captioner = Captioner.from_pretrained(checkpoint, "cpu")
    if not isinstance(captioner, TransformersCaptioner):  # a checkpoint of showtell
        raise RecipeError(
            f"model.name={TRANSFORMERS} is for captioners of transformers, and training.start_from={checkpoint} is a "
            "checkpoint of showtell; leave model.name out."
        )
    if captioner.adapted is None:
        adapt(captioner, recipe.model)
    else:
        models = ({"model": model.model_dump(mode="json")} for model in (recipe.model, captioner.adapted.config))
        _require_same(checkpoint, *models)
    prompt = captioner.check(recipe.decoding).prompt
    return Start(
        vocabulary=learning.TokenVocabulary(captioner, prompt),
        encoder=learning.TransformersEncoder(captioner, prompt),
        decoder=learning.TransformersDecoder(captioner, prompt),
        about={"licence": captioner.about.licence} if captioner.about.licence else {},
        kind=learning.TransformersLearner,
    )


def _require_same_settings(recipe: Recipe, before: Checkpoint, checkpoint: Path | str) -> None:
    model = before.decoder.config
    if recipe.model.name != model.name:
        raise RecipeError(
            f"training.start_from={checkpoint} has the model {model.name} and the recipe {recipe.model.name}; leave "
            f"model.name out, or choose a recipe of {model.name}."
        )
    settings = (
        {"encoder": encoder.feature_settings(), "model": model.model_dump(mode="json", exclude=_ONLY_FOR_LEARNING)}
        for encoder, model in ((recipe.encoder, recipe.model), (before.encoder.config, model))
    )
    _require_same(checkpoint, *settings)


def _require_same(checkpoint: Path | str, recipe: dict[str, Any], before: dict[str, Any]) -> None:
    if changed := differences(flat(recipe), flat(before)):
        overrides = [f"{key}={as_yaml(value)}" for key, (_, value) in changed.items()]
        raise RecipeError(
            f"training.start_from={checkpoint} has another encoder or model than the recipe; to start from it, add "
            f"{shlex.join(overrides)}"
        )


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
    """Take all weights, exactly; where the vocabulary has grown, the rows of its new words keep their first values."""
    kept = before.state_dict()
    for name, tensor in decoder.state_dict().items():
        tensor[tuple(slice(size) for size in kept[name].shape)] = kept[name]


class StartAverage:
    """The weights that are validated and kept as best/: those that learned, averaged with those of the start.

        theta = (1 - s) theta_learned + s theta_start      Wortsman et al. 2022, eq. 1, with s = 1 - alpha, the `share`

    On photos of the start's kind such an average forgets far less than what was learned, and keeps most of what it
    learned of new ones ("Robust fine-tuning of zero-shot models", CVPR 2022). With a share of 0 no weights are kept.
    """

    def __init__(self, model: nn.Module, share: float) -> None:
        self.share = share
        learning = model.named_parameters() if share else ()
        self._weights = {name: weight for name, weight in learning if weight.requires_grad}
        self.start = {name: weight.detach().clone() for name, weight in self._weights.items()}

    def load(self, start: Mapping[str, Tensor]) -> None:
        """Take the starting weights of a run that resumes."""
        for name, weight in start.items():
            self.start[name].copy_(weight)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside the block the model has the average; behind it exactly what it learned."""
        learned = {name: weight.detach().clone() for name, weight in self._weights.items()}
        try:
            with torch.no_grad():
                for name, weight in self._weights.items():
                    weight.lerp_(self.start[name], self.share)
            yield
        finally:
            with torch.no_grad():
                for name, weight in self._weights.items():
                    weight.copy_(learned[name])
