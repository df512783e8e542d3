"""Explanations say what the model said: exact probabilities, runners-up and attention, for every kind of captioner."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from showtell import Captioner
from showtell.captions import ExplainedCaption
from showtell.decoding import StageView, teacher_forced
from showtell.images.loading import prepare_photo
from showtell.models import build_decoder
from showtell.models.contract import DecoderConfig
from showtell.models.hacap import HacapConfig
from showtell.models.sat import SatConfig
from showtell.models.stack import StackConfig
from showtell.types import PreparedBatch


def like(captioner: Captioner, config: DecoderConfig, seed: int) -> Captioner:
    """The same captioner with another decoder, of random weights."""
    torch.manual_seed(seed)
    decoder = build_decoder(config, feature_size=16, vocabulary_size=len(captioner.vocabulary))
    return replace(captioner, decoder=decoder.eval())


def walk(captioner: Captioner, photo: Path, caption: ExplainedCaption, stage: int | None = None) -> tuple:
    """Ids of a caption, and the outputs of the captioner's decoder that is fed them."""
    ids = captioner.vocabulary.encode([word.word for word in caption.words if word.word])
    prepared = prepare_photo(photo, captioner.encoder.preprocessing)
    features = captioner.encode(PreparedBatch.of(prepared.pixels.unsqueeze(0)))
    decoder = captioner.decoder if stage is None else StageView(captioner.decoder, stage)
    with torch.no_grad():
        return ids, features, teacher_forced(decoder, features, torch.tensor([[ids[:-1]]]))


def hard(captioner: Captioner, look: str) -> Captioner:
    config = SatConfig(embedding_size=8, hidden_size=8, attention_size=4, attention="hard", eval_attention=look)
    return like(captioner, config, seed=3)


def test_the_caption_is_that_of_captioning(captioner, photos):
    for settings in ({}, {"search": "greedy"}, {"num_beams": 4}, {"search": "sample", "seed": 5}):
        expected = [captions[0] for captions in captioner.caption(photos[:5], **settings)]
        explanations = captioner.explain(photos[:5], batch_size=2, **settings)
        for caption, explained in zip(expected, (one.models[0].caption for one in explanations), strict=True):
            assert (explained.text, explained.finished) == (caption.text, caption.finished)
            assert explained.logprob == pytest.approx(caption.logprob, abs=1e-4)
            assert explained.confidence == pytest.approx(caption.confidence, abs=1e-4)
            words = [word.word for word in explained.words]
            assert words == [word.word for word in caption.words] + [""] * caption.finished


def test_probabilities_and_runners_up_are_those_of_a_walk_along_the_caption(captioner, photos):
    explained = captioner.explain(photos[0]).models[0].caption
    vocabulary = captioner.vocabulary
    ids, _, forced = walk(captioner, photos[0], explained)
    chances = forced.logits[0, 0].softmax(-1)
    for step, word in enumerate(explained.words):
        own = chances[step, ids[step + 1]]
        assert word.probability == pytest.approx(float(own), rel=1e-4)
        ranked = [index for index in chances[step].argsort(descending=True).tolist() if index != ids[step + 1]]
        ranked = [index for index in ranked if index not in (vocabulary.begin, vocabulary.pad)][:5]
        names = ["" if index == vocabulary.end else vocabulary.words[index] for index in ranked]
        assert [name for name, _ in word.others] == names
        assert [chance for _, chance in word.others] == pytest.approx(chances[step, ranked].tolist(), rel=1e-4)
    looked = forced.outputs.attention[0, 0, : len(explained.words)]
    torch.testing.assert_close(explained.attention, looked, atol=1e-5, rtol=1e-4)
    (gate,) = explained.word_values
    assert gate.title == "gate"
    torch.testing.assert_close(gate.values[:, 0], forced.outputs.gate[0, 0, : len(gate.values)], atol=1e-5, rtol=1e-4)
    product = sum(math.log(word.probability) for word in explained.words)
    assert product == pytest.approx(explained.logprob, abs=1e-3)


