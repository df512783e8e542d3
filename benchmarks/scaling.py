"""Two processes against one, a thread each, and against one with two threads: training, and what its time goes to.

    python benchmarks/scaling.py [RECIPE ...] [--rounds 3] [--seconds 8] [--json] [training.batch_size=20 ...]

Real runs: the trainer and the optimiser of a recipe, changed as one likes (section.key=value), 64 images with five
captions in a step unless training.batch_size is given, on made-up captions of 12 words and features of 36 regions. The
three runs wait for each other and work in turn, a round of steps each, and medians over all rounds are compared. Under
a reward captions have as many words as `decoding.max_length`, since a model that knows nothing seldom ends one. Rows of
a recipe, named by its objective:

    two_processes   captions a second, against one process with a thread
    two_threads     the same figure, against one process with two threads
    communication   megabytes of gradients that each step adds up; the ratio is their share of a step: what it takes
                    beyond one without them (`no_sync`), waiting for the other process included
    largest_share   per cent of a step's processor time that the busier process spends, against an equal share
    foretold        seconds of a step by the cost model (docs/training_cost.md): half the batch alone, and the gradients
                    added up alone; against the step as measured
    validation_idle per cent of the processes' time in a validation in which they do not work, against all of it
    memory          megabytes of a process at most, against its weights, their gradients and its optimiser's numbers
    start           seconds until two processes have taken a step, against one process

The launcher itself is left out (`torchrun` takes some seconds more). Needs two free cores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from showtell.recipes import FOLDER

RECIPES = [FOLDER / "coco" / f"{name}.yaml" for name in ("updown_anderson2018", "updown_self_critical_anderson2018")]
LEAST_IMAGES, VALIDATED, CAPTIONS, LENGTH, WORDS, REGIONS = 200, 128, 5, 12, 10_000, 36
BATCH = 64  # images of a step
RUNS = {"one": (1, 1), "two": (2, 1), "threads": (1, 2)}  # processes, threads of each


def write_data(folder: Path, recipe: Path, changes: list[str]) -> list[str]:
    """A dataset and the features of its images; what a recipe has to be told of them."""
    from showtell.features import build_encoder
    from showtell.features.store import ImageFeatures, StoreInfo, StoreWriter
    from showtell.training import load_recipe

    import numpy as np

    chance, size = random.Random(0), load_recipe(recipe, changes).training.batch_size
    images = size * -(-LEAST_IMAGES // size)  # whole batches
    words = [f"word{number % WORDS}" for number in range(images * CAPTIONS * LENGTH)]  # every word is there
    chance.shuffle(words)
    words += chance.choices(words, k=VALIDATED * CAPTIONS * LENGTH)
    names = [f"{number:03}.png" for number in range(images + VALIDATED)]
    with (folder / "captions.jsonl").open("w") as lines:
        for number, name in enumerate(names):
            (folder / name).touch()
            first = number * CAPTIONS * LENGTH
            captions = [" ".join(words[first + n * LENGTH : first + (n + 1) * LENGTH]) for n in range(CAPTIONS)]
            split = "train" if number < images else "val"
            lines.write(json.dumps({"image": name, "captions": captions, "split": split}) + "\n")
    changes = [
        f"data.path={folder}", f"data.features={folder}/store", "vocabulary.min_count=1", "training.trackers=[]",
        "training.start_from=null", "training.epochs=1000", "training.reward_watchdog=null", *changes,
    ]  # fmt: skip
    encoder = build_encoder(load_recipe(recipe, changes).encoder)
    random_numbers = np.random.default_rng(0)
    with StoreWriter(folder / "store", StoreInfo.of(encoder, "fp16")) as store:
        for name in names:
            vectors = random_numbers.standard_normal((REGIONS, encoder.feature_size), dtype=np.float32)
            store.write({name: ImageFeatures(vectors)})
    return changes


def work(recipe: str, folder: str, changes: list[str]) -> None:
    """A process of a run: it does what the first one reads from stdin, and the first one says what it took."""
    from showtell.objectives.contract import with_step_counts
    from showtell.training import load_recipe
    from showtell.training.batches import epoch_batches, groups_of
    from showtell.training.loop import Trainer
    from showtell.types import Batch

    import torch
    from accelerate.utils import broadcast_object_list, gather_object

    trainer = Trainer(load_recipe(Path(recipe), changes), Path(folder), resume=False, quiet=True)
    accelerator, training = trainer.accelerator, trainer.recipe.training

    def groups() -> Iterator[list[Batch]]:
        for epoch in count():
            batches = epoch_batches(
                trainer.data, epoch=epoch, skip=0, batch_size=training.batch_size, bucket=training.bucket,
                seed=training.seed, workers=0, process=accelerator.process_index, processes=accelerator.num_processes,
            )  # fmt: skip
            yield from groups_of(batches, training.gradient_accumulation)

    remaining = groups()

    def step() -> None:
        group = next(remaining)
        trainer._step(with_step_counts(group, trainer._counts(group)))
        trainer.progress.step += 1

    def timed(doing: Any) -> tuple[float, float]:
        """Seconds that pass, and of this process's work."""
        accelerator.wait_for_everyone()
        began, worked = time.perf_counter(), time.process_time()
        doing()
        return time.perf_counter() - began, time.process_time() - worked

    def alone() -> None:
        with accelerator.no_sync(trainer.model):
            step()

    weights = [weight for weight in trainer.raw_model.parameters() if weight.requires_grad]
    gradients = torch.zeros(sum(weight.numel() for weight in weights))

    def add_up() -> None:
        waiting = [torch.distributed.all_reduce(part, async_op=True) for part in gradients.split(25 * 2**18)]
        for one in waiting:
            one.wait()

    def measured(order: str, seconds: float) -> dict[str, Any]:
        timings: dict[str, Any] = {"step": [], "alone": [], "add_up": [], "work": []}
        if order == "validate":
            validator = trainer.validator
            assert validator is not None
            passed, worked = timed(lambda: validator.validate(lambda done: None))
            # In KB; the benchmark's own gradients are not the run's.
            memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - gradients.nbytes) / 1e6
            return {"validation": passed, "work": gather_object([worked]), "memory": max(gather_object([memory]))}
        ends = time.perf_counter() + seconds
        while True:
            passed, worked = timed(step)
            timings["step"].append(passed)
            timings["work"].append(gather_object([worked]))
            if accelerator.num_processes > 1:
                timings["alone"].append(timed(alone)[0])
                timings["add_up"].append(timed(add_up)[0])
            if broadcast_object_list([time.perf_counter() > ends])[0]:
                return timings

    trainer.model.train()
    step()
    kept = [number for state in trainer.optimizer.state.values() for number in state.values()]
    message = {"megabytes": gradients.nbytes / 1e6, "captions": training.batch_size * CAPTIONS}
    message["state"] = 2 * message["megabytes"] + sum(number.nbytes for number in kept if torch.is_tensor(number)) / 1e6
    while True:
        if accelerator.is_main_process:
            print(json.dumps(message), flush=True)
        order = [sys.stdin.readline().split() if accelerator.is_main_process else None]
        (given,) = broadcast_object_list(order)
        if not given:
            return
        message = measured(given[0], float(given[1]))


