"""Whether captions use the picture: one verdict, which training and report give of the same weights."""

import html

import pytest
import torch

from showtell import train
from showtell.captioners import EncoderDecoderCaptioner
from showtell.captions import ExplainedCaption, ExplainedWord, WordValues
from showtell.datasets import read_dataset
from showtell.explanations.verdict import verdict, verdict_on_checkpoint
from showtell.reports.explanation_page import page
from tests.cli.test_caption import run
from tests.training.test_loop import log_of


def explained(gate: float = 0.5, peaks: tuple[int, ...] = (0, 1, 2, 0)) -> ExplainedCaption:
    attention = torch.full((len(peaks), 5), 0.1)
    attention[torch.arange(len(peaks)), torch.tensor(peaks)] = 0.6
    words = tuple(ExplainedWord(text, 0.5, ()) for text in "abcd"[: len(peaks)])
    gates = (WordValues("gate", torch.full((len(peaks), 1), gate)),)
    return ExplainedCaption("a b c d", words, -1.0, True, 0.5, attention=attention, word_values=gates)


@pytest.mark.parametrize(
    ("captions", "sentence"),
    [
        ([explained()] * 6, None),
        ([explained(peaks=(1, 1, 1, 1))] * 3 + [explained()] * 3, "in 3 of 6 photos every word looks most at one and"),
        ([explained(peaks=(1, 1, 1, 1))] * 2 + [explained()] * 4, None),
        ([explained(gate=0.99)] * 6, "gate is above 0.95 at 100% of 24 words: it is stuck at 1 and"),
        ([explained(gate=0.01)] * 6, "gate is below 0.05 at 100% of 24 words: it is stuck at 0 and"),
        ([explained(gate=0.01)] * 4, None),  # too few words to say
        ([explained(gate=0.01)] * 5 + [explained()], None),
    ],
)
def test_attention_and_gates_by_hand(captions: list[ExplainedCaption], sentence: str | None) -> None:
    assert [one[: len(sentence or "")] for one in verdict(captions)] == ([sentence] if sentence else [])


def test_a_loss_that_does_not_rise_with_exchanged_photos_is_told() -> None:
    generator = torch.Generator().manual_seed(0)
    own = -1 - torch.rand(20, generator=generator)
    noise = torch.randn(20, generator=generator)
    for exchanged, count in ((own - 0.3 + 0.1 * noise, 0), (own - 0.005, 1), (own - 0.3 + 2 * noise, 1), (own + 1, 1)):
        assert len(verdict([], own.tolist(), exchanged.tolist())) == count
    assert verdict([], own[:7].tolist(), own[:7].tolist()) == []  # too few photos to say


def test_train_and_report_say_the_same_of_the_same_weights(tiny_checkpoint, tiny_scenes, tmp_path, capsys):
    """Attention without a query, a gate that is shut, and so captions that know nothing of the photo."""
    captioner = EncoderDecoderCaptioner.from_pretrained(tiny_checkpoint, device="cpu")
    for name, weight in captioner.decoder.named_parameters():
        if name.startswith(("attention.of_query", "beta.weight", "init_")):
            weight.data.zero_()
        if name == "beta.bias":
            weight.data.fill_(-9.0)
    captioner.save_pretrained(tmp_path / "blind")
    told = ("every word looks most at one and", "gate is below 0.05 at 100%", "as likely with another's photo")
    dataset = read_dataset(tiny_scenes)
    causes = verdict_on_checkpoint(captioner, dataset["train"])
    assert all(any(part in cause for cause in causes) for part in told)
    assert told[0] in page(captioner.explain([record.path for record in dataset["train"][:12]]))

    recipe = {
        "data": {"path": str(tiny_scenes), "validation_split": "train"},
        "encoder": captioner.encoder.config.model_dump(mode="json"),
        "model": captioner.decoder.config.model_dump(mode="json"),
        "objective": {"name": "cross_entropy"}, "decoding": {"max_length": 20},
        "training": {"epochs": 1, "batch_size": 32, "learning_rate": 1e-9, "seed": 0, "trackers": [],
                     "start_from": str(tmp_path / "blind")},
    }  # fmt: skip
    train(recipe, tmp_path / "run", quiet=True)
    for line in log_of(tmp_path / "run"):
        if "validation" in line:
            assert all(any(part in warning for warning in line["warnings"]) for part in told)
    out = tmp_path / "report.html"
    given = ("--out", out, "--no-score", "--split", "train", "--photos", 1)
    status, _, err = run(capsys, "report", tmp_path / "run", *given)
    assert (status, err) == (0, "")
    written = html.unescape(out.read_text()).partition("epoch 0: ")[0]
    assert all(part in written for part in told)  # in front of the warnings of training
