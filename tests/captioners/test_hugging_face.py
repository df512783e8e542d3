"""Captioners of transformers: their captions are those of `generate`, their numbers those of a plain forward pass."""

import functools
import itertools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image
from torch import Tensor

from showtell.captioners import Captioner
from showtell.errors import UsageError
from tests.captioners.tiny_transformers import BUILDERS, build, photo

NAMES = [*BUILDERS, "blip-2-t5"]
CHAT = ("llava", "idefics3", "qwen2_vl")
PROMPT = "Describe this photo in one short sentence."
LENGTH = 10
GOLDEN = Path(__file__).with_name("golden_hugging_face.json")  # see its "made by"
PHOTOS = [photo(seed) for seed in range(3)]
# These models cut photos by their shape, so that the inputs of a batch differ in length.
SHAPES = [photo(4, 40, 32), photo(5, 32, 64), photo(6, 70, 40), photo(7, 32, 32)]
Open = Callable[[str], Any]


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @functools.cache
    def folder(name: str) -> Path:
        path = tmp_path_factory.mktemp("tiny") / name
        return build("blip-2", path, language="t5") if name == "blip-2-t5" else build(name, path)

    return folder


@pytest.fixture(scope="session")
def opened(folder_of: Callable[[str], Path]) -> Open:
    return functools.cache(lambda name: Captioner.from_pretrained(folder_of(name), "cpu"))


