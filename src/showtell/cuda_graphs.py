"""Functions of fixed shapes, captured as CUDA graphs and replayed: one launch in place of hundreds.

A step of a decoder is a hundred small kernels, which a GPU computes faster than Python starts them. A graph starts them
together, at the addresses that they had when it was captured. So a captured function

 - has inputs of the shapes with which it was captured; they are copied into the graph's own,
 - depends on nothing else that changes, unless it changes in place: a Python number stays what it was,
 - neither waits for data nor has sizes that depend on it. Inside, `is_static()` is true: what is left out elsewhere
   (finished images, padding) is masked.

It is a generator, which may leave to Python what no graph can do. What stands between two of these is one graph:

    yield Until(is_done)                # a loop ends here, if it is True, and goes on behind `Finish`
    yield Finish()
    yield Ask(function, words)          # compute on the processor, beside what follows on the GPU
    answer = yield Answer()             # and wait for it

`run` decides which form runs: a graph on a GPU, from the second time on that a shape comes, the same code without one
everywhere else. With SHOWTELL_GRAPHS=off in the environment nothing is captured.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from showtell.types import map_tensors, tensors_of

InputsT = TypeVar("InputsT")
ResultT = TypeVar("ResultT")
Steps = Generator[Any, Any, ResultT]  # yields requests, is sent answers

MAX_GRAPHS = 32  # captured shapes of a module; the least recently used one goes
WARM_UPS = 3  # runs before a capture, in which libraries allocate and choose what they will use

_is_static = contextvars.ContextVar("is_static", default=False)


def is_static() -> bool:
    """Whether shapes may not depend on data here, and nothing may wait for it."""
    return _is_static.get()


@contextlib.contextmanager
def static_shapes() -> Iterator[None]:
    """Inside the block the forms run that can be captured."""
    token = _is_static.set(True)
    try:
        yield
    finally:
        _is_static.reset(token)


@dataclass(frozen=True)
class Until:
    """The loop may end here."""

    is_done: Tensor  # () bool


@dataclass(frozen=True)
class Finish:
    """The loop is over: what follows runs in any case."""


@dataclass(frozen=True)
class Ask:
    """Something to compute on the processor."""

    function: Callable[..., Tensor]  # of what `run` got as `host` and the tensors, on the processor
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True)
class Answer:
    """The result of what was asked last is needed now, on the device of its tensors."""


def run_eagerly(steps: Steps[ResultT], host: Any = None, answers: list[Tensor] | None = None) -> ResultT:
    """The result of a function that is not captured; its answers are added to a list."""
    asked, send = None, None
    while True:
        try:
            request = steps.send(send)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        send = None
        if isinstance(request, Ask):
            asked = request.function(host, *(x.cpu() for x in request.tensors)).to(request.tensors[0].device)
        elif isinstance(request, Answer):
            send = asked
            if answers is not None and asked is not None:
                answers.append(asked)


def run(
    steps: Callable[[InputsT], Steps[ResultT]],  # depends on its inputs, the weights of the owner and the key alone
    inputs: InputsT,  # a record of tensors
    *,
    owner: nn.Module,  # keeps the graphs; its buffers and gradients are all that the function may change
    key: Hashable = (),
    host: Any = None,  # what functions of `Ask` are given beside tensors; it may differ in each call
) -> ResultT:
    """The result of a function, by its graphs where there is a GPU; its tensors are the caller's."""
    graphs = None if is_static() else graphs_of(owner, tensors_of(inputs)[0].device)
    return run_eagerly(steps(inputs), host) if graphs is None else graphs.run(steps, inputs, owner, key, host)


def shapes(record: Any) -> Hashable:
    """What of the tensors of a record a graph depends on."""
    return tuple((tuple(x.shape), x.dtype) for x in tensors_of(record))


