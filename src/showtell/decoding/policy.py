"""A decoder as a policy: sampled captions, the greedy one beside them, and the log-probability of their decisions.

For training with rewards. Samples and the greedy caption are rows of one walk, which keeps the gradients of its
outputs; the output layer, the widest, is applied once more where there are words, in one product. (A second pass by
`teacher_forced` gives the same: a test holds the two equal, `benchmarks/train_speed.py` compares them.) A decoder that
reads all words at once walks without gradients and is fed its samples once more, which costs it less.

The policy is the model without `pad` and `begin`, which no walk generates; its probabilities sum to one without them. A
caption is over when it ends or, cut off, when it has `max_length` words and `end` does not follow. Being cut off
is an outcome like any other:

    p(caption)  =  prod_t p(w_t | w_<t)                        the end included, where it came
    p(cut off)  =  prod_t p(w_t | w_<t) (1 - p(end | w_1 .. w_L))

These sum to one over all captions, so that the gradient of an expected reward is not biased by the limit.

`beam_rollouts` has the captions of a beam search instead of samples. A search reorders its rows and drops some, so its
captions are fed once more for their gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from showtell import counter_rng
from showtell.cuda_graphs import is_static, run_eagerly
from showtell.decoding.beam import beam
from showtell.decoding.ranking import stable_topk
from showtell.decoding.rollout import Captions, collect, outputs_in_place, trimmed
from showtell.decoding.rules import NEVER_GENERATED, NO_RULES, LogitsProcessor
from showtell.decoding.sampling import greedy, inverse_cdf, walk
from showtell.errors import UsageError
from showtell.models.contract import Capability, Decoder, Output
from showtell.models.kernels import log_likelihood
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features, map_tensors


@dataclass(frozen=True)
class Rollouts:
    """N sampled captions of each image, or those of a beam, and its greedy caption as row N."""

    captions: Captions  # (B, N + 1, T)
    outputs: Output | None  # of the samples alone, (B, N, T or more, ...); None where no gradients are asked for

    @property
    def samples(self) -> Captions:
        """(B, N, T), in the order in which they were drawn; of a beam, the best first."""
        return map_tensors(self.captions, lambda x: x[:, :-1])


def rollouts(decoder: Decoder, features: Features, max_length: int, samples: int) -> Rollouts:
    """Sample N captions, and the greedy one beside them, with the decoder in eval mode and draws of `counter_rng`."""
    numbers = counter_rng.uniform((len(features.vectors), samples, max_length + 1), features.vectors.device)

    def choose(logprobs: Tensor, images: Tensor, step: int) -> Tensor:
        drawn = inverse_cdf(logprobs[:, :-1].exp(), numbers[images, :, step])
        return torch.cat([drawn, stable_topk(logprobs[:, -1:], 1)[1].squeeze(-1)], 1)

    with_gradients, is_fed = torch.is_grad_enabled(), Capability.PARALLEL in decoder.capabilities
    keep = with_gradients and not is_fed
    processor = LogitsProcessor(NO_RULES, max_length=max_length, device=numbers.device)
    with torch.set_grad_enabled(keep):
        sequences, outputs = run_eagerly(walk(decoder, features, samples + 1, choose, processor, keep_outputs=keep))
    drawn = Rollouts(trimmed(collect(sequences.words, sequences.logprobs)), None)
    if with_gradients and is_fed:
        return replace(drawn, outputs=_fed_again(decoder, features, drawn.samples))
    return replace(drawn, outputs=outputs_in_place(outputs, sequences.words[:, :-1])) if keep else drawn


def beam_rollouts(decoder: Decoder, features: Features, max_length: int, num_beams: int) -> Rollouts:
    """The N captions of a beam search, all different, beside the greedy one; a UsageError if it finds fewer."""
    best = beam(decoder, features, max_length, num_beams)
    if best.logprob.isneginf().any():
        raise UsageError(f"There are fewer than {num_beams} captions of at most {max_length} words to be found.")
    pairs = [(rows.words, rows.word_logprobs) for rows in (best, greedy(decoder, features, max_length))]
    words, logprobs = (
        torch.cat([F.pad(x, (0, max_length + 1 - x.shape[-1])) for x in columns], 1)  # pad is 0
        for columns in zip(*pairs, strict=True)
    )
    drawn = Rollouts(trimmed(collect(words, logprobs)), None)
    if not torch.is_grad_enabled():
        return drawn
    return replace(drawn, outputs=_fed_again(decoder, features, drawn.samples))


def _fed_again(decoder: Decoder, features: Features, captions: Captions) -> Output:
    """The outputs of a decoder that is fed captions, at all of their decisions."""
    words = captions.words[..., : _steps(captions) - 1]
    return decoder.forced_outputs(features, F.pad(words, (1, 0), value=Vocabulary.begin))


def _decisions(captions: Captions) -> Tensor:
    """The number of decisions of captions: words, end, or being cut off: (B, N)."""
    return captions.is_word.sum(-1) + ~captions.is_finished


def _steps(captions: Captions) -> int:
    """The most decisions of a caption; those that there are room for, where shapes are static."""
    return captions.words.shape[-1] if is_static() else int(_decisions(captions).max())


def policy_logprobs(decoder: Decoder, outputs: Output | None, captions: Captions) -> Tensor:
    """The log-probability of each decision (a word, `end`, being cut off), (B, N, steps); 0 where there is none.

    `outputs` are of the steps of the captions, (B, N, T or more, ...): one step more than words for what was cut off.
    """
    assert outputs is not None, "rollouts without gradients keep none"
    steps = _steps(captions)
    words = F.pad(captions.words, (0, max(0, steps - captions.words.shape[-1])))[..., :steps]
    decides = torch.arange(steps, device=words.device) < _decisions(captions).unsqueeze(-1)  # (B, N, steps)
    outputs = map_tensors(outputs, lambda x: x[:, :, :steps])
    if is_static():
        return _decision_logprobs(decoder, outputs, words).masked_fill(~decides, 0.0)
    logprob = _decision_logprobs(decoder, map_tensors(outputs, lambda x: x[decides]), words[decides])
    return logprob.new_zeros(words.shape).masked_scatter(decides, logprob)


def _decision_logprobs(decoder: Decoder, outputs: Output, words: Tensor) -> Tensor:
    """The log-probability of each of (...) decisions, from outputs (..., ...) and words, `pad` where it was cut off."""
    is_cut = words == Vocabulary.pad  # none of the words that could follow was end
    scores = decoder.readout(outputs)  # (..., V), the largest tensor of a step, which is changed in place
    for word in NEVER_GENERATED:
        scores.detach()[..., word].fill_(float("-inf"))
    logprob = log_likelihood(scores, words.masked_fill(is_cut, Vocabulary.end))
    return torch.where(is_cut, (-torch.expm1(logprob.clamp(max=-torch.finfo(logprob.dtype).eps))).log(), logprob)