class Plain:
    """A model and its processor, used as its documentation does."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.model = hf.AutoModelForImageTextToText.from_pretrained(folder).eval()
        is_whole = name != "vision-encoder-decoder"  # whose image processor and tokenizer are saved each by itself
        self.processor = (hf.AutoProcessor if is_whole else hf.AutoImageProcessor).from_pretrained(folder)

    def inputs(self, image: Image.Image) -> dict[str, Any]:
        if self.name in CHAT:
            message = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": PROMPT}]}
            text = self.processor.apply_chat_template([message], add_generation_prompt=True)
            return dict(self.processor(images=[image], text=text, return_tensors="pt"))
        more = {"text": "<CAPTION>"} if self.name == "florence2" else {}
        inputs = dict(self.processor(images=image, **more, return_tensors="pt"))
        dtype = self.model.dtype
        return {name: one.to(dtype) if one.is_floating_point() else one for name, one in inputs.items()}

    def generate(self, image: Image.Image, **settings: Any) -> list[list[int]]:
        """The ids behind the prompt, up to the end."""
        inputs = self.inputs(image)
        forced = self.name == "florence2"  # its first token is forced, and counts
        settings["max_new_tokens"] = settings.pop("length", LENGTH) + forced
        if self.name == "qwen2_vl":
            settings |= {"temperature": None, "top_k": None, "top_p": None}
        with torch.no_grad():
            rows = self.model.generate(**inputs, do_sample=False, **settings)
        rows, ends = rows[:, self.begin(inputs).shape[1] :].tolist(), self.ends()
        return [list(itertools.takewhile(lambda token: token not in ends, row)) for row in rows]

    def ends(self) -> list[int]:
        ends = self.model.generation_config.eos_token_id
        if self.name in ("blip", "blip-2"):
            text = self.model.config.text_config
            ends = text.sep_token_id if self.name == "blip" else text.eos_token_id
        return ends if isinstance(ends, list) else [ends]

    def begin(self, inputs: dict[str, Any]) -> Tensor:
        """What the text begins with, up to the caption."""
        image = getattr(self.model.config, "image_token_id", None)
        fixed = {"blip": [5], "git": [2], "vision-encoder-decoder": [0], "florence2": [2, 0], "blip-2-t5": [0],
                 "blip-2": [image] * 4 + [2]}  # fmt: skip
        return torch.tensor([fixed[self.name]]) if self.name in fixed else inputs["input_ids"]

    def logits(self, image: Image.Image, tokens: Sequence[int]) -> Tensor:
        """(T + 1, V) of each token and the end, by one forward pass without a cache."""
        inputs = self.inputs(image)
        begin = self.begin(inputs)
        ids = torch.cat((begin, torch.tensor([list(tokens)], dtype=torch.long)), 1)
        more = ids.shape[1] - begin.shape[1]
        if self.name in ("florence2", "vision-encoder-decoder"):
            inputs["decoder_input_ids"] = ids
        elif self.name == "blip-2-t5":
            inputs["input_ids"] = torch.tensor([[self.model.config.image_token_id] * 4 + [1]])
            inputs["decoder_input_ids"] = ids
        else:
            inputs["input_ids"] = ids
            for name, value in (("attention_mask", 1), ("token_type_ids", 1), ("mm_token_type_ids", 0)):
                if name in inputs:
                    inputs[name] = torch.cat((inputs[name], torch.full((1, more), value)), 1)
        logits: Tensor = self.model(**inputs).logits[0, -more - 1 :]
        return logits

    @torch.no_grad()
    def logprobs(self, image: Image.Image, tokens: Sequence[int]) -> tuple[list[float], float]:
        """Of each token, and of the end."""
        logprobs = self.logits(image, tokens).log_softmax(-1)
        of_tokens = [logprobs[index, token].item() for index, token in enumerate(tokens)]
        return of_tokens, logprobs[-1, self.ends()].logsumexp(-1).item()


@pytest.fixture(scope="session")
def plain(folder_of: Callable[[str], Path]) -> Callable[[str], Plain]:
    return functools.cache(lambda name: Plain(name, folder_of(name)))


def ids_of(caption: Any) -> list[int]:
    return [token.id for token in caption.tokens]


@pytest.mark.parametrize("name", NAMES)
def test_captions_are_those_of_generate(name: str, opened: Open, plain: Callable[[str], Plain]) -> None:
    captioner = opened(name)
    reference = plain(name)
    greedy = captioner.caption(PHOTOS, max_length=LENGTH, num_beams=1)
    beams = captioner.caption(PHOTOS, max_length=LENGTH, num_beams=4, num_return_sequences=3)
    for image, one, several in zip(PHOTOS, greedy, beams, strict=True):
        assert [ids_of(caption) for caption in one] == reference.generate(image, num_beams=1)
        expected = reference.generate(image, num_beams=4, num_return_sequences=3)
        assert [ids_of(caption) for caption in several] == expected
        assert [caption.score for caption in several] == sorted((one.score for one in several), reverse=True)
    assert len({caption[0].text for caption in greedy}) > 1  # the models do look at photos


@pytest.mark.parametrize("name", NAMES)
def test_logprobs_are_those_of_a_forward_pass(name: str, opened: Open, plain: Callable[[str], Plain]) -> None:
    captioner, reference = opened(name), plain(name)
    captions = captioner.caption(PHOTOS, max_length=LENGTH, num_beams=3, num_return_sequences=2)
    given = captioner.logprobs(PHOTOS, captions)
    for image, of_image, entries in zip(PHOTOS, captions, given, strict=True):
        for caption, entry in zip(of_image, entries, strict=True):
            expected, end = reference.logprobs(image, ids_of(caption))
            assert [token.logprob for token in caption.tokens] == pytest.approx(expected, abs=1e-5)
            assert [token.logprob for token in entry.tokens] == pytest.approx(expected, abs=1e-5)
            assert entry.end == pytest.approx(end, abs=1e-5)
            total = sum(expected) + (end if caption.finished else 0)
            assert caption.logprob == pytest.approx(total, abs=1e-5 * (len(expected) + 1))
            assert [word.word for word in entry.words] == [word.word for word in caption.words]
            logprobs = [word.logprob for word in caption.words]
            assert [word.logprob for word in entry.words] == pytest.approx(logprobs, abs=1e-5)
    for entry in captioner.logprobs(PHOTOS[0], ["a red dog", "", "the cat sits under an orange umbrella"]):
        expected, end = reference.logprobs(PHOTOS[0], [token.id for token in entry.tokens])
        assert [token.logprob for token in entry.tokens] == pytest.approx(expected, abs=1e-5)
        assert entry.logprob == pytest.approx(sum(expected) + end, abs=1e-4)
        assert " ".join(word.word for word in entry.words) == entry.text


@pytest.mark.parametrize("name", ["blip", "florence2", "qwen2_vl"])
def test_batches_of_any_size_and_order(name: str, opened: Open) -> None:
    captioner = opened(name)
    for settings in ({"num_beams": 1}, {"num_beams": 3}, {"search": "sample", "num_return_sequences": 2}):
        together = captioner.caption(SHAPES, max_length=LENGTH, **settings)
        pairs = captioner.caption(SHAPES[::-1], max_length=LENGTH, batch_size=2, **settings)[::-1]
        alone = [captioner.caption(photo, max_length=LENGTH, **settings) for photo in SHAPES]
        for others in (pairs, alone):
            for first, second in zip(together, others, strict=True):
                assert [caption.text for caption in first] == [caption.text for caption in second]
                logprobs = [caption.logprob for caption in second]
                assert [caption.logprob for caption in first] == pytest.approx(logprobs, abs=1e-4)


def test_golden_captions(opened: Open) -> None:
    """A version of transformers that changes what a model says is noticed here."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))["captions"]
    for name in NAMES:
        captions = opened(name).caption(PHOTOS, max_length=LENGTH, num_beams=3)
        assert [caption[0].text for caption in captions] == golden[name]["texts"], name
        logprobs = golden[name]["logprobs"]
        assert [caption[0].logprob for caption in captions] == pytest.approx(logprobs, abs=2e-3), name


