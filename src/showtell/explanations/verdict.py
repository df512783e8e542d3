"""One verdict on a captioner: whether its captions use the picture, and whether they are captions at all."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from showtell.captioners import Captioner, EncoderDecoderCaptioner
from showtell.captioners.photos import explain_photos
from showtell.captions import Caption, ExplainedCaption, Explanation
from showtell.datasets.records import CaptionRecord
from showtell.decoding.rollout import word_logprobs
from showtell.errors import ImageError
from showtell.features.store import FeatureStore
from showtell.features.stored_images import photo_or_stored
from showtell.scores import diagnose
from showtell.text.vocabulary import Vocabulary
from showtell.types import EncodedBatch, Features, map_tensors

SAME = 0.5  # share of images with one and the same caption
REPEATING = 0.25  # share of captions that run in circles
MIN_COLLAPSED_WORDS = 3  # of a caption whose words all look at one region, for its attention to have collapsed
COLLAPSED = 0.5  # share of photos with such a caption
CLOSED, STUCK, MIN_GATES = 0.05, 0.95, 20  # a gate is closed below, open above 1 minus that; share of so many words
MIN_GAIN, MIN_PHOTOS = 0.02, 8  # nats per word that a caption should lose with another photo; photos to say so
EXPLAINED, SHUFFLED = 12, 48  # photos of a split that are explained, and whose captions are exchanged


def verdict(
    captions: Sequence[ExplainedCaption], own: Sequence[float] = (), exchanged: Sequence[float] = ()
) -> list[str]:
    """What says that captions do not come from the picture, a sentence each. `own` and `exchanged` are the mean
    log-probabilities per word of true captions with their own photos and with those of others."""
    sentences = []
    collapsed = sum(map(has_collapsed, captions))
    if len(captions) > 1 and collapsed >= COLLAPSED * len(captions):
        sentences.append(
            f"in {collapsed} of {len(captions)} photos every word looks most at one and the same region: attention has "
            "collapsed, or has not been trained for long enough"
        )
    gates: dict[str, list[float]] = {}
    for caption in captions:
        for kind in caption.word_values:
            if kind.values.shape[1] == 1:
                gates.setdefault(kind.title, []).extend(kind.values[:, 0].tolist())
    for name, values in gates.items():
        shares = [sum(value < CLOSED for value in values), sum(value > 1 - CLOSED for value in values)]
        end = int(shares[1] > shares[0])
        if len(values) >= MIN_GATES and (share := shares[end] / len(values)) >= STUCK:
            where = f"above {1 - CLOSED}" if end else f"below {CLOSED}"
            sentences.append(
                f"{name} is {where} at {share:.0%} of {len(values)} words: it is stuck at {end} and chooses nothing; "
                "train longer, or lower the learning rate"
            )
    gains = [one - other for one, other in zip(own, exchanged, strict=True)]
    if len(gains) >= MIN_PHOTOS:
        error = statistics.stdev(gains) / math.sqrt(len(gains))
        if statistics.fmean(gains) < max(MIN_GAIN, 2 * error):
            sentences.append(
                f"captions are as likely with another's photo: the loss per word is {-statistics.fmean(own):.3f}, and "
                f"{-statistics.fmean(exchanged):.3f} with the {len(gains)} photos exchanged, so the picture is not "
                "used; train longer, and check the features and that photos and captions belong together"
            )
    return sentences


def has_collapsed(caption: ExplainedCaption) -> bool:
    """Whether the attention of every word peaks at the same region."""
    if caption.attention is None or len(caption.words) < MIN_COLLAPSED_WORDS or caption.attention.shape[1] == 1:
        return False
    is_peak = caption.attention == caption.attention.amax(1, keepdim=True)  # even weights have no peak of their own
    return bool((is_peak.sum(1) == 1).all() and (is_peak == is_peak[0]).all())


def verdict_of_models(explanations: Sequence[Explanation]) -> list[str]:
    """The verdict on each model of some explanations, behind its title."""
    captions: dict[str, list[ExplainedCaption]] = {}
    for explanation in explanations:
        for model in explanation.models:
            captions.setdefault(model.model, []).append(model.caption)
    return [f"{model}: {sentence}." for model, own in captions.items() for sentence in verdict(own)]


def verdict_on_features(captioner: EncoderDecoderCaptioner, features: Features, words: Tensor) -> list[str]:
    """The verdict on a model in training: features of B images with their captions (B, N, T + 1), the first of each."""
    given = words[:, :1].to(features.vectors.device)  # (B, 1, T + 1)
    both = torch.cat([given, given.roll(-1, 0)], 1)
    means = word_logprobs(captioner.decoder, features, both).sum(-1) / (both[..., 1:] != Vocabulary.pad).sum(-1)
    captions: list[ExplainedCaption] = []
    if captioner.abilities.attention is not None:
        some = map_tensors(features, lambda x: x[:EXPLAINED])
        batch = EncodedBatch(some, torch.zeros(len(some.vectors), 4))  # where its regions are is not asked
        settings = captioner.settings(num_beams=1, num_return_sequences=1, search="greedy")
        captions = [model.caption for model in captioner.explain_encoded(batch, settings)]
    return verdict(captions, means[:, 0].tolist(), means[:, 1].roll(1).tolist())


def verdict_on_checkpoint(
    captioner: Captioner, records: Sequence[CaptionRecord], store: FeatureStore | None = None
) -> list[str]:
    """The verdict by some images of a split that can be read; a captioner on a server is not asked."""
    if "pixels" not in captioner.abilities.saliency:  # nor does it tell how likely given captions are
        return []
    readable = []
    for record in records[:SHUFFLED]:
        photo = photo_or_stored(record, store)
        if record.captions and (store is None or record.image_id in store):
            with contextlib.suppress(ImageError):
                captioner.prepare(photo)
                readable.append((photo, record.captions[0]))
    photos, texts = [photo for photo, _ in readable], [text for _, text in readable]
    explained = explain_photos({captioner.about.name: captioner}, photos[:EXPLAINED])
    captions = [result.models[0].caption for _, result in explained if isinstance(result, Explanation)]
    pairs = captioner.logprobs(photos, [[*pair] for pair in zip(texts, [*texts[1:], *texts[:1]], strict=True)])
    means = [[text.logprob / (len(text.words) + 1) for text in pair] for pair in pairs]
    own, exchanged = [right for right, _ in means], [wrong for _, wrong in means]
    by_name = {str(number): caption for number, caption in enumerate(captions)}
    return [*verdict(captions, own, [*exchanged[-1:], *exchanged[:-1]]), *caption_warnings(by_name)]


def caption_warnings(captions: Mapping[str, Caption | ExplainedCaption], rewarded: bool = False) -> list[str]:
    """What is wrong with captions by image id, a sentence each; more training brings rewarded ones nothing."""
    advice = "lower the learning rate, or begin from other weights"
    if not rewarded:
        advice = "train longer or lower the learning rate"
    sentences = []
    texts = [caption.text for caption in captions.values()]
    if len(texts) >= 4 and (share := diagnose(texts)["most_common"]) >= SAME:
        sentences.append(
            f'{round(share * len(texts))} of {len(texts)} images have the same caption ("{statistics.mode(texts)}"): '
            f"the model does not look at the picture; if it stays so, check that the images differ, and {advice}"
        )
    circling = [caption.text for caption in captions.values() if runs_in_circles(caption)]
    if texts and len(circling) / len(texts) >= REPEATING:
        count = f"{len(circling)} of {len(texts)} captions"
        sentences.append(f'{count} repeat themselves without end (such as "{circling[0]}"): {advice}')
    return sentences


def runs_in_circles(caption: Caption | ExplainedCaption) -> bool:
    """Whether a caption was cut off by the limit while it repeated its last words."""
    words = caption.text.split()
    periods = range(1, len(words) // 3 + 1)
    return not caption.finished and any(words[-period:] * 3 == words[-3 * period :] for period in periods)
