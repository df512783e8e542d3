"""Every key that a recipe may have: described, bounded, on the page of keys, and any value taken or refused."""

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Literal, get_origin

import pytest
import yaml
from pydantic import ValidationError

from showtell.config import Config, flat
from showtell.decoding_config import DecodingConfig
from showtell.errors import RecipeError, one_line
from showtell.training.recipe import Recipe, TrainingConfig, VocabularyConfig
from showtell.training.recipe_checks import make_recipe

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "src" / "showtell" / "recipes").rglob("*.yaml"))
LETTERS = {"b", "b_t", "c", "k", "m", "n", "r", "epsilon", "lambda", "lambda_e", "lambda_r", "mu", "nu", "tau",
           "squash", "pretrained", "random", "detected"}  # fmt: skip  # of the equations, and values


def settings(kind: type[Config]) -> Iterator[type[Config]]:
    """All settings records of showtell."""
    for one in kind.__subclasses__():
        yield one
        yield from settings(one)


def test_every_setting_has_a_description():
    for kind in {one for one in settings(Config) if one.__module__.startswith("showtell.")}:
        for name, field in kind.model_fields.items():
            if kind is Recipe or (name == "name" and get_origin(field.annotation) is Literal):
                continue  # sections are described by their classes
            text = field.description
            assert text, f"{kind.__name__}.{name} has no description"
            assert text[0].isupper() or text.split()[0].strip("`,") in LETTERS, text
            assert text.endswith("."), f"{kind.__name__}.{name}: {text}"


def test_sizes_that_memory_is_allocated_by_have_an_upper_bound():
    names = "size|layers|samples|num_beams|num_return_sequences|proposals|regions|horizon|rollouts|widths|grid"
    sizes = re.compile(f"({names})$")
    for kind in {one for one in settings(Config) if one.__module__.startswith("showtell.")}:
        for name, field in kind.model_fields.items():
            if not sizes.search(name) or get_origin(field.annotation) is Literal:
                continue
            if kind in (TrainingConfig, VocabularyConfig, Recipe):  # no memory is allocated by these
                continue
            huge = (2**40,) if name == "widths" else 2**40
            with pytest.raises(ValidationError) as error:
                kind.model_validate({name: huge})
            assert any("should be less than or equal to" in one["msg"] for one in error.value.errors()), (kind, name)


ODD = [None, True, -1, 2**63, "", "x" * 5000, "\x1b[31m", [], {}, [[]], {"a": 1}]


def test_any_value_of_any_key_is_taken_or_refused_in_a_line():
    (path,) = (file for file in FILES if file.match("scenes/hacap.yaml"))
    recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    keys = [*flat(recipe), "data", "encoder", "model.name", "encoder.name", "objective.name", "model.nothing"]
    keys += [f"{section}.{name}" for section, kind in (("decoding", DecodingConfig), ("training", TrainingConfig))
             for name in kind.model_fields]  # fmt: skip
    for key in dict.fromkeys(keys):
        for value in ODD:
            content = deepcopy(recipe)
            *sections, last = key.split(".")
            inner = content
            for section in sections:
                inner = inner.setdefault(section, {})
            inner[last] = value
            try:
                make_recipe(content)
            except RecipeError as error:
                assert all(len(one_line(line)) <= 2000 for line in str(error).split("\n")), (key, value)
                assert one_line(str(error)).isprintable()
