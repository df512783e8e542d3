"""Several checkpoints as one captioner."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from showtell import Captioner
from showtell.errors import CheckpointError, UsageError
from showtell.text.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def members(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The tiny checkpoint, one with another decoder, and one with another encoder too."""
    folder = tmp_path_factory.mktemp("members")
    torch.manual_seed(1)
    for name, parts in (("decoder", ["decoder"]), ("both", ["encoder", "decoder"])):
        captioner = Captioner.from_pretrained(tiny_checkpoint, "cpu")
        for part in parts:
            for parameter in getattr(captioner, part).parameters():
                parameter.data += 0.3 * torch.randn_like(parameter)
        captioner.save_pretrained(folder / name)
    return [tiny_checkpoint, folder / "decoder", folder / "both"]


@pytest.fixture(scope="module")
def photo(tiny_scenes: Path) -> Path:
    return next((tiny_scenes / "images").iterdir())


def test_the_first_word_has_the_averaged_probability(members, photo):
    ensemble = Captioner.ensemble(members, "cpu")
    (greedy,) = ensemble.caption(photo, search="greedy", max_length=1)
    forced = {"search": "beam", "num_beams": 1, "max_length": 1, "min_length": 1, "force_words": greedy.words[0].word}
    chances = [
        torch.tensor(Captioner.from_pretrained(member, "cpu").caption(photo, **forced)[0].words[0].logprob).exp()
        for member in members
    ]
    assert greedy.words[0].logprob == pytest.approx(float(torch.stack(chances).mean().log()), abs=1e-4)


def test_encoders_that_are_the_same_look_once(members, photo):
    ensemble = Captioner.ensemble(members, "cpu")
    calls = []
    for number, member in enumerate(ensemble.encoder.members):
        member.register_forward_hook(lambda *_, number=number: calls.append(number))
    ensemble.caption(photo)
    assert calls == [0, 2]


def test_a_member_with_other_words_is_refused_by_name(tiny_checkpoint, tmp_path):
    other = Captioner.from_pretrained(tiny_checkpoint, "cpu")
    words = list(other.vocabulary.words[4:])
    other.vocabulary = Vocabulary([*words[1:], words[0]])
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(CheckpointError, match=r"other and .*tiny cannot be averaged: their vocabularies differ"):
        Captioner.ensemble([tiny_checkpoint, tmp_path / "other"], "cpu")


def test_an_ensemble_is_neither_empty_nor_saved(tiny_checkpoint, tmp_path):
    with pytest.raises(UsageError, match="An ensemble needs at least one checkpoint"):
        Captioner.ensemble([])
    with pytest.raises(UsageError, match="keep the checkpoints of its members"):
        Captioner.ensemble([tiny_checkpoint], "cpu").save_pretrained(tmp_path / "never")


def test_samples_depend_on_the_picture_alone(tiny_checkpoint, tiny_scenes):
    captioner = Captioner.from_pretrained(tiny_checkpoint, "cpu")
    photos = sorted((tiny_scenes / "images").iterdir())[:5]
    settings = captioner.settings(search="sample", num_return_sequences=3)
    by_photo = dict(captioner.caption_photos(photos, settings, batch_size=3))
    for photo, captions in reversed(by_photo.items()):
        assert [one.text for one in captioner.caption(photo, search="sample", num_return_sequences=3)] == [
            one.text for one in captions
        ]
    again = [one.text for one in captioner.caption(photos[0], search="sample", num_return_sequences=3, seed=1)]
    assert again != [one.text for one in by_photo[photos[0]]]
