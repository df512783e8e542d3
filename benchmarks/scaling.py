"""Two processes against one, a thread each: training steps on made-up features, and what their time goes to.

    .venv/bin/python benchmarks/scaling.py [--json] [--seconds 8]

Up-Down learns from 10 x 10 features of 512 numbers, 16 images with 5 captions in a step, a vocabulary of 5,000 words,
by cross-entropy and by self-critical training. The processes share the images of a step. Communication is what a
process spends in a step beyond the same work without it (`no_sync`), waiting for the other included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

IMAGES, CAPTIONS, WORDS, VOCABULARY = 16, 5, 12, 5000


def work(objective_name: str, seconds: float) -> None:
    """Steps in this process, one of those that share them, and their rates on stdout from the first."""
    import torch
    from accelerate import Accelerator
    from accelerate.utils import DistributedDataParallelKwargs

    from showtell.models.updown import UpDownConfig, UpDownDecoder
    from showtell.noise import Noise, use
    from showtell.objectives import OBJECTIVES
    from showtell.types import Batch, Counts, Features

    torch.set_num_threads(1)
    rewarded = OBJECTIVES[objective_name][1].optimises_reward
    accelerator = Accelerator(
        cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=rewarded)]
    )
    torch.manual_seed(0)
    chance = torch.Generator().manual_seed(0)
    words = torch.randint(4, VOCABULARY, (IMAGES, CAPTIONS, WORDS + 2), generator=chance)
    words[..., 0], words[..., -1] = 1, 2
    own = slice(accelerator.process_index, None, accelerator.num_processes)
    names = tuple(f"{number}" for number in range(IMAGES))
    vectors = torch.randn(IMAGES, 100, 512, generator=chance)[own]
    features = Features(vectors, torch.ones(vectors.shape[:2], dtype=torch.bool))
    counts = Counts(IMAGES * CAPTIONS * (WORDS + 1), IMAGES * CAPTIONS, IMAGES)
    batch = Batch(names[own], None, words[own], torch.ones(words[own].shape[:2], dtype=torch.bool), features, counts)

    config, kind = OBJECTIVES[objective_name]
    objective = kind(config(), feature_size=512, vocabulary_size=VOCABULARY)  # type: ignore[call-arg]
    objective.prepare(dict(zip(names, words.tolist(), strict=True)), WORDS)
    decoder = UpDownDecoder(UpDownConfig(), feature_size=512, vocabulary_size=VOCABULARY)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.decoder, self.objective = decoder, objective

        def forward(self, batch: Batch, features: Features) -> Any:
            return self.objective(batch, features, self.decoder)

    plain = Model()
    model, optimizer = accelerator.prepare(plain, torch.optim.SGD(plain.parameters(), lr=0.0))

    def step(number: int, alone: bool) -> float:
        began = time.perf_counter()
        with use(Noise(0, number, batch.image_ids)):
            if alone:
                with accelerator.no_sync(model):
                    accelerator.backward(model(batch, features).total)
            else:
                accelerator.backward(model(batch, features).total * accelerator.num_processes)
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - began

    for number in range(2):
        step(number, alone=False)
    spent = {True: [0.0], False: [0.0]}
    number = 2
    while True:
        for alone in (False, True):
            spent[alone].append(step(number, alone))
        number += 1
        over = accelerator.reduce(torch.tensor(float(sum(spent[False]) + sum(spent[True]) > seconds)), "max")
        if over > 0:
            break
    if accelerator.is_main_process:
        whole, without = sorted(spent[False][1:]), sorted(spent[True][1:])
        middle = len(whole) // 2
        weights = sum(parameter.numel() for parameter in plain.parameters()) * 4 / 1e6
        print(json.dumps({
            "rate": IMAGES * CAPTIONS / whole[middle], "communication": 1 - without[middle] / whole[middle],
            "steps": len(whole), "megabytes": weights,
        }))  # fmt: skip


def measured(processes: int, objective: str, seconds: float) -> dict[str, float]:
    """What `work` says in so many processes."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    arguments = [sys.executable, *launcher, __file__, "--work", objective, "--seconds", str(seconds)]
    done = subprocess.run(
        arguments, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=8, help="of steps in each measurement")
    parser.add_argument("--work", choices=["cross_entropy", "self_critical"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(given.work, given.seconds)
        return
    rows = []
    for objective in ("cross_entropy", "self_critical"):
        one, two = (measured(processes, objective, given.seconds) for processes in (1, 2))
        name = f"{objective}_two_processes"
        rows.append({
            "name": name, "value": round(two["rate"], 1), "unit": "captions/s", "against": "one, a thread each",
            "ratio": round(two["rate"] / one["rate"], 3),
        })  # fmt: skip
        rows.append({
            "name": f"{objective}_communication", "value": round(two["megabytes"], 1), "unit": "MB of gradients a step",
            "against": "the whole step", "ratio": round(two["communication"], 3),
        })  # fmt: skip
    if given.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print(f"{row['name']:32} {row['value']:9} {row['unit']:24} {row['ratio']:.3f} of {row['against']}")


if __name__ == "__main__":
    main()
