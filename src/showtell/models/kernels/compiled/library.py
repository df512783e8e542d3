"""Compiles the loops of `kernels.cpp` for this machine's processor at their first use, and calls them (README.md).

The library is kept in the cache folder, by a name made of everything that it depends on.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from showtell.errors import DataError
from showtell.files import cache_folder, write_bytes
from showtell.models.kernels.plain import Activation

SOURCE = Path(__file__).with_name("kernels.cpp")
# Sums may be reordered only where the source says so, and NaN and infinity keep their meaning.
FLAGS = (
    "-O3",
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-fopenmp",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
)
TUNING = (
    ("-march=native", "-mprefer-vector-width=512") if platform.machine() in ("x86_64", "AMD64") else ("-mcpu=native",)
)
SECONDS = 120  # that a compiler may take


def fits(*tensors: Tensor) -> bool:
    """Whether the compiled kernels can compute with these: float32 on a CPU."""
    return all(x.dtype == torch.float32 and x.device.type == "cpu" for x in tensors) and why_not() is None


def why_not() -> str | None:
    """Why there are no compiled kernels on this machine; None where there are."""
    library = _library()
    return library if isinstance(library, str) else None


def additive_scores(p: Tensor, q: Tensor, w: Tensor, activation: Activation) -> Tensor:
    """(B, R, A), (B, N, A) and A numbers to (B, N, R): `plain.additive_scores`."""
    scores = p.new_empty(*q.shape[:2], p.shape[1])
    _call("additive_scores", (p, q, w), (scores,), *q.shape[:2], *p.shape[1:], int(activation == "relu"))
    return scores


def additive_scores_backward(
    p: Tensor, q: Tensor, w: Tensor, gradient: Tensor, activation: Activation
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of p, q and w from that of the scores, (B, N, R)."""
    grad_p, grad_q, grad_w = p.new_zeros(p.shape), q.new_empty(q.shape), w.new_empty(len(q), w.numel())
    sizes = (*q.shape[:2], *p.shape[1:], int(activation == "relu"))
    _call("additive_scores_backward", (p, q, w, gradient), (grad_p, grad_q, grad_w), *sizes)
    return grad_p.mul_(w.view(-1)), grad_q, grad_w.sum(0).view_as(w)


def log_sum_exp(scores: Tensor) -> tuple[Tensor, Tensor]:
    """log sum_v exp s_v and sum_v s_v of each row: (M, V) to (M) and (M)."""
    outputs = logsumexp, sums = scores.new_empty(len(scores)), scores.new_empty(len(scores))
    _call("log_sum_exp", (scores,), outputs, *scores.shape)
    return logsumexp, sums


def log_likelihood_backward(
    scores: Tensor, words: Tensor, logsumexp: Tensor, gradient: Tensor, smoothing: float
) -> Tensor:
    """The gradient of (M, V) scores from that of the (M) log-likelihoods of words."""
    grad_scores, inputs = scores.new_empty(scores.shape), (scores, words, logsumexp, gradient)
    _call("log_likelihood_backward", inputs, (grad_scores,), *scores.shape, smoothing=smoothing)
    return grad_scores


def _call(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], *sizes: int, **numbers: float) -> None:
    """Run a function of `kernels.cpp`, which takes its arguments in this order, with torch's number of threads."""
    library = _library()
    assert isinstance(library, ctypes.CDLL) and all(x.is_contiguous() for x in outputs)
    read = [x.contiguous() for x in inputs]  # kept until the end
    getattr(library, name)(
        *(ctypes.c_void_p(x.data_ptr()) for x in (*read, *outputs)),
        *map(ctypes.c_int64, sizes),
        *map(ctypes.c_float, numbers.values()),
        torch.get_num_threads(),
    )


@functools.cache
def _library() -> ctypes.CDLL | str:
    """The compiled library, or why there is none."""
    if sys.platform == "win32":
        return "they are not compiled on Windows"
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX") or "c++", "g++", "clang++"))), None)
    if compiler is None:
        return "there is no C++ compiler; install g++ or clang++, or name one in CXX"
    kept = cache_folder() / f"kernels-{_key(compiler)}.so"
    if kept.is_file() and kept.stat().st_uid == os.geteuid():
        try:
            return ctypes.CDLL(str(kept))
        except OSError:  # damaged: it is made again
            return _compile(compiler, kept)
    return _compile(compiler, kept)


def _key(compiler: str) -> str:
    """What the library depends on, as a name: the source, the compiler and the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    except OSError:
        processor = platform.processor()
    parts = (SOURCE.read_text(encoding="utf-8"), *FLAGS, *TUNING, os.path.realpath(compiler), processor)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _compile(compiler: str, kept: Path) -> ctypes.CDLL | str:
    """Compile and load the library, and keep it for the next time where that is possible."""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / kept.name
        command = [compiler, *FLAGS, *TUNING, str(SOURCE), "-o", str(built)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{compiler} cannot be run: {error}"
        if done.returncode:
            message = (done.stderr.strip() or f"status {done.returncode}").splitlines()[0]
            return f"{compiler} does not compile them: {message}"
        try:
            write_bytes(kept, built.read_bytes())
            built = kept
        except DataError:  # a folder that cannot be written to: they are compiled again the next time
            pass
        try:
            return ctypes.CDLL(str(built))
        except OSError as error:
            return f"what {compiler} makes of them cannot be loaded: {error}"
