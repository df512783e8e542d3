from collections.abc import Sequence
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from showtell.decoding import StageView, beam, greedy, sample, teacher_forced
from showtell.errors import UsageError
from showtell.models.contract import Capability, Decoder, DecoderConfig, Output, State
from showtell.types import Features
from tests.toys import TableDecoder, TableOutput, table_decoder

IMAGES, STEPS, SIZE = 3, 7, 8


class SeveralConfig(DecoderConfig):
    """The number of tables."""

    provides: ClassVar = {Capability.STAGES: {}}
    name: str = "tables"
    tables: int

    @property
    def stages(self) -> int:
        return self.tables


class Several(Decoder):
    """Several tables that read the same words: a decoder with a stage for each."""

    def __init__(self, tables: list[TableDecoder]) -> None:
        super().__init__()
        self.config = SeveralConfig(tables=len(tables))
        self.tables = torch.nn.ModuleList(tables)

    def start(self, features: Features) -> State:
        states = [table.start(features) for table in self.tables]
        return State(tuple(one.image for one in states), tuple(one.rows for one in states))

    def step(self, words: Tensor, state: State) -> tuple[Output, State]:
        before = map(State, state.image, state.rows)
        stepped = [table.step(words, own) for table, own in zip(self.tables, before, strict=True)]
        after = State(tuple(own.image for _, own in stepped), tuple(own.rows for _, own in stepped))
        own = [  # a region that only this stage looks at
            TableOutput(logits=output.logits, attention=torch.zeros_like(output.attention).index_fill_(-1, at, 1.0))
            for at, (output, _) in zip(torch.arange(len(stepped)), stepped, strict=True)
        ]
        return Output(attention=own[-1].attention, stages=tuple(own)), after

    def readout(self, output: Output, stage: int = -1) -> Tensor:
        own = output.stages[stage]
        assert isinstance(own, TableOutput)
        return own.logits


def several(images: int, steps: int, size: int, seeds: Sequence[int] = (1, 2, 3)) -> tuple[Several, Features]:
    made = [table_decoder(images, steps, size, seed) for seed in seeds]
    return Several([table for table, _ in made]), made[0][1]


@pytest.mark.parametrize("stage", [0, 1, 2, -1])
def test_every_walk_at_a_stage_is_that_of_the_stage_alone(stage):
    """The stages here know nothing of each other, so each must say what it would say on its own."""
    decoder, features = several(IMAGES, STEPS, SIZE)
    at, alone = StageView(decoder, stage), decoder.tables[stage]
    for walk in (
        lambda one: greedy(one, features, STEPS - 1),
        lambda one: beam(one, features, STEPS - 1, 3, num_return=2),
        lambda one: sample(one, features, STEPS - 1, samples=4, seed=5),
    ):
        actual, expected = walk(at), walk(alone)
        assert torch.equal(actual.words, expected.words)
        torch.testing.assert_close(actual.word_logprobs, expected.word_logprobs)
    captions = greedy(at, features, STEPS - 1, keep_outputs=True)
    looked = captions.attention[captions.is_word]
    assert bool((looked.argmax(-1) == stage % 3).all()) and float(looked.sum()) == len(looked)
    words = torch.randint(4, SIZE, (IMAGES, 2, STEPS), generator=torch.Generator().manual_seed(7))
    assert torch.equal(teacher_forced(at, features, words).logits, teacher_forced(alone, features, words).logits)


def test_an_unknown_stage_is_refused():
    decoder, _ = several(IMAGES, STEPS, SIZE)
    for model, stage, stages in (
        (decoder, 3, "stages 0 to 2"), (decoder, -4, "stages 0 to 2"), (decoder.tables[0], 1, "one stage, 0"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=rf"^There is no stage {stage}: the model has {stages}\.$"):
            StageView(model, stage)
