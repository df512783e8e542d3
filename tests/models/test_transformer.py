"""The transformer against torch's own layers and a decoder without a cache; masks, positions, prefixes and refusals."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from showtell import counter_rng
from showtell.decoding import teacher_forced
from showtell.decoding.continuation import continuations
from showtell.decoding.sampling import inverse_cdf
from showtell.models import transformer as parts
from showtell.models.transformer import TransformerDecoder, sinusoids
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features
from tests.toys import random_decoder, random_features

BEGIN, END, PAD = Vocabulary.begin, Vocabulary.end, Vocabulary.pad
WORDS, SIZE = 13, 6  # of the vocabulary, of a feature vector


def transformer(seed: int = 0, dtype: torch.dtype = torch.float64, **settings: object) -> TransformerDecoder:
    small = {"hidden_size": 12, "heads": 3, "feed_forward_size": 20, "encoder_layers": 2, "decoder_layers": 2}
    config = {"name": "transformer", **small, "dropout": 0.0, **settings}
    decoder = random_decoder(config, seed=seed, std=0.6, feature_size=SIZE, vocabulary_size=WORDS, dtype=dtype)
    for module in decoder.modules():
        if isinstance(module, nn.LayerNorm):  # without its 1 all images have the same caption
            module.weight.data += 1
    return decoder


def sight(images: int = 3, regions: int = 5) -> Features:
    """Images of which each has one region less than the one before."""
    return random_features(images, regions, SIZE, present=[max(1, regions - image) for image in range(images)])


def captions(images: int = 3, rows: int = 2, steps: int = 7) -> Tensor:
    words = torch.randint(4, WORDS, (images, rows, steps), generator=torch.Generator().manual_seed(2))
    words[..., 0] = BEGIN
    return words


def torchs_attention(ours: parts.MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    """Give torch's layer our weights."""
    three = (ours.query, ours.key, ours.value)
    theirs.in_proj_weight.data = torch.cat([part.weight for part in three])
    theirs.in_proj_bias.data = torch.cat([part.bias for part in three])
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def torchs_logits(decoder: TransformerDecoder, features: Features, words: Tensor) -> Tensor:
    """The logits (B, N, T, V) by torch's own transformer with the same weights, each caption with its own copy."""
    config = decoder.config
    settings = {
        "d_model": config.hidden_size, "nhead": config.heads, "dim_feedforward": config.feed_forward_size,
        "dropout": 0.0, "batch_first": True, "norm_first": config.norm == "pre", "dtype": torch.float64,
    }  # fmt: skip
    layers: list[nn.Module] = []
    for own in (*decoder.encoder_layers, *decoder.decoder_layers):
        of_words = hasattr(own, "attention")
        layer = (nn.TransformerDecoderLayer if of_words else nn.TransformerEncoderLayer)(**settings)  # type: ignore[arg-type]
        torchs_attention(own.self_attention, layer.self_attn)
        if of_words:
            torchs_attention(own.attention, layer.multihead_attn)
        layer.linear1.load_state_dict(own.feed_forward.inner.state_dict())
        layer.linear2.load_state_dict(own.feed_forward.outer.state_dict())
        residuals = [module for module in own.children() if isinstance(module, parts.Residual)]
        for number, residual in enumerate(residuals, 1):
            getattr(layer, f"norm{number}").load_state_dict(residual.norm.state_dict())
        layers.append(layer.eval())
    images, rows, steps = words.shape
    ignored = ~features.is_region
    memory = decoder.feature_projection(features.vectors)
    for layer in layers[: config.encoder_layers]:
        memory = layer(memory, src_key_padding_mask=ignored)
    memory = decoder.encoder_norm(memory).repeat_interleave(rows, 0)
    positions = sinusoids(torch.arange(steps), config.hidden_size)
    x = decoder.embedding(words.flatten(0, 1)) * config.hidden_size**0.5 + positions
    mask = torch.ones(steps, steps, dtype=torch.bool).triu(1)
    for layer in layers[config.encoder_layers :]:
        x = layer(x, memory, tgt_mask=mask, memory_key_padding_mask=ignored.repeat_interleave(rows, 0))
    return decoder.output(decoder.decoder_norm(x)).view(images, rows, steps, -1)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_it_is_torchs_own_transformer(norm):
    decoder, features, words = transformer(norm=norm), sight(), captions()
    ours = teacher_forced(decoder, features, words).logits
    torch.testing.assert_close(ours, torchs_logits(decoder, features, words), atol=1e-8, rtol=1e-6)


def test_positions_by_hand():
    """d = 4: rates 1 and 1 / 100."""
    expected = [[f(t * rate) for rate in (1.0, 0.01) for f in (math.sin, math.cos)] for t in (0, 3)]
    torch.testing.assert_close(sinusoids(torch.tensor([0, 3]), 4), torch.tensor(expected))
    assert sinusoids(torch.tensor([[2]]), 5).shape == (1, 1, 5)