class CudaRecorder:
    """CUDA graphs, which share the memory of their intermediate results: they run one after the other."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @contextlib.contextmanager
    def warming_up(self) -> Iterator[None]:
        """All runs as in a capture, but is computed: on a stream of its own, whose memory nobody else could use."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()

    @contextlib.contextmanager
    def capture(self) -> Iterator[Callable[[], object]]:
        """A function that does again what the block does. Other threads may go on to use the device."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                yield graph.replay
            finally:
                graph.capture_end()

    def mark(self) -> Any:
        """A function that waits for what was started up to now."""
        return torch.cuda.current_stream(self._device).record_event().synchronize


@dataclass
class _Captured:
    """The graphs of a function for one shape of its inputs."""

    inputs: Any  # static
    stretches: list[tuple[Callable[[], object], Any]]  # each graph, and the request behind it
    answers: list[Tensor]  # static
    result: Any  # static
    steps: Callable[[Any], Steps[Any]]  # keeps tensors alive that the function closes over

    def replay(self, inputs: Any, host: Any, mark: Callable[[], Callable[[], object]]) -> Any:
        """The result for other inputs, until the next replay."""
        with torch.no_grad():
            map_tensors(self.inputs, lambda static, new: static.copy_(new, non_blocking=True), inputs)
        answers, is_over = iter(self.answers), False
        for start, request in self.stretches:
            if not is_over:
                start()
            if isinstance(request, Until):
                is_over = is_over or bool(request.is_done)
            elif isinstance(request, Finish):
                is_over = False
            elif isinstance(request, Ask):
                question = request.function, [x.to("cpu", non_blocking=True) for x in request.tensors], mark()
            elif isinstance(request, Answer):
                function, tensors, wait = question
                wait()
                next(answers).copy_(function(host, *tensors), non_blocking=True)
        return self.result


class Graphs:
    """The graphs of a module. A copy of it has none."""

    def __init__(self, recorder: Callable[[torch.device], Any] = CudaRecorder) -> None:
        self._make_recorder = recorder
        self._recorder: Any = None
        self._captured: OrderedDict[Hashable, _Captured] = OrderedDict()
        self._seen: set[int] = set()  # hashes of what ran once
        self._refused: set[Hashable] = set()  # what cannot be captured
        self._lock = threading.RLock()  # a graph has one set of inputs

    def __reduce__(self) -> Any:
        return Graphs, (self._make_recorder,)

    def run(
        self, steps: Callable[[InputsT], Steps[ResultT]], inputs: InputsT, owner: nn.Module, key: Hashable, host: Any
    ) -> ResultT:
        """See `run`."""
        whole = (key, shapes(inputs), _surroundings(owner))
        with self._lock:
            captured = self._captured.get(whole)
            if captured is None and hash(whole) in self._seen and key not in self._refused:
                captured = self._capture(steps, inputs, owner, key, host)
            if captured is None:
                self._seen.add(hash(whole))
                return run_eagerly(steps(inputs), host)
            self._captured[whole] = captured
            self._captured.move_to_end(whole)
            if len(self._captured) > MAX_GRAPHS:
                self._captured.popitem(last=False)
            with torch.no_grad():
                return map_tensors(captured.replay(inputs, host, self._recorder.mark), torch.clone)  # type: ignore

    def _capture(
        self, steps: Callable[[InputsT], Steps[Any]], inputs: InputsT, owner: nn.Module, key: Hashable, host: Any
    ) -> _Captured | None:
        """The graphs of a function for inputs of these shapes; None, with a warning, if it cannot be captured."""
        device = tensors_of(inputs)[0].device
        self._recorder = self._recorder or self._make_recorder(device)
        changing = [*owner.buffers(), *(p.grad for p in owner.parameters() if p.grad is not None)]
        before = [x.detach().clone() for x in changing]
        static = map_tensors(inputs, lambda x: x.to(device, copy=True))
        try:
            with static_shapes():
                with self._recorder.warming_up():
                    for _ in range(WARM_UPS):
                        answers: list[Tensor] = []
                        run_eagerly(steps(static), host, answers)
                try:
                    return self._stretches(steps, static, answers)
                except RuntimeError as error:
                    self._refused.add(key)
                    self._recorder = self._make_recorder(device)  # memory of a broken capture is not captured into
                    name, reason = type(owner).__name__, str(error.__context__ or error).partition("\n")[0]
                    warnings.warn(f"{name} cannot be captured as a CUDA graph and runs without: {reason}", stacklevel=2)
                    return None
        finally:
            with torch.no_grad():
                for x, old in zip(changing, before, strict=True):
                    x.copy_(old)

    def _stretches(self, steps: Callable[[Any], Steps[Any]], static: Any, answers: list[Tensor]) -> _Captured:
        captured = _Captured(static, [], [x.clone() for x in answers], None, steps)
        generator, unused, send = steps(static), iter(captured.answers), None
        while True:
            request = None
            with self._recorder.capture() as replay:
                try:
                    request = generator.send(send)
                except StopIteration as end:
                    captured.result = end.value
            captured.stretches.append((replay, request))
            if request is None:
                return captured
            send = next(unused) if isinstance(request, Answer) else None


def graphs_of(owner: nn.Module, device: torch.device) -> Graphs | None:
    """The graphs that a module keeps; None where nothing is captured."""
    graphs: Graphs | None = owner.__dict__.get("graphs")
    if graphs is None and os.environ.get("SHOWTELL_GRAPHS") != "off" and device.type == "cuda":
        graphs = owner.__dict__["graphs"] = Graphs()
    return graphs


def _surroundings(owner: nn.Module) -> Hashable:
    """What torch computes with, and where the weights are, from where graphs read them."""
    autocast = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
    addresses = tuple(x.data_ptr() for some in (owner.parameters(), owner.buffers()) for x in some)
    return owner.training, torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast, addresses