class Run:
    """The processes of one run, which do nothing until they are asked."""

    def __init__(self, processes: int, threads: int, arguments: list[str]) -> None:
        began = time.perf_counter()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._processes = []
        for rank in range(processes):
            environment = {"OMP_NUM_THREADS": threads, "TORCH_CPP_LOG_LEVEL": "ERROR"}
            if processes > 1:
                environment |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes}
                environment |= {"MASTER_PORT": port, "MASTER_ADDR": "127.0.0.1"}
            pipe = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, __file__, "--work", *arguments],
                    env=os.environ | {name: str(value) for name, value in environment.items()},
                    stdin=pipe,
                    stdout=pipe,
                    text=True,
                )
            )
        self.about = self._answer()
        self.start = time.perf_counter() - began

    def ask(self, order: str, seconds: float = 0) -> dict[str, Any]:
        """What the processes say that they measured."""
        stdin = self._processes[0].stdin
        assert stdin is not None
        stdin.write(f"{order} {seconds}\n")
        stdin.flush()
        return self._answer()

    def end(self) -> None:
        """Let them go."""
        self._processes[0].communicate()
        for process in self._processes:
            process.wait()

    def _answer(self) -> dict[str, Any]:
        stdout = self._processes[0].stdout
        assert stdout is not None
        line = stdout.readline()
        if not line.startswith("{"):
            sys.exit(f"A process of the benchmark ended, or said {line!r}.")
        return json.loads(line)


