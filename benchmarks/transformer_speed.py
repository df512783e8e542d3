"""How fast the transformer decodes and trains: against the plain way, and against the code that its weights come from.

    python benchmarks/transformer_speed.py [--regions 36] [--images 10] [--repeats 5] [--threads 2] [--json]
    python benchmarks/transformer_speed.py --reference CHECKOUT      # of ImageCaptioning.pytorch, at 4c48a33 (and six)

The paper's base model (6 and 6 layers of 512, 8 heads, 2,048), 9,488 words, float32, random weights with the layer norm
of the published ones. Decoding is a beam of 5 for 20 words: `end` cannot be said, so that what the weights are does not
matter. A training step has 5 captions of 17 words for each image: the forward pass with dropout, the likelihood, the
backward pass and Adam.

The plain way (`plain.py`) has no cache and copies what it encoded for every beam; in training it copies the features
for every caption in front of the encoder, as the reference does. All have the same weights: the captions are compared
word by word first, and the gradients of the embeddings without dropout; a different word or gradient is an error.

With one thread the time is that of the processor, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import plain
from decode_speed import seconds
from rows import show
from showtell import counter_rng
from showtell.decoding import beam
from showtell.models.transformer import TransformerConfig, TransformerDecoder
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig
from showtell.text.vocabulary import SPECIAL, Vocabulary
from showtell.types import Batch, Features

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CONTEXT, WORDS, LENGTH, BEAMS, CAPTIONS, TRAINED = 2048, 9488, 20, 5, 5, 17
SILENT = [Vocabulary.pad, Vocabulary.begin, Vocabulary.end]


def make() -> TransformerDecoder:
    """The base model, which never says `end`."""
    torch.manual_seed(0)
    decoder = TransformerDecoder(TransformerConfig(layer_norm="unbiased"), feature_size=CONTEXT, vocabulary_size=WORDS)
    decoder.output.bias.data[SILENT] = -1e4
    return decoder.eval()


def make_features(images: int, regions: int) -> Features:
    """What a detector might say: not negative."""
    vectors = torch.randn(images, regions, CONTEXT, generator=torch.Generator().manual_seed(1)).relu()
    return Features(vectors, torch.ones(images, regions, dtype=torch.bool))


def make_batch(images: int) -> Batch:
    """Captions of words by chance, all of the same length."""
    generator = torch.Generator().manual_seed(2)
    words = torch.randint(len(SPECIAL), WORDS, (images, CAPTIONS, TRAINED + 1), generator=generator)
    words[..., 0] = Vocabulary.begin
    is_caption = torch.ones(images, CAPTIONS, dtype=torch.bool)
    return Batch(tuple(map(str, range(images))), None, words, is_caption)


def reference_models(checkout: Path, decoder: TransformerDecoder) -> dict[str, nn.Module]:
    """The reference's own models, without a cache and with one, with the weights of ours."""
    sys.path.insert(0, str(checkout))
    from captioning.models import TransformerModel, cachedTransformer  # type: ignore[import-not-found]

    size, config = decoder.config.hidden_size, decoder.config
    options = Namespace(
        vocab_size=WORDS - 1, vocab={str(word): f"word{word}" for word in range(1, WORDS)},
        input_encoding_size=size, rnn_size=config.feed_forward_size, num_layers=config.encoder_layers,
        drop_prob_lm=config.input_dropout, num_att_heads=config.heads, dropout=config.dropout, use_bn=0,
        seq_length=LENGTH, fc_feat_size=CONTEXT, att_feat_size=CONTEXT, att_hid_size=size,
        pad_idx=Vocabulary.pad, bos_idx=Vocabulary.begin, eos_idx=Vocabulary.end,
    )  # fmt: skip
    models = {"the reference": TransformerModel(options), "the reference with its cache": cachedTransformer(options)}
    for model in models.values():
        model.load_state_dict(reference_weights(decoder), strict=False)
        model.eval()
    return models


def reference_weights(decoder: TransformerDecoder) -> dict[str, Tensor]:
    """Our weights by the reference's names; its table of positions is not a weight."""
    names = {
        "feature_projection.0": "att_embed.0", "encoder_norm": "model.encoder.norm",
        "embedding": "model.tgt_embed.0.lut", "decoder_norm": "model.decoder.norm", "output": "model.generator.proj",
    }  # fmt: skip
    for stack, count in (("encoder", decoder.config.encoder_layers), ("decoder", decoder.config.decoder_layers)):
        sublayers = ["self_attention", *(["attention"] if stack == "decoder" else []), "feed_forward"]
        theirs = {"self_attention": "self_attn", "attention": "src_attn", "feed_forward": "feed_forward"}
        for number in range(count):
            ours, other = f"{stack}_layers.{number}", f"model.{stack}.layers.{number}"
            for order, sublayer in enumerate(sublayers):
                names[f"{ours}.{sublayer}_residual.norm"] = f"{other}.sublayer.{order}.norm"
                parts = (
                    {"inner": "w_1", "outer": "w_2"}
                    if sublayer == "feed_forward"
                    else {part: f"linears.{at}" for at, part in enumerate(("query", "key", "value", "output"))}
                )
                for part, their_part in parts.items():
                    names[f"{ours}.{sublayer}.{part}"] = f"{other}.{theirs[sublayer]}.{their_part}"
    weights = {}
    for name, tensor in decoder.state_dict().items():
        module, _, kind = name.rpartition(".")
        kind = {"weight": "a_2", "bias": "b_2"}[kind] if module.endswith("norm") else kind
        weights[f"{names[module]}.{kind}"] = tensor
    return weights