def test_samples(opened: Open) -> None:
    captioner = opened("blip")
    settings: dict[str, Any] = {"search": "sample", "max_length": LENGTH}
    (first,) = captioner.caption(PHOTOS[:1], num_return_sequences=20, seed=1, **settings)
    (again,) = captioner.caption(PHOTOS[:1], num_return_sequences=20, seed=1, **settings)
    (other,) = captioner.caption(PHOTOS[:1], num_return_sequences=20, seed=2, **settings)
    assert first == again != other
    assert len({tuple(ids_of(caption)) for caption in first}) == len(first) > 10
    assert [caption.logprob for caption in first] == sorted((caption.logprob for caption in first), reverse=True)
    greedy = captioner.caption(PHOTOS[0], max_length=LENGTH)
    (likeliest,) = captioner.caption(PHOTOS[:1], num_return_sequences=5, top_k=1, **settings)
    assert [ids_of(caption) for caption in likeliest] == [ids_of(greedy[0])]
    (nucleus,) = captioner.caption(PHOTOS[:1], num_return_sequences=5, top_p=1e-6, **settings)
    (cold,) = captioner.caption(PHOTOS[:1], num_return_sequences=5, temperature=1e-4, **settings)
    assert ids_of(nucleus[0]) == ids_of(cold[0]) == ids_of(greedy[0])
    named = list(captioner.caption_photos(PHOTOS[:2], captioner.settings(**settings), image_ids=["a", "a"]))
    unnamed = list(captioner.caption_photos(PHOTOS[:2], captioner.settings(**settings), image_ids=["a", "b"]))
    assert named[0][1] == unnamed[0][1] and named[1][1] != unnamed[1][1]


def test_samples_follow_the_probabilities(opened: Open) -> None:
    """First tokens of samples against the probabilities of the model, by a chi-square test; <unk> only if allowed."""
    captioner = opened("git")
    draws = 600
    with torch.no_grad():
        inputs = captioner.inputs(PHOTOS[:1], None)
        logits = captioner.model(input_ids=torch.tensor([[2]]), **inputs).logits[0, -1]
    settings = captioner.settings(search="sample", max_length=1, temperature=0.8)
    names = [str(number) for number in range(draws)]
    end = captioner.tokenizer.sep_token_id
    firsts = [(*rows[0].tokens, end)[0] for rows in captioner.search(PHOTOS[:1] * draws, settings, names)]
    hot = captioner.settings(search="sample", max_length=1, temperature=9, no_unknown=True)
    ruled = [row for rows in captioner.search(PHOTOS[:1] * draws, hot, names) for row in rows[0].tokens]
    assert captioner.tokenizer.unk_token_id not in ruled and len(set(ruled)) > len(set(firsts))
    counts = torch.bincount(torch.tensor(firsts), minlength=len(logits))
    expected = (logits / 0.8).softmax(-1) * draws
    likely = expected > 15
    chi_square = ((counts[likely] - expected[likely]) ** 2 / expected[likely]).sum().item()
    freedom = int(likely.sum())
    assert freedom > 8 and chi_square < freedom + 4 * math.sqrt(2 * freedom)


