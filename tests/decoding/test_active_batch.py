"""Images that are done leave, and an image's features are held once for all its beams."""

import torch

from showtell.decoding import beam, greedy
from showtell.decoding.active_batch import ActiveBatch
from showtell.decoding.policy import rollouts
from showtell.text.vocabulary import Vocabulary
from tests.toys import TableDecoder, table_decoder


class Widths(TableDecoder):
    """Notes how many images each step is for."""

    def step(self, words, state):
        self.widths.append(len(words))
        return super().step(words, state)


def test_images_that_are_done_leave_the_batch():
    lengths = [1, 1, 2, 3, 5, 5, 7, 7]  # so many times an image says word 4, and ends
    _, features = table_decoder(images=8, steps=9, size=6, seed=0)
    decoder = Widths(torch.zeros(8, 9, 6, 6))
    decoder.table[..., 4] = 90.0
    for image, length in enumerate(lengths):
        decoder.table[image, length, :, Vocabulary.end] = 300.0
    for walk in (
        lambda *given: greedy(*given, 8),
        lambda *given: beam(*given, 8, 3, num_return=1),
        lambda *given: rollouts(*given, 8, 2).captions,
    ):
        decoder.widths = []
        assert walk(decoder, features).is_word.sum(-1)[:, 0].tolist() == [length + 1 for length in lengths]
        # They go when a quarter is done: two of eight after step 2, two of six after step 4, two of four after step 6.
        assert decoder.widths == [8, 8, 6, 6, 4, 4, 2, 2]


def test_where_asking_means_waiting_it_is_asked_every_fourth_step():
    active_batch = ActiveBatch(4, torch.device("cpu"))
    active_batch.sync_is_free = False  # as on a GPU
    done = torch.tensor([True, True, True, False])
    assert [active_batch.remaining(done, step, last=False) is None for step in range(4)] == [True, True, True, False]
    assert active_batch.remaining(done, 3, last=False).tolist() == [3]
    assert active_batch.remaining(~done, 3, last=False).tolist() == [0, 1, 2]  # a quarter is enough to go
    assert ActiveBatch(8, torch.device("cpu")).remaining(torch.arange(8) < 1, 3, last=False) is None  # an eighth is not
    assert active_batch.remaining(done, 0, last=True).tolist() == []