def trained(weights: nn.Module, loss: Callable[[], Tensor], **settings: bool) -> Callable[[], None]:
    """A step of training."""
    adam = torch.optim.Adam(weights.parameters(), lr=0.0, **settings)  # at no rate: all sides keep the same weights

    def step() -> None:
        weights.train()
        adam.zero_grad()
        loss().backward()
        adam.step()
        weights.eval()

    return step


def rows_of(images: int, regions: int, repeats: int, reference: Path | None) -> list[dict[str, Any]]:
    """Decoding and training against the plain way, and against the reference where there is one."""
    decoder, features, batch = make(), make_features(images, regions), make_batch(images)
    slow = plain.PlainTransformer(decoder)
    objective = CrossEntropy(CrossEntropyConfig(), feature_size=CONTEXT, vocabulary_size=WORDS)

    def our_loss() -> Tensor:
        with counter_rng.use(counter_rng.CounterRNG(0, 0, batch.image_ids)):  # as the training loop does
            return objective(batch, features, decoder).total

    def plain_loss() -> Tensor:
        logprobs = plain.teacher_forced(slow, features, batch.inputs)
        return F.nll_loss(logprobs.flatten(0, 2), batch.targets.flatten())

    decodings: dict[str, Callable[[], Tensor]] = {
        "ours": lambda: beam(decoder, features, LENGTH, BEAMS).words[:, 0],
        "the plain way": lambda: plain.beam(slow, features, LENGTH, BEAMS),
    }
    losses: dict[str, tuple[nn.Module, Callable[[], Tensor]]] = {
        "ours": (decoder, our_loss),
        "the plain way": (decoder, plain_loss),
    }
    nothing = features.vectors.new_zeros(images, CONTEXT)
    for name, model in ({} if reference is None else reference_models(reference, decoder)).items():

        def their_loss(model: nn.Module = model) -> Tensor:
            logprobs = model(nothing, features.vectors, batch.inputs)
            return F.nll_loss(logprobs.flatten(0, 1), batch.targets.flatten())

        @torch.no_grad()
        def their_captions(model: nn.Module = model) -> Tensor:
            options = {"beam_size": BEAMS, "sample_n": 1}
            return cast(Tensor, model(nothing, features.vectors, opt=options, mode="sample")[0])

        decodings[name], losses[name] = their_captions, (model, their_loss)

    ours = decodings["ours"]()
    gradient = torch.autograd.grad(our_loss(), decoder.embedding.weight)[0]
    for name, (weights, loss) in losses.items():
        if not torch.equal(decodings[name](), ours):
            raise RuntimeError(f"The captions of {name} are not ours.")
        table = next(value for value in weights.parameters() if value.shape == gradient.shape)
        difference = (torch.autograd.grad(loss(), table)[0] - gradient).norm() / gradient.norm()
        if difference > 1e-3:
            raise RuntimeError(f"The gradients of {name} differ from ours by {difference:.1e}.")

    rows = []
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    steps = {name: trained(weights, loss, fused=name == "ours") for name, (weights, loss) in losses.items()}
    about = {"images": images, "regions": regions, "words": WORDS, "threads": torch.get_num_threads()}
    for what, unit, amount, runs in (
        (f"decode_beam{BEAMS}", "images/s", images, decodings),
        ("train_step", "captions/s", images * CAPTIONS, steps),
    ):
        took = dict(zip(runs, seconds(repeats, *runs.values(), clock=clock), strict=True))
        for name in list(runs)[1:]:
            against = f"{name}, {amount / took[name]:.1f} {unit}"
            row = {"name": f"transformer_{what}", "value": amount / took["ours"], "unit": unit}
            rows.append({**row, "against": against, "ratio": took[name] / took["ours"], **about})
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, help="checkout of ImageCaptioning.pytorch")
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--regions", type=int, default=36)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    show(rows_of(arguments.images, arguments.regions, arguments.repeats, arguments.reference), arguments.json)


if __name__ == "__main__":
    main()