def rows_of(recipe: Path, changes: list[str], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """All rows of a recipe."""
    from showtell.training import load_recipe

    with tempfile.TemporaryDirectory() as name:
        told = write_data(Path(name), recipe, changes)
        runs = {key: Run(*RUNS[key], [str(recipe), f"{name}/{key}", *told]) for key in RUNS}
        timings: dict[str, dict[str, list[Any]]] = {key: {} for key in RUNS}
        for _ in range(rounds):
            for key, run in runs.items():
                for what, values in run.ask("steps", seconds).items():
                    timings[key].setdefault(what, []).extend(values)
        validated = runs["two"].ask("validate")
        for run in runs.values():
            run.end()
    two = runs["two"]
    step = {key: median(timings[key]["step"]) for key in RUNS}
    middle = {what: median(timings["two"][what]) for what in ("alone", "add_up")}
    share = median(max(worked) / sum(worked) for worked in timings["two"]["work"])
    idle = 1 - sum(validated["work"]) / (validated["validation"] * RUNS["two"][0])
    rate = two.about["captions"] / step["two"]
    foretold = middle["alone"] + middle["add_up"]
    about = {"recipe": recipe.stem, "captions": two.about["captions"], "changes": changes}
    about |= {"steps": len(timings["two"]["step"]), "seconds": step | middle}
    table = [
        ("two_processes", rate, "captions/s", "one process, a thread each", step["one"] / step["two"]),
        ("two_threads", rate, "captions/s", "one process with two threads", step["threads"] / step["two"]),
        ("communication", two.about["megabytes"], "MB a step", "the step", 1 - middle["alone"] / step["two"]),
        ("largest_share", 100 * share, "%", "an equal share", share * RUNS["two"][0]),
        ("foretold", foretold, "s a step", "the step as measured", foretold / step["two"]),
        ("validation_idle", 100 * idle, "%", f"{validated['validation']:.1f} s of validation", idle),
        (
            "memory",
            validated["memory"],
            "MB",
            "weights, gradients, optimiser",
            validated["memory"] / two.about["state"],
        ),
        ("start", two.start, "s", "one process", two.start / runs["one"].start),
    ]
    objective = load_recipe(recipe, told).objective.name
    return [
        {"name": f"{objective}_{name}", "value": value, "unit": unit, "against": against, "ratio": ratio} | about
        for name, value, unit, against, ratio in table
    ]


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--work"]:
        from showtell.training.launch import kept_memory

        with kept_memory():
            work(sys.argv[2], sys.argv[3], sys.argv[4:])
        return
    from rows import show

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("given", nargs="*", metavar="RECIPE | section.key=value")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8, help="of steps in each round of each run")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    changes = [f"training.batch_size={BATCH}", *(given for given in arguments.given if "=" in given)]
    recipes = [Path(given) for given in arguments.given if "=" not in given] or RECIPES
    rows = [row for recipe in recipes for row in rows_of(recipe, changes, arguments.rounds, arguments.seconds)]
    show(rows, arguments.json)


if __name__ == "__main__":
    main()