def test_rules_of_a_search(opened: Open) -> None:
    captioner = opened("vision-encoder-decoder")
    before = captioner.caption(PHOTOS, max_length=LENGTH)
    word = before[1][0].words[0].word
    without = captioner.caption(PHOTOS, max_length=LENGTH, bad_words=word)
    assert all(word not in caption[0].text.split() for caption in without)
    assert without[1][0].words != before[1][0].words
    long = captioner.caption(PHOTOS, max_length=LENGTH, min_length=8)
    assert all(len(caption[0].tokens) >= 8 for caption in long)
    assert any(len(caption[0].tokens) < 8 for caption in before)
    for caption in captioner.caption(PHOTOS, max_length=LENGTH, no_repeat_ngram_size=1):
        assert len(set(ids_of(caption[0]))) == len(caption[0].tokens)
    (entry,) = captioner.logprobs(PHOTOS[1], [without[1][0]])
    before_rules = [token.logprob for token in without[1][0].tokens]
    assert [token.logprob for token in entry.tokens] == pytest.approx(before_rules, abs=1e-5)


def test_length_penalties(opened: Open, plain: Callable[[str], Plain]) -> None:
    captioner, reference = opened("vision-encoder-decoder"), plain("vision-encoder-decoder")
    default = {}, 1.0  # what transformers has if nobody says anything
    for changes, penalty in (default, ({"length_penalty": 0}, 0.0), ({"length_penalty": 2.0}, 2.0)):
        captions = captioner.caption(PHOTOS, max_length=LENGTH, num_beams=4, **changes)
        expected = [reference.generate(image, num_beams=4, length_penalty=penalty)[0] for image in PHOTOS]
        assert [ids_of(caption[0]) for caption in captions] == expected
        for caption in (one[0] for one in captions):
            length = len(caption.tokens) + caption.finished
            assert caption.score == pytest.approx(caption.logprob / length**penalty, abs=1e-5)


def test_default_settings_are_those_of_the_model(opened: Open) -> None:
    florence = opened("florence2").decoding
    assert (florence.num_beams, florence.no_repeat_ngram_size, florence.prompt) == (3, 3, "<CAPTION>")
    chat = opened("qwen2_vl").decoding  # its own settings sample
    assert (chat.kind, chat.max_length, chat.prompt) == ("greedy", 100, PROMPT)
    assert opened("blip").decoding.prompt is None


def test_prompts(opened: Open) -> None:
    for name, prompt in (("blip", "a photo of"), ("git", "a photo of"), ("blip-2", "a photo of"), ("llava", "what?")):
        captioner = opened(name)
        asked, unasked = (captioner.caption(PHOTOS, max_length=LENGTH, **given) for given in ({"prompt": prompt}, {}))
        assert [one[0].text for one in asked] != [one[0].text for one in unasked]
        (entry,), *_ = captioner.logprobs(PHOTOS, [one[0] for one in asked], prompt=prompt)
        logprobs = [token.logprob for token in asked[0][0].tokens]
        assert [token.logprob for token in entry.tokens] == pytest.approx(logprobs, abs=1e-5)
    assert opened("llava").about.origin["prompt"] == PROMPT


