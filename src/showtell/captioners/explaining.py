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

from showtell.captioners.saliency import occlude
from showtell.captions import NUM_RUNNERS_UP, ExplainedCaption, ExplainedWord, ModelExplanation, WordValues
from showtell.decoding import DecodingConfig, StageView, search
from showtell.features.grid import GridEncoder
from showtell.models.contract import eval_mode
from showtell.text.vocabulary import Vocabulary
from showtell.types import EncodedBatch, Features, map_tensors

if TYPE_CHECKING:
    from showtell.captioners.encoder_decoder import EncoderDecoderCaptioner


@torch.no_grad()
def explain_batch(
    captioner: EncoderDecoderCaptioner, photos: EncodedBatch, settings: DecodingConfig, *, saliency: str | None = None
) -> list[ModelExplanation]:
    """The best caption of each photo, explained; of a multi-stage decoder one per stage."""
    decoder, encoder = captioner.decoder, captioner.encoder
    features, rectangles = photos.features, captioner.rectangles(photos)
    indices: Sequence[int | None] = range(decoder.stages) if settings.stage is None else [settings.stage]
    if decoder.stages == 1:
        indices = [None]
    with eval_mode(decoder):
        stages = [_explain_stage(captioner, photos, settings, saliency, stage) for stage in indices]
    explanations = []
    categories, attributes = photos.categories or encoder.categories, photos.attributes or encoder.attributes
    for image, captions in enumerate(zip(*stages, strict=True)):
        known = features.is_region[image]
        boxes = None if rectangles is None else rectangles[image, known].cpu()
        grid = encoder.grid_of(int(known.sum())) if isinstance(encoder, GridEncoder) else None
        labels = _region_labels(categories, attributes, features, image)
        explanations.append(ModelExplanation("", captions, boxes, grid, labels, saliency=saliency))
    return explanations


def _explain_stage(
    captioner: EncoderDecoderCaptioner,
    batch: EncodedBatch,
    settings: DecodingConfig,
    saliency: str | None,
    stage: int | None,
) -> list[ExplainedCaption]:
    """The best caption of each image at one stage; None is that of a decoder with a single one."""
    decoder, features = captioner.decoder, batch.features
    view = decoder if stage is None else StageView(decoder, stage)
    if stage is not None:
        settings = settings.changed(stage=stage)
    names = captioner.sample_names(batch, settings)
    results = search(decoder, features, settings, captioner.vocabulary, image_ids=names, keep_outputs=True)
    assert results.outputs is not None
    best = map_tensors(results.outputs, lambda x: x[:, :1])
    logits = decoder.readout(best, -1 if stage is None else stage)
    logprobs = logits.float().log_softmax(-1)[:, 0].cpu()  # (B, T, V), before the search's rules
    attention = None if best.attention is None else best.attention[:, 0].cpu()  # (B, T, R)
    sampled = None if best.sampled_regions is None else best.sampled_regions[:, 0].tolist()  # -1: none
    word_values = {title: values[:, 0].cpu() for title, values in best.diagnostics().items()}  # (B, T, K) each
    drops = None  # how much less likely each word becomes where a region is hidden
    if saliency is not None:
        begin = results.words.new_full((len(results.words), 1, 1), Vocabulary.begin)
        words = torch.cat((begin, results.words[:, :1]), -1)
        drops = occlude(captioner, batch, words, saliency, decoder=view)[:, 0].cpu()  # (B, T, R)
    explained = []
    captions = captioner.calibrated(captioner.read_captions(results), settings, batch)
    for image, (caption, *_) in enumerate(captions):
        assert caption.logprob is not None and caption.confidence is not None  # None comes from servers alone
        length, is_region = len(caption.words) + caption.finished, features.is_region[image].cpu()
        own_drops = None if drops is None else drops[image, :length, is_region]
        regions = [-1] * length if sampled is None else sampled[image]
        ids = results.words[image, 0, :length].cpu()
        explained.append(
            ExplainedCaption(
                caption.text,
                _explain_words(captioner.vocabulary, ids, logprobs[image, :length], regions, own_drops),
                caption.logprob,
                caption.finished,
                caption.confidence,
                caption.doubt,
                title="" if stage is None else f"stage {stage} of 0 to {decoder.stages - 1}",
                attention=None if attention is None else attention[image, :length, is_region],
                word_values=tuple(WordValues(title, values[image, :length]) for title, values in word_values.items()),
            )
        )
    return explained


def _explain_words(
    vocabulary: Vocabulary, ids: Tensor, logprobs: Tensor, sampled: Sequence[int], drops: Tensor | None
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
        runners_up = tuple((text(other), math.exp(logprob)) for other, logprob in pairs if logprob > -math.inf)
        region = None if sampled[position] < 0 else sampled[position]
        drop = None if drops is None else drops[position]
        words.append(ExplainedWord(text(index), probabilities[position], runners_up, region, saliency=drop))
    return tuple(words)


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
