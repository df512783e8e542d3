"""CUDA graphs on a processor: what a capture would record is recorded, and done again on the same tensors.

It raises where a capture would: at what waits for data, has a size that depends on it, or makes a tensor of Python's
values. Whatever else Python does happens once, and kernels of our own are not seen: float64 has none.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Recording(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if func in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default):
            is_dynamic = any(x.dtype == torch.bool for x in tensors[1:])
        else:
            is_dynamic = torch.Tag.dynamic_output_shape in func.tags
        waits = is_dynamic or torch.Tag.data_dependent_output in func.tags
        if waits or func is torch.ops.aten.lift_fresh.default:
            raise RuntimeError(f"{func} is not permitted when stream is capturing")
        result = func(*args, **(kwargs or {}))
        results = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        made = [x for x in results if all(x is not given for given in tensors)]
        self.operations.append((func, args, kwargs or {}, made))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        for func, args, kwargs, made in self.operations:
            results = [x for x in tree_leaves(func(*args, **kwargs)) if isinstance(x, torch.Tensor)]
            for old, new in zip(made, results, strict=True) if made else ():
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class RecordedGraphs:
    """`showtell.cuda_graphs.CudaRecorder` for tests."""

    def __init__(self) -> None:
        self.captured = 0
        self.replayed = 0

    def warming_up(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def capture(self) -> Iterator[Callable[[], object]]:
        with _Recording() as recording:

            def replay() -> None:
                self.replayed += 1
                recording.replay()

            self.captured += 1
            yield replay

    def mark(self) -> Callable[[], object]:
        return lambda: None
