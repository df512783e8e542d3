"""What training sees of captioners of transformers: the numbers of transformers and peft."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from showtell.captioners import Captioner, hugging_face_training
from showtell.captioners.hugging_face_adapters import TransformersConfig, adapt, learned
from showtell.decoding import teacher_forced
from showtell.models.kernels import log_likelihood
from showtell.objectives import build_objective
from showtell.objectives.cross_entropy import CrossEntropyConfig
from showtell.types import Batch, PreparedBatch
from tests.captioners import test_hugging_face
from tests.captioners.test_hugging_face import NAMES, Plain
from tests.captioners.tiny_transformers import photo

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # by peft
folder_of = test_hugging_face.folder_of
FOUR = ("blip", "git", "vision-encoder-decoder", "llava")
TEXTS = ["a red circle is above a small blue star", "a photo of a green square"]
PHOTOS = [photo(1), photo(2, 48, 40)]


class Learner:
    """A tiny captioner with adapters, and a batch of two photos with two captions each."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32) -> None:
        self.captioner: Any = Captioner.from_pretrained(folder, "cpu")
        torch.manual_seed(1)
        adapt(self.captioner, TransformersConfig())
        self.captioner.model.to(dtype)
        prompt = self.captioner.decoding.prompt
        self.vocabulary = hugging_face_training.TokenVocabulary(self.captioner, prompt)
        self.decoder = hugging_face_training.TransformersDecoder(self.captioner, prompt).eval()
        pixels = [torch.from_numpy(np.array(image).transpose(2, 0, 1).copy()) for image in PHOTOS]
        ids = [torch.tensor(self.vocabulary.encode_text(text)) for text in TEXTS]
        words = torch.nn.utils.rnn.pad_sequence(ids, True).expand(2, -1, -1)
        self.batch = Batch(("1", "2"), tuple(pixels), words, torch.ones(2, 2, dtype=torch.bool))
        encoder = hugging_face_training.TransformersEncoder(self.captioner, prompt)
        self.features = encoder(PreparedBatch.of(pixels))

    def spread(self) -> None:
        """Adapters that change something."""
        generator = torch.Generator().manual_seed(2)
        for weight in learned(self.captioner.model).values():
            weight.data = 0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)

    def logits(self) -> Tensor:
        return teacher_forced(self.decoder, self.features, self.batch.inputs).logits


@pytest.mark.parametrize("name", NAMES)
def test_given_captions_are_read_as_logprobs_reads_them(name: str, folder_of: Callable[[str], Path]) -> None:
    learner = Learner(folder_of(name))
    expected = learner.captioner.logprobs(PHOTOS, [TEXTS, TEXTS])
    logprobs = log_likelihood(learner.logits().detach(), learner.batch.targets)
    for image in range(2):
        for row in range(2):
            one = expected[image][row]
            values = [*(token.logprob for token in one.tokens), one.end]
            assert logprobs[image, row, : len(values)].tolist() == pytest.approx(values, abs=2e-5)


@pytest.mark.parametrize("name", FOUR)
def test_loss_and_gradients_are_those_of_transformers_and_peft_alone(name, folder_of):
    learner, plain = Learner(folder_of(name)), Plain(name, folder_of(name))
    opened: Any = Captioner.from_pretrained(folder_of(name), "cpu")
    inputs = opened.inputs(PHOTOS, opened.decoding.prompt)
    tokens = (learner.batch.words[:, 0, 1:-1] - 4).clamp_min(0)
    # adapters that have not learned change nothing, to the last bit
    before, after = (one.family.logits(one.model, inputs, tokens) for one in (opened, learner.captioner))
    assert torch.equal(before, after)

    learner = Learner(folder_of(name), dtype=torch.float64)
    learner.spread()
    plain.model.double()
    targets = learner.captioner.adapted.tuner.peft_config["default"].target_modules
    is_conv1d = name == "vision-encoder-decoder"
    config = peft.LoraConfig(r=8, lora_alpha=16, target_modules=targets, fan_in_fan_out=is_conv1d)
    plain.model = peft.get_peft_model(plain.model, config).eval()
    theirs = {key.replace(".default", ""): weight for key, weight in plain.model.named_parameters()}
    ours = learned(learner.captioner.model)
    assert {key for key, weight in theirs.items() if weight.requires_grad} == set(ours)
    for key, weight in ours.items():
        theirs[key].data = weight.data.clone()
    end = plain.ends()[0]
    losses = []
    for image in PHOTOS:
        for ids in learner.batch.words[0]:
            caption = [index - 4 for index in ids.tolist() if index >= 4]
            losses.append(F.cross_entropy(plain.logits(image, caption), torch.tensor([*caption, end]), reduction="sum"))
    loss = torch.stack(losses).sum() / int((learner.batch.targets > 0).sum())
    loss.backward()
    objective = build_objective(CrossEntropyConfig(), feature_size=1, vocabulary_size=len(learner.vocabulary))
    terms = objective(learner.batch, learner.features, learner.decoder)
    terms.total.backward()
    assert terms.total.item() == pytest.approx(loss.item(), rel=1e-6)
    for key, weight in ours.items():
        torch.testing.assert_close(weight.grad, theirs[key].grad, rtol=0, atol=1e-6)
    assert all(weight.grad is None for weight in learner.captioner.model.parameters() if not weight.requires_grad)
