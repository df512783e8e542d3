"""An answer of the engine is that of the captioner to the photo alone, whatever shares its batch."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from showtell.captioners import Captioner, EncoderDecoderCaptioner
from showtell.captions import caption_result
from showtell.confidence.calibration import Calibration
from showtell.models import MODELS
from showtell.serving.engine import Engine, Question
from showtell.serving.settings import ServeSettings
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import Vocabulary
from tests.serving.fake_captioner import Gate
from tests.toys import random_captioner

SIZE = 32  # of the toys
ENCODER = {"name": "small_cnn", "image_size": 48, "widths": [8, 16, SIZE]}


@pytest.fixture(scope="module")
def photos(photos: list[Path]) -> list[bytes]:
    return [path.read_bytes() for path in photos[:20]]


def toy(model: str) -> EncoderDecoderCaptioner:
    """A captioner with random weights that says something else of each photo."""
    sizes = {"embedding_size": SIZE, "hidden_size": SIZE, "attention_size": SIZE}
    config = {"name": model, **{name: size for name, size in sizes.items() if name in MODELS[model][0].model_fields}}
    vocabulary = Vocabulary.build(map(tokenize, TEXTS))
    return random_captioner(ENCODER, config, vocabulary, num_beams=2, max_length=8, no_repeat_ngram_size=2)


TEXTS = ["a red circle above a blue square", "two green stars and a small yellow cross", "an orange heart"] * 6


def mixed(captioner: Captioner, name: str, photos: list[bytes]) -> list[Question]:
    """Questions of several kinds and settings about photos, mixed."""
    plain = captioner.decoding
    kinds: list[dict[str, Any]] = [
        {"kind": "captions", "settings": plain},
        {"kind": "captions", "settings": plain.changed(num_beams=1)},
        {"kind": "captions", "settings": plain.changed(search="sample", num_return_sequences=3, seed=5)},
        {"kind": "explanation", "settings": plain},
        {"kind": "explanation", "settings": plain, "saliency": "pixels"},
    ]
    some_rare = itertools.cycle([0, 0, 0, 1, 1, 2, 2, 3, 4])
    return [Question(captioner=name, photo=photo, **kinds[next(some_rare)]) for photo in photos]


def answer_alone(captioner: Captioner, question: Question) -> Any:
    """What the captioner says of the photo, through its own methods, as plain data."""
    if question.kind == "captions":
        settings = question.settings.model_dump(exclude_none=True)
        return caption_result("photo", captioner.caption(question.photo, **settings))
    photo, saliency = [question.photo], question.saliency
    ((_, explanation),) = captioner.explain_photos(photo, question.settings, saliency=saliency)
    return explanation.to_json()


def ask_together(captioners: dict[str, Captioner], questions: list[Question]) -> tuple[list[Any], list[int]]:
    """The answers to questions that all wait before the first is computed, and how large the batches were."""
    gate, sizes = Gate(), []

    async def run() -> list[Any]:
        engine = Engine(captioners, ServeSettings(max_wait=10, max_batch=len(questions)))
        await engine.start()
        gate.close()
        for captioner in captioners.values():
            encode = captioner.encode_prepared

            def held(prepared: Any, encode: Any = encode) -> Any:
                gate.pass_through()
                sizes.append(len(prepared))
                return encode(prepared)

            captioner.encode_prepared = held  # type: ignore[method-assign]
        tasks = [asyncio.create_task(engine.ask(question)) for question in questions]
        while len(engine.waiting) + engine.running < len(questions):
            await asyncio.sleep(0.001)
        gate.open()
        answers = await asyncio.gather(*tasks)
        await engine.close()
        for captioner in captioners.values():
            del captioner.encode_prepared
        return answers

    return asyncio.run(run()), sizes


def assert_same(alone: Any, together: Any) -> None:
    """Equal words, and numbers within 1e-5; weights of attention and what explanations have are rounded."""
    if isinstance(alone, dict):
        assert alone.keys() == together.keys()
        for key in alone:
            assert_same(alone[key], together[key])
    elif isinstance(alone, list):
        assert len(alone) == len(together)
        for one, other in zip(alone, together, strict=True):
            assert_same(one, other)
    elif isinstance(alone, float):
        rounding = next((10.0**-digits for digits in (4, 6) if alone == round(alone, digits)), 0.0)
        assert together == pytest.approx(alone, abs=1e-5 + rounding)
    else:
        assert together == alone


@pytest.mark.parametrize("models", [["sat", "nic"], ["transformer"]])
def test_an_answer_does_not_depend_on_what_shares_its_batch(photos, models):
    captioners: dict[str, Captioner] = {model: toy(model) for model in models}
    questions = [one for name, captioner in captioners.items() for one in mixed(captioner, name, photos)]
    expected = [answer_alone(captioners[question.captioner], question) for question in questions]
    answers, sizes = ask_together(captioners, questions)
    assert max(sizes) > 3  # batches were shared
    assert len({json.dumps(one) for one in expected}) > len(photos) // 2  # and photos differ
    for question, alone, answer in zip(questions, expected, answers, strict=True):
        assert_same(alone, caption_result("photo", answer) if question.kind == "captions" else answer.to_json())


def test_captions_of_the_calibrated_search_have_a_calibrated_confidence(photos):
    captioner = toy("sat")
    captions = [captioner.caption(photo)[0] for photo in photos] * 2
    captioner.calibration = Calibration.fit(captions, [True, False] * len(photos), "a test", captioner.decoding)
    asked = captioner.decoding, captioner.settings(num_return_sequences=2), captioner.settings(num_beams=1)
    own, more, other = (Question("captions", "toy", photos[0], settings) for settings in asked)
    (one, two, three), _ = ask_together({"toy": captioner}, [own, more, other])
    assert one[0].calibrated_confidence == captioner.caption(photos[0])[0].calibrated_confidence is not None
    assert [caption.calibrated_confidence is not None for caption in (*two, *three)] == [True, True, False]
