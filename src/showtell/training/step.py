"""Forward and backward pass of a batch, on a GPU as a graph, and the sum of gradients over processes.

A captured step (`cuda_graphs.py`), one whose objective and decoder have fixed shapes, adds its gradients to tensors
that stay where they are. Clipping and the optimiser come behind the graph, with the gradients of all processes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from showtell import counter_rng
from showtell.cuda_graphs import Steps, graphs_of, run, run_eagerly, shapes
from showtell.features import Encoder
from showtell.models import Decoder
from showtell.models.kernels import bfloat16_products
from showtell.objectives import Objective
from showtell.objectives.processes import sum_over_processes
from showtell.training.mentions import locate
from showtell.types import Batch, Terms


class TrainingModel(nn.Module):
    """Encoder, decoder and objective of a run."""

    def __init__(self, encoder: Encoder, decoder: Decoder, objective: Objective) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.objective = objective
        self.encoder_learns = True  # false: the encoder is frozen for now

    def train(self, mode: bool = True) -> TrainingModel:
        """Set the mode; an encoder that does not learn yet stays in eval mode, batch norm included."""
        super().train(mode)
        self.encoder.train(mode and self.encoder_learns)
        return self

    def steps(self, batch: Batch) -> Steps[Terms]:
        """The terms of one batch, from its photos or from their stored features (`Objective.steps`)."""
        if batch.features is None:
            with torch.set_grad_enabled(torch.is_grad_enabled() and self.encoder_learns):
                features = self.encoder(batch.prepared)
        else:
            features = batch.features
        if batch.mentions is not None:
            batch = replace(batch, mentions=locate(batch.mentions, self.encoder, features))
        return self.objective.steps(batch, features, self.decoder)


class TrainingStep:
    """The terms of a batch; the gradients of their total are added to those of the weights."""

    def __init__(self, model: TrainingModel, accelerator: Accelerator, *, rounds_products: bool) -> None:
        self.model = model
        self.accelerator = accelerator
        self.rounds_products = rounds_products
        self._static: dict[nn.Parameter, Tensor] = {}  # gradients that graphs add to
        self._with_gradient: dict[Hashable, list[nn.Parameter]] = {}  # the weights that a shape's step has learned

    def __call__(self, batch: Batch, rng: counter_rng.CounterRNG) -> dict[str, Tensor]:
        """The total, named "loss", and the parts of a batch with the counts of its step, all on the device."""
        assert batch.counts is not None, "a batch of a step has the counts of the step"
        device, model = batch.words.device, self.model
        keys = rng.keys[0].to(device, non_blocking=True), rng.keys[1].to(device, non_blocking=True)
        inputs = batch, keys
        has_fixed_shapes = model.objective.has_fixed_shapes and model.decoder.has_fixed_shapes
        is_eager = batch.is_dummy or not has_fixed_shapes or isinstance(batch.images, tuple)
        if is_eager or graphs_of(model, device) is None:
            return run_eagerly(self._steps(inputs), batch.image_ids)
        variant = model.objective.variant, model.encoder_learns
        if weights := self._with_gradient.get((variant, shapes(inputs))):
            self._use_static_gradients(weights)
        result = run(self._steps, inputs, owner=model, key=variant, host=batch.image_ids)
        if weights is None:
            learned = [weight for weight in model.parameters() if weight.grad is not None]
            self._with_gradient[variant, shapes(inputs)] = learned
        return result

    def _steps(self, inputs: tuple[Batch, tuple[Tensor, Tensor]]) -> Steps[dict[str, Tensor]]:
        batch, keys = inputs
        products = bfloat16_products() if self.rounds_products else nullcontext()
        with counter_rng.use(counter_rng.CounterRNG.of_keys(keys)), products:
            with self.accelerator.autocast():
                terms = yield from self.model.steps(batch)
            # A dummy batch takes part in what processes do together, and adds nothing.
            self.accelerator.backward(terms.total * (0 if batch.is_dummy else 1))
        parts = {"loss": terms.total.detach(), **terms.parts}
        return {name: torch.zeros_like(value) if batch.is_dummy else value for name, value in parts.items()}

    def _use_static_gradients(self, weights: Iterable[nn.Parameter]) -> None:
        """Gradients at addresses that stay, with what other batches of the step have added to them."""
        new = []
        for weight in weights:
            if weight not in self._static:
                self._static[weight] = torch.empty_like(weight, requires_grad=False)
            static = self._static[weight]
            if weight.grad is None:
                new.append(static)
            elif weight.grad is not static:
                static.copy_(weight.grad)
            weight.grad = static
        if new:
            torch._foreach_zero_(new)


def sum_gradients(weights: Iterable[nn.Parameter]) -> None:
    """Add up the gradients of all processes, in one message. All of them have gradients of the same weights."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    total = sum_over_processes(torch.cat([gradient.flatten() for gradient in gradients]))
    parts = torch.split(total, [gradient.numel() for gradient in gradients])
    torch._foreach_copy_(gradients, [part.view_as(of) for part, of in zip(parts, gradients, strict=True)])


def on_device(batches: Iterable[Batch], device: torch.device) -> Iterator[Batch]:
    """The batches on a device. Each is on its way to a GPU beside the step of the one before."""
    if device.type != "cuda":
        yield from (batch.to(device) for batch in batches)
        return
    stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def send(batch: Batch) -> tuple[Batch, torch.cuda.Event]:
        stream.wait_stream(torch.cuda.current_stream())  # the memory of batches that were used is used again
        with torch.cuda.stream(stream):
            return batch.to(device), stream.record_event()

    sent = map(send, batches)
    following = next(sent, None)
    while following is not None:
        (batch, arrived), following = following, next(sent, None)
        torch.cuda.current_stream().wait_event(arrived)
        yield batch