def test_a_text_begins_with_a_space_behind_a_word(opened: Open) -> None:
    for name, prompt, first in (
        ("llava", PROMPT, " red"),  # its template ends in "assistant:"
        ("florence2", "<CAPTION>", "r"),  # the prompt is the encoder's
        ("blip-2", None, "r"),
        ("blip-2", "a photo of a", " red"),
        ("blip-2-t5", "a photo of a", "r"),
    ):
        (entry,) = opened(name).logprobs(PHOTOS[0], "red dog", prompt=prompt)
        assert entry.tokens[0].token == first, name
        assert [word.word for word in entry.words] == ["red", "dog"]


def test_what_is_refused(opened: Open) -> None:
    def refused(name: str, sentence: str, **settings: Any) -> None:
        with pytest.raises(UsageError, match=sentence):
            opened(name).caption(PHOTOS[0], **settings)

    refused("blip", r"cannot honour stage=0; it knows search, num_return_sequences", stage=0)
    refused("blip", r"max_length=65 is more than the 64 tokens", max_length=65)
    refused("vision-encoder-decoder", r"cannot honour prompt=a photo", prompt="a photo")
    refused("florence2", r'captions for the prompts <CAPTION>, .*, not for "<OD>"', prompt="<OD>")
    refused("blip", r"blip has no attention to show: models of transformers have no map", attention=True)
    with pytest.raises(UsageError, match=r"is 70 tokens long, and blip has positions for 64; shorten it"):
        opened("blip").logprobs(PHOTOS[0], " ".join(["dog"] * 70))
    with pytest.raises(UsageError, match=r'has no saliency method "mean"'):
        opened("blip").explain(PHOTOS[0], saliency="mean")


def test_precision(folder_of: Callable[[str], Path], opened: Open) -> None:
    captioner = Captioner.from_pretrained(folder_of("vision-encoder-decoder"), "cpu", dtype="bf16")
    full = opened("vision-encoder-decoder")
    assert full.about.preprocessing["size"] == {"height": 32, "width": 32}
    assert len(full.about.fingerprints["weights"]) == 12
    assert {weight.dtype for weight in captioner.model.parameters()} == {torch.bfloat16}
    assert captioner.about.fingerprints == {**full.about.fingerprints, "dtype": "bf16"}
    (half,), (whole,) = (one.logprobs(PHOTOS[:1], ["a red dog"]) for one in (captioner, full))
    assert half[0].logprob == pytest.approx(whole[0].logprob, rel=0.05)
    assert half[0].logprob != whole[0].logprob


@pytest.mark.parametrize("name", ["blip", "qwen2_vl"])
def test_explanations(name: str, opened: Open) -> None:
    captioner = opened(name)
    (caption,) = captioner.caption(SHAPES[0], max_length=LENGTH, num_beams=2)
    settings = captioner.settings(max_length=LENGTH, num_beams=2)
    ((_, explained),) = captioner.explain_photos([SHAPES[0]], settings, saliency="pixels")
    assert explained.grid == (6, 6) and explained.boxes.shape == (36, 4)
    assert explained.boxes[-1].tolist()[2:] == [40, 32]
    words = explained.caption.words
    assert [word.word for word in words] == [*(word.word for word in caption.words), *([""] * caption.finished)]
    chances = [math.exp(word.logprob) for word in caption.words]
    assert [word.probability for word in words][: len(chances)] == pytest.approx(chances, rel=1e-4)
    for word in words:
        chances = [probability for _, probability in word.others]
        assert len(chances) == 5 and chances == sorted(chances, reverse=True)
        assert word.saliency.shape == (36,) and word.saliency.abs().max() > 0
    # A filled cell, by hand
    filled = SHAPES[0].copy()
    mean = tuple(round(channel) for channel in np.asarray(SHAPES[0]).mean((0, 1)))
    filled.paste(mean, tuple(round(edge) for edge in explained.boxes[1].tolist()))
    (before,), (after,) = (captioner.logprobs(image, [caption]) for image in (SHAPES[0], filled))
    drops = [one.logprob - other.logprob for one, other in zip(before.words, after.words, strict=True)]
    assert [word.saliency[1].item() for word in words][: len(drops)] == pytest.approx(drops, abs=1e-4)
    assert explained.caption.attention is None
