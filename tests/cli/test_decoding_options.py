"""Every decode setting through the command line: it changes what it should, and a wrong one is a sentence."""

import inspect
import json
from typing import Any, get_args

import pytest
from pydantic import Field
from settings_tables import rows

from showtell.cli.decoding_options import Decoding, short_names
from showtell.cli.settings_options import option_name, with_settings_options
from showtell.decoding import SEARCHES, DecodingConfig
from showtell.errors import UsageError
from tests.cli.test_caption import run


@pytest.fixture
def caption(capsys, tiny_checkpoint, photos):
    """The captions of one photo with some options, as JSON."""

    def captions(*arguments: object) -> list[dict[str, Any]]:
        status, out, err = run(capsys, "caption", tiny_checkpoint, photos[0], "--format", "json", *arguments)
        assert (status, err.count("\n")) == (0, 1) or "--unknown" in arguments  # what the captioner knows
        return json.loads(out)[0]["captions"]

    return captions


def decode(checkpoint: str, *, decoding: Decoding) -> None: ...


class MoreSettings(DecodingConfig):
    """With a setting that nobody else knows."""

    patience: int = Field(3, ge=0, description="Steps to wait, less than `max_length`.")
    tags: tuple[str, ...] = Field((), description="Words to prefer.")
    cache: bool = Field(True, description="Keep states.")


def test_a_new_field_is_an_option_a_key_and_a_row_with_no_other_edit(monkeypatch):
    monkeypatch.setattr("showtell.decoding_config.DecodingConfig", MoreSettings)
    monkeypatch.setattr("showtell.decoding.DecodingConfig", MoreSettings)
    parameters = inspect.signature(with_settings_options(decode)).parameters
    options = {name: get_args(parameter.annotation) for name, parameter in parameters.items()}
    assert (options["patience"][0], options["patience"][1].default) == (int | None, "--patience")
    assert options["patience"][1].help == "Steps to wait, less than --max-length."
    assert (options["tags"][0], options["tags"][1].default) == (list[str] | None, "--tag")
    assert options["cache"][1].default == "--cache/--no-cache"
    assert all(name in DecodingConfig.model_fields["search"].description for name in SEARCHES.builtin)
    assert option_name("no_unknown", DecodingConfig.model_fields["no_unknown"]) == "--no-unknown/--unknown"
    row = "whole number ≥ 0 | `3` | Steps to wait, less than `max_length`. |"
    assert f"| `decoding.patience` | {row}" in rows("decoding", MoreSettings)


def test_titles_of_checkpoints_are_short_and_differ():
    for names, titles in (
        (["runs/soft/best", "runs/hard/best"], ["soft", "hard"]),
        (["runs/soft/best", "runs/soft/last"], ["runs/soft/best", "runs/soft/last"]),
        (["owner/blip@refs/pr/7", "owner/git"], ["blip", "git"]),
        (["sat", "nic", "sat"], ["sat (1)", "nic", "sat (3)"]),
    ):
        assert short_names(names) == titles


def test_a_search_without_its_setting_refuses_it_by_name():
    for name, search in SEARCHES.items():
        for other in {setting for one in SEARCHES.values() for setting in one.settings} - {"seed"}:
            value = 0.25 if DecodingConfig.model_fields[other].annotation is float else 2
            if other in search.settings:
                continue
            with pytest.raises(UsageError, match=f"{other}=.* has no effect with search={name}; ") as error:
                DecodingConfig.checked({"search": name, other: value})
            users = [f"search={key}" for key, one in SEARCHES.items() if other in one.settings]
            assert str(error.value).endswith(f"use {' or '.join(users)}.")
    with pytest.raises(UsageError, match='search: there is no search "bream"; did you mean "beam"'):
        DecodingConfig.checked({"search": "bream"})


GIVEN: list[tuple[list[object], dict[str, Any]]] = [
    (["--min-length", 7, "--max-length", 9, "--num-beams", 5, "--num-return-sequences", 5],
     {"min_length": 7, "max_length": 9, "num_beams": 5, "num_return_sequences": 5}),
    (["--num-beams", 3, "--bad-word", "circle", "--bad-word", "red square"],
     {"num_beams": 3, "bad_words": ["circle", "red square"]}),
    (["--no-repeat-ngram-size", 1, "--no-bad-endings", "--unknown", "--min-length", 6],
     {"no_repeat_ngram_size": 1, "no_bad_endings": True, "no_unknown": False, "min_length": 6}),
    (["--search", "sample", "--seed", 7, "--temperature", 3, "--top-k", 5, "--top-p", 0.9, "--no-repeat-words"],
     {"search": "sample", "seed": 7, "temperature": 3, "top_k": 5, "top_p": 0.9, "no_repeat_words": True}),
    (["--num-beams", 4, "--length-penalty", 0.5, "--prefix", "a red"],
     {"num_beams": 4, "length_penalty": 0.5, "prefix": "a red"}),
]  # fmt: skip


def test_options_are_the_settings_of_python(caption, captioner, photos):
    for options, settings in GIVEN:
        assert caption(*options) == [one.to_json() for one in captioner.caption(photos[0], **settings)]