def test_the_unbiased_norm_by_hand():
    """Of 1, 2, 6: mean 3, squared distances 4, 1, 9, so a deviation of sqrt(14 / 2)."""
    norm = parts.UnbiasedLayerNorm(3).double()
    nn.init.constant_(norm.weight, 2.0)
    nn.init.constant_(norm.bias, 0.5)
    expected = [0.5 + 2 * distance / (7**0.5 + 1e-6) for distance in (-2, -1, 3)]
    assert norm(torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)).tolist() == pytest.approx(expected, abs=1e-12)
    constant = torch.full((3,), 4.0, dtype=torch.float64, requires_grad=True)
    norm(constant).sum().backward()
    assert constant.grad is not None and bool(constant.grad.isfinite().all())  # of a vector without deviation too


def test_attention_is_the_mean_over_the_heads_of_the_last_layer():
    decoder, features = transformer(decoder_layers=1, norm="post"), sight()
    output, _ = decoder.step(torch.full((3, 1), BEGIN), decoder.start(features))
    layer = decoder.decoder_layers[0]
    begin = decoder.embedding.weight[BEGIN] * 12**0.5 + sinusoids(torch.tensor(0), 12)
    seen = layer.self_attention  # the first word sees itself alone
    x = layer.self_attention_residual.norm(begin + seen.output(seen.value(begin)))
    memory = decoder.feature_projection(features.vectors)
    for own in decoder.encoder_layers:
        memory = own(memory, features.is_region)
    query, keys = layer.attention.query(x).view(3, 4), layer.attention.key(memory).view(3, 5, 3, 4)
    scores = torch.einsum("hd,brhd->bhr", query, keys) / 4**0.5
    expected = scores.masked_fill(~features.is_region.unsqueeze(1), -torch.inf).softmax(-1).mean(1)
    torch.testing.assert_close(output.attention.squeeze(1), expected)
    assert output.attention[2, 0, 3:].tolist() == [0, 0]


def test_prefixes_are_completed_as_by_a_plain_loop():
    """Rows that have read different numbers of words stand beside each other; the plain loop reads each alone."""
    decoder, features, times, longest = transformer(seed=5), sight(2), 3, 6
    words = torch.tensor([[[4, 5, 6, END], [7, END, PAD, PAD]], [[8, 9, 10, 4], [END, PAD, PAD, PAD]]])
    uniform = torch.rand(2, 2, times, 4, longest + 1, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    drawn = continuations(decoder, features, words, uniform, max_length=longest)
    lengths = set()
    for image, row, time, step in product(range(2), range(2), range(times), range(4)):
        if words[image, row, step] == PAD:
            continue
        alone = Features(features.vectors[[image]], features.is_region[[image]])
        caption = words[image, row, : step + 1].tolist()
        while caption[-1] != END and len(caption) <= longest:
            logits = teacher_forced(decoder, alone, torch.tensor([[[BEGIN, *caption]]])).logits[0, 0, -1]
            chances = logits.softmax(-1).index_fill(-1, torch.tensor([PAD, BEGIN]), 0.0)
            chosen = int(inverse_cdf(chances, uniform[image, row, time, step, len(caption)]))
            if len(caption) == longest and chosen != END:
                break
            caption.append(chosen)
        lengths.add(len(caption) - step)
        assert [word for word in drawn[image, row, time, step].tolist() if word != PAD] == caption
    assert len(lengths) > 2


def test_masks_of_dropout_depend_on_an_images_own_captions_alone():
    """Other images, captions, longer ones and padded regions beside it change nothing of what an image learns."""
    decoder = transformer(dropout=0.3, input_dropout=0.2).train()
    features, words = sight(), captions()

    def forced(images: list[int], rows: int, steps: int, regions: int) -> Tensor:
        own = Features(features.vectors[images, :regions], features.is_region[images, :regions])
        with counter_rng.use(counter_rng.CounterRNG(0, 7, [f"image {image}" for image in images])):
            return teacher_forced(decoder, own, words[images, :rows, :steps]).logits

    whole = forced([0, 1, 2], 2, 7, 5)
    torch.testing.assert_close(forced([2], 2, 7, 5), whole[[2]])
    torch.testing.assert_close(forced([1, 0], 1, 7, 5), whole[[1, 0], :1])
    torch.testing.assert_close(forced([0, 2], 2, 4, 5), whole[[0, 2], :, :4])
    torch.testing.assert_close(forced([2], 2, 7, 3), whole[[2]])  # the image has three regions
    with torch.no_grad():
        undropped = teacher_forced(decoder.eval(), features, words).logits
    assert float((undropped - whole.detach()).abs().min(-1).values.max()) > 1e-3
