"""Captions of our models, explained: each word with its probability, its runners-up and where the model looked.

The caption comes from the usual search and is explained by the model's outputs of that search: probabilities are those
before the search's rules, and the regions that hard attention sampled are the ones that were sampled during the search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from showtell.captioners.occlusion import occlude
from showtell.captions import NUM_RUNNERS_UP, ExplainedCaption, ExplainedWord, ModelExplanation, WordValues
from showtell.decoding import DecodingConfig, StageView, search
from showtell.features import Encoder
from showtell.features.ensemble import EnsembleEncoder
from showtell.features.grid import GridEncoder
from showtell.models.contract import eval_mode
from showtell.text.vocabulary import Vocabulary
from showtell.types import EncodedBatch, Features, map_tensors

if TYPE_CHECKING:
    from showtell.captioners.encoder_decoder import EncoderDecoderCaptioner


@torch.no_grad()
def explain_batch(
    captioner: EncoderDecoderCaptioner,
    batch: EncodedBatch,
    settings: DecodingConfig,
    image_ids: Sequence[str] | None,
    occlusion: str | None,
) -> list[ModelExplanation]:
    """The explanations of a batch of photos, each with a caption per stage; see `Captioner.explain_encoded`."""
    decoder, features = captioner.decoder, batch.features
    rectangles = captioner.rectangles(batch)
    with eval_mode(decoder):
        if decoder.stages == 1:
            stages = [_explain_stage(captioner, batch, settings, image_ids, occlusion, None)]
        else:
            indices = range(decoder.stages) if settings.stage is None else [settings.stage]
            stages = [_explain_stage(captioner, batch, settings, image_ids, occlusion, stage) for stage in indices]
    categories = batch.categories or captioner.encoder.categories
    attributes = batch.attributes or captioner.encoder.attributes
    return [
        ModelExplanation(
            "",
            captions,
            None if rectangles is None else rectangles[image, features.is_region[image]].cpu(),
            grid_of(captioner.encoder, int(features.is_region[image].sum())),
            _region_labels(categories, attributes, features, image),
        )
        for image, captions in enumerate(zip(*stages, strict=True))
    ]


def _explain_stage(
    captioner: EncoderDecoderCaptioner,
    batch: EncodedBatch,
    settings: DecodingConfig,
    image_ids: Sequence[str] | None,
    occlusion: str | None,
    stage: int | None,
) -> list[ExplainedCaption]:
    """The best caption of each image at one stage; None is that of a decoder with a single one."""
    decoder, features = captioner.decoder, batch.features
    view = decoder if stage is None else StageView(decoder, stage)
    if stage is not None:
        settings = settings.changed(stage=stage)
    results = search(decoder, features, settings, captioner.vocabulary, image_ids=image_ids, keep_outputs=True)
    assert results.outputs is not None
    best = map_tensors(results.outputs, lambda x: x[:, :1])
    logits = decoder.readout(best, -1 if stage is None else stage)
    logprobs = logits.float().log_softmax(-1)[:, 0].cpu()  # (B, T, V), before the search's rules
    attention = None if best.attention is None else best.attention[:, 0].cpu()  # (B, T, R)
    sampled = None if best.sampled_regions is None else best.sampled_regions[:, 0].tolist()
    word_values = {title: values[:, 0].cpu() for title, values in best.diagnostics().items()}  # (B, T, K) each
    drops = None
    if occlusion is not None:
        begin = results.words.new_full((len(results.words), 1, 1), Vocabulary.begin)
        words = torch.cat((begin, results.words[:, :1]), -1)
        drops = occlude(captioner, batch, words, occlusion, decoder=view)[:, 0].cpu()  # (B, T, R)
    explained = []
    for image, (caption, *_) in enumerate(captioner.read_captions(results)):
        length, is_region = len(caption.words) + caption.finished, features.is_region[image].cpu()
        explained.append(
            ExplainedCaption(
                caption.text,
                _explain_words(
                    captioner.vocabulary,
                    results.words[image, 0, :length].cpu(),
                    logprobs[image, :length],
                    None if sampled is None else sampled[image][:length],
                    None if drops is None else drops[image, :length, is_region],
                ),
                caption.logprob,
                caption.finished,
                caption.confidence,
                title="" if stage is None else f"stage {stage} of 0 to {decoder.stages - 1}",
                attention=None if attention is None else attention[image, :length, is_region],
                word_values=tuple(WordValues(title, values[image, :length]) for title, values in word_values.items()),
            )
        )
    return explained


def _explain_words(
    vocabulary: Vocabulary, ids: Tensor, logprobs: Tensor, sampled: Sequence[int] | None, drops: Tensor | None
) -> tuple[ExplainedWord, ...]:
    """Word ids (T,), log-probabilities (T, V), sampled regions (T) with -1 for none, and drops (T, R), as words."""

    def text(index: int) -> str:
        return "" if index == vocabulary.end else vocabulary.words[index]

    probabilities = logprobs.gather(1, ids.unsqueeze(1)).squeeze(1).exp().tolist()
    rest = logprobs.clone()
    rest[:, [vocabulary.begin, vocabulary.pad]] = -math.inf  # never generated
    rest.scatter_(1, ids.unsqueeze(1), -math.inf)
    others = rest.topk(min(NUM_RUNNERS_UP, rest.shape[1]))
    words = []
    for position, index in enumerate(ids.tolist()):
        pairs = zip(others.indices[position].tolist(), others.values[position].tolist(), strict=True)
        words.append(
            ExplainedWord(
                text(index),
                probabilities[position],
                tuple((text(other), math.exp(logprob)) for other, logprob in pairs if logprob > -math.inf),
                sampled_region=None if sampled is None or sampled[position] < 0 else sampled[position],
                logprob_drop=None if drops is None else drops[position],
            )
        )
    return tuple(words)


def is_grid(encoder: Encoder) -> bool:
    """Whether the regions of an encoder, of an ensemble those of its first member, are the cells of a grid."""
    return isinstance(_first(encoder), GridEncoder)


def _first(encoder: Encoder) -> Encoder:
    return encoder.members[0] if isinstance(encoder, EnsembleEncoder) else encoder  # type: ignore[return-value]


def grid_of(encoder: Encoder, regions: int) -> tuple[int, int] | None:
    """(rows, columns) of the regions of an encoder, if they are the cells of a grid."""
    first = _first(encoder)
    return first.grid_of(regions) if isinstance(first, GridEncoder) else None


def _region_labels(
    categories: Sequence[str], attributes: Sequence[str], features: Features, image: int
) -> tuple[str, ...] | None:
    """What each region of an image is, with its attribute in front ("red car"); "" for none of the categories."""
    regions = features.regions
    if regions is None or regions.labels is None or not categories:
        return None

    def names(of: Sequence[str], indices: Tensor | None) -> list[str]:
        known = features.is_region[image]
        chosen = [-1] * int(known.sum()) if indices is None else indices[image, known].tolist()
        return [of[index] if 0 <= index < len(of) else "" for index in chosen]

    described = zip(names(attributes, regions.attributes), names(categories, regions.labels), strict=True)
    return tuple(f"{attribute} {category}".strip() if category else "" for attribute, category in described)