def test_attention_has_a_weight_for_each_box_of_the_upright_photo(captioner, tmp_path):
    Image.new("RGB", (90, 30), "red").save(tmp_path / "wide.png")
    explanation = captioner.explain(tmp_path / "wide.png")
    (by,) = explanation.models
    assert (explanation.size, by.grid, by.boxes.shape) == ((90, 30), (12, 12), (144, 4))
    assert by.boxes[0].tolist() == [0, 0, 7.5, 2.5]
    assert by.caption.attention.shape == (len(by.caption.words), 144)
    torch.testing.assert_close(by.caption.attention.sum(-1), torch.ones(len(by.caption.words)))


def test_hard_attention_tells_the_region_that_it_looked_at(captioner, photos):
    likeliest = hard(captioner, "argmax").explain(photos[0]).models[0].caption
    assert [word.sampled_region for word in likeliest.words] == likeliest.attention.argmax(-1).tolist()
    expected = hard(captioner, "expectation").explain(photos[0]).models[0].caption
    assert {word.sampled_region for word in expected.words} == {None}


def test_the_drop_without_a_cell_is_that_of_a_teacher_forced_pass_without_it(captioner, photos):
    """One cell of one photo, hidden by hand: its vector becomes the mean of the others."""
    by = captioner.explain(photos[:2], saliency="mean")[1].models[0]
    ids, features, _ = walk(captioner, photos[1], by.caption)
    ids = ids[: len(by.caption.words) + 1]
    cell = 31
    others = torch.arange(144) != cell
    hidden = features.vectors.clone()
    hidden[0, cell] = features.vectors[0, others].mean(0)
    words = torch.tensor([[ids]])

    def logprobs(vectors: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            forced = teacher_forced(captioner.decoder, replace(features, vectors=vectors), words[..., :-1])
        return forced.logits.log_softmax(-1).gather(-1, words[..., 1:, None])[0, 0, :, 0]

    expected = logprobs(features.vectors) - logprobs(hidden)
    drops = torch.stack([word.saliency for word in by.caption.words])
    assert drops.shape == (len(by.caption.words), 144)
    torch.testing.assert_close(drops[:, cell], expected, atol=1e-5, rtol=1e-3)
    assert captioner.explain(photos[1]).models[0].caption.words[0].saliency is None


def test_each_stage_has_its_own_caption_and_its_own_attention(captioner, photos):
    config = StackConfig(embedding_size=8, hidden_size=8, attention_size=4, fine_stages=2)
    stack = like(captioner, config, seed=1)
    by = stack.explain(photos[0]).models[0]
    assert [caption.title for caption in by.captions] == ["stage 0 of 0 to 2", "stage 1 of 0 to 2", "stage 2 of 0 to 2"]
    assert by.caption.text == stack.caption(photos[0])[0].text
    for stage, caption in enumerate(by.captions):
        assert caption.text == stack.caption(photos[0], stage=stage)[0].text
        ids, _, forced = walk(stack, photos[0], caption, stage)
        steps = range(len(caption.words))
        chances = forced.logits[0, 0].softmax(-1)[steps, ids[1 : len(steps) + 1]]
        assert [word.probability for word in caption.words] == pytest.approx(chances.tolist(), rel=1e-4)
        if caption.attention is not None:
            looked = forced.outputs.attention[0, 0, : len(steps)]
            torch.testing.assert_close(caption.attention, looked, atol=1e-5, rtol=1e-3)
    assert [caption.attention is None for caption in by.captions] == [True, False, False]
    (alone,) = stack.explain(photos[0], stage=1).models[0].captions
    assert alone == by.captions[1]
    assert json.loads(json.dumps(stack.explain(photos[0]).to_json()))["models"][0]["captions"][0]["title"]


def test_hacap_has_its_subgoals(captioner, photos):
    config = HacapConfig(embedding_size=8, hidden_size=8, attention_size=4, output_size=8, manager_size=8)
    caption = like(captioner, config, seed=0).explain(photos[0]).models[0].caption
    gate, subgoal = caption.word_values
    assert (gate.title, subgoal.title, len(subgoal.values)) == ("gate", "subgoal", len(caption.words))
    torch.testing.assert_close(subgoal.values.norm(dim=-1), torch.ones(len(caption.words)))
