"""What every captioner answers: captions, log-probabilities of given texts, what it is and what it can do."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from showtell import CheckpointError, ImageError, UsageError
from showtell.captioners import Captioner, EncoderDecoderCaptioner
from showtell.captioners.contract import Abilities, About
from showtell.captions import Caption
from showtell.datasets import open_dataset
from showtell.decoding import DecodingConfig, StageView
from showtell.evaluation import evaluate
from showtell.models import Decoder
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features
from tests.toys import random_captioner, random_features

GPU = torch.device("cuda")
TEXTS = ("a b", "b", "", "c a b", "a zebra")


@pytest.fixture(scope="module")
def features() -> Features:
    return random_features(2, 4, 8, dtype=torch.float32, present=[4, 2])


def tiny(model: str = "sat", words: str = "a b c", **settings: object) -> EncoderDecoderCaptioner:
    """A captioner of some words over features of size 8."""
    config = {"name": model, "embedding_size": 6, "hidden_size": 7, **settings}
    encoder = {"name": "precomputed", "feature_size": 8, "source": "a test"}
    return random_captioner(encoder, config, words.split(), seed=3, std=0.7, max_length=4)


def by_hand(decoder: Decoder, features: Features, image: int, ids: list[int]) -> list[float]:
    """The log-probability of each id, one step after the other, without the walk of `decoding/`."""
    own = Features(features.vectors[image : image + 1], features.is_region[image : image + 1])
    state = decoder.start(own)
    logprobs, word = [], Vocabulary.begin
    for target in ids:
        output, state = decoder.step(torch.tensor([[word]]), state)
        logprobs.append(decoder.readout(output)[0, 0].double().log_softmax(-1)[target].item())
        word = target
    return logprobs


@pytest.mark.parametrize("model", ["sat", "stack"])
@torch.no_grad()
def test_logprobs_of_features_are_those_of_one_step_after_the_other(model: str, features: Features) -> None:
    captioner = tiny(model)
    for image, results in enumerate(captioner.logprobs_features(features, [TEXTS, TEXTS])):
        for text, result in zip(TEXTS, results, strict=True):
            ids = captioner.vocabulary.encode(text.split())[1:]
            expected = by_hand(captioner.decoder, features, image, ids)
            assert [word.word for word in result.words] == text.split() and result.text == text
            assert [word.logprob for word in result.words] == pytest.approx(expected[:-1], abs=1e-5)
            assert result.end == pytest.approx(expected[-1], abs=1e-5)
            assert result.logprob == pytest.approx(sum(expected), abs=1e-5)


@pytest.mark.parametrize("search", [{}, {"num_beams": 4, "num_return_sequences": 4}, {"search": "sample"}])
def test_they_are_those_that_a_search_reports(search: dict[str, object], features: Features) -> None:
    captioner = tiny()
    ranked = captioner.caption_features(features, captioner.settings(**search, max_length=12))
    for captions, results in zip(ranked, captioner.logprobs_features(features, ranked), strict=True):
        for caption, result in zip(captions, results, strict=True):
            assert result.text == caption.text
            logprobs = [word.logprob for word in caption.words]
            assert [word.logprob for word in result.words] == pytest.approx(logprobs, abs=1e-5)
            if caption.finished:
                assert result.logprob == pytest.approx(caption.logprob, abs=1e-5)


def test_a_stage_has_log_probabilities_of_its_own(features: Features) -> None:
    captioner = tiny("stack")
    texts = [["a b"], ["c"]]
    last = captioner.logprobs_features(features, texts)
    first = captioner.logprobs_features(features, texts, captioner.settings(stage=0))
    assert captioner.logprobs_features(features, texts, captioner.settings(stage=2)) == last
    with torch.no_grad():
        ids = captioner.vocabulary.encode(["a", "b"])[1:]
        expected = by_hand(StageView(captioner.decoder, 0), features, 0, ids)
    assert first[0][0].logprob == pytest.approx(sum(expected), abs=1e-5)
    assert first[0][0].logprob != pytest.approx(last[0][0].logprob, abs=1e-3)


def test_of_photos_they_are_those_of_their_features_whatever_the_batches(captioner, photos):
    photos = photos[:5]
    texts = ["a red circle", ["two stars", "a red circle"], "a blue square", "", "an unheard word"]
    results = captioner.logprobs(photos, texts, batch_size=2)
    assert [len(one) for one in results] == [1, 2, 1, 1, 1]
    (features,) = captioner.encode_photos(photos)
    others = captioner.logprobs_features(features, texts)
    for one, other in [*zip(results, others, strict=True), (results[1], captioner.logprobs(photos[1], texts[1]))]:
        assert [text.logprob for text in one] == pytest.approx([text.logprob for text in other], abs=1e-5)
    caption = captioner.caption(photos[0])[0]
    words = captioner.logprobs(photos[0], caption)[0].words
    assert [word.logprob for word in words] == pytest.approx([word.logprob for word in caption.words], abs=1e-4)
    unknown = captioner.logprobs(photos[0], "zebra")[0].words[0]
    assert unknown.word == "zebra" and unknown.logprob == captioner.logprobs(photos[0], "qwertz")[0].words[0].logprob


def test_what_does_not_fit_is_refused(captioner, tiny_checkpoint, photos, features):
    for texts in (["a"] * 2, ["a"] * 4):
        with pytest.raises(UsageError, match="not as many entries of texts as photos; give an entry for each photo"):
            captioner.logprobs(photos[:3], texts)
    with pytest.raises(UsageError, match="There are 3 entries of texts for 2 images"):
        tiny().logprobs_features(features, ["a", "b", "c"])
    for vectors, is_region, sentence in (
        (features.vectors[..., :5], features.is_region, "have 5 numbers to a vector, and sat was trained on 8"),
        (features.vectors, features.is_region[:, :2], r"not shapes \(2, 4, 8\) and \(2, 2\)"),
        (features.vectors, ~features.is_region, "or an image without a region"),
    ):
        with pytest.raises(UsageError, match=sentence):
            tiny().caption_features(Features(vectors, is_region))
    with pytest.raises(UsageError, match="sat takes no prompt: the models of showtell caption photos alone"):
        captioner.caption(photos[0], prompt="a photo of")
    with pytest.raises(UsageError, match='There is no precision "int8"'):
        Captioner.from_pretrained(tiny_checkpoint, dtype="int8")
    with pytest.raises(UsageError, match="is a checkpoint of showtell whose encoder computes in fp32; leave bf16 out"):
        Captioner.from_pretrained(tiny_checkpoint, dtype="bf16")


@pytest.mark.parametrize("value", [1e38, math.nan])
@pytest.mark.parametrize("model", ["sat", "nic"])
def test_weights_that_overflow_are_a_sentence(model: str, value: float, features: Features) -> None:
    captioner = tiny(model)
    for weight in captioner.decoder.parameters():
        weight.data.fill_(value)
    for settings in ({}, {"num_beams": 3, "num_return_sequences": 2}):
        with pytest.raises(CheckpointError, match="as a log-probability: its weights are damaged or overflow"):
            captioner.caption_features(features, captioner.settings(**settings))
    with pytest.raises(CheckpointError, match="as a log-probability"):
        captioner.logprobs_features(features, ["a b", "c"])


@pytest.mark.parametrize("ask", ["caption_photos", "explain_photos", "evaluate", "caption_features"])
def test_settings_that_are_not_given_are_the_checkpoints_own(ask, tiny_checkpoint, tiny_scenes):
    captioner = EncoderDecoderCaptioner.from_pretrained(tiny_checkpoint, device="cpu")
    captioner.decoding = captioner.settings(max_length=3, bad_words=("a",))
    records = open_dataset(tiny_scenes)["train"][:20]
    photos = [record.path for record in records[:4]]

    def answer(settings: DecodingConfig | None) -> object:
        if ask == "caption_features":
            return [captioner.caption_features(one, settings) for one in captioner.encode_photos(photos)]
        if ask == "evaluate":
            given = {} if settings is None else settings.model_dump(exclude_unset=True)
            return evaluate(captioner, records, metrics="bleu", **given).captions
        return [result for _, result in getattr(captioner, ask)(photos, settings)]

    assert answer(DecodingConfig(num_beams=5)) == answer(captioner.settings(num_beams=5)) != answer(None)
    assert answer(DecodingConfig()) == answer(None)
    whole = DecodingConfig().changed(num_beams=5)  # with all of its values given
    assert answer(whole) != answer(DecodingConfig(num_beams=5))


def test_what_it_is_and_what_it_can_do(captioner: EncoderDecoderCaptioner, tiny_checkpoint: Path) -> None:
    about, abilities = captioner.about, captioner.abilities
    assert about.name == "sat" and about.library.startswith("showtell ")
    assert about.folder == tiny_checkpoint and about.source == str(tiny_checkpoint) and about.revision is None
    assert set(about.fingerprints) == {"weights", "vocabulary"} and about.origin == {"data": "tiny scenes"}
    assert abilities.attention == "grid" and abilities.saliency == ("mean", "pixels")
    assert "prompt" not in abilities.settings and "num_beams" in abilities.settings


class OnGpu(Captioner):
    """Says of each photo its name, as if on a GPU; `batches` are those that it has answered."""

    about, abilities, device = About("on_gpu", "a test", 0, {}, "knows names."), Abilities(("greedy",), ()), GPU

    def __init__(self) -> None:
        self.decoding, self.batches, self.second = DecodingConfig(), [], threading.Event()

    def to(self, device: str | torch.device) -> OnGpu:
        return self

    def prepare(self, photo: object) -> str:
        if photo == Path("bad"):
            raise ImageError("bad is no photo.")
        return str(photo)

    def encode_prepared(self, photos: Sequence[str]) -> Sequence[str]:
        return photos

    def caption_encoded(
        self, photos: Sequence[str], settings: DecodingConfig, **options: object
    ) -> list[list[Caption]]:
        self.batches.append(list(photos))
        if len(self.batches) == 2:
            self.second.set()
        return [[Caption(name, -1.0, True, ())] for name in photos]

    logprobs_encoded = explain_encoded = to


def test_a_gpu_computes_the_next_batch_while_one_is_written_and_no_further() -> None:
    captioner = OnGpu()
    results = captioner.caption_photos([Path(name) for name in ("a", "bad", "b", "c", "d", "e", "f")], batch_size=2)
    written = [next(results)]
    assert captioner.second.wait(60)  # while the first is written
    assert len(captioner.batches) == 2
    written += results
    assert [(str(path), str(found) if isinstance(found, ImageError) else found[0].text) for path, found in written] == [
        ("a", "a"), ("bad", "bad is no photo."), *((name, name) for name in "bcdef"),
    ]  # fmt: skip
    assert captioner.batches == [["a"], ["b"], ["c", "d"], ["e", "f"]]
