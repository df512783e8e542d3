"""Compiles the loops of `kernels.cpp` for this machine's processor at their first use, and calls them (README.md).

The library is kept in the cache folder, by a name made of everything that it depends on.
"""

from __future__ import annotations

import contextlib
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

SOURCE = Path(__file__).with_name("kernels.cpp")
# Sums may be reordered only where the source says so, and NaN and infinity keep their meaning.
FLAGS = ["-O3", "-std=c++17", "-shared", "-fPIC", "-fopenmp"]
FLAGS += ["-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
IS_X86 = platform.machine() in ("x86_64", "AMD64")
FLAGS += ["-march=native", "-mprefer-vector-width=512"] if IS_X86 else ["-mcpu=native"]
SECONDS = 120  # that a compiler may take


def fits(*tensors: Tensor) -> bool:
    """Whether the compiled kernels can compute with these: float32 on a CPU."""
    return all(x.dtype == torch.float32 and x.device.type == "cpu" for x in tensors) and why_not() is None


def why_not() -> str | None:
    """Why there are no compiled kernels on this machine; None where there are."""
    library = _library()
    return library if isinstance(library, str) else None


def call(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], *sizes: int) -> None:
    """Run a function of `kernels.cpp`, which takes its arguments in this order, with torch's number of threads."""
    library = _library()
    assert isinstance(library, ctypes.CDLL) and all(x.is_contiguous() for x in outputs)
    read = [x.contiguous() for x in inputs]  # kept until the end
    pointers = (ctypes.c_void_p(x.data_ptr()) for x in (*read, *outputs))
    getattr(library, name)(*pointers, *map(ctypes.c_int64, sizes), torch.get_num_threads())


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
        with contextlib.suppress(OSError):  # damaged: it is made again
            return ctypes.CDLL(str(kept))
    return _compile(compiler, kept)


def _key(compiler: str) -> str:
    """What the library depends on, as a name: the source, the compiler and the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    except OSError:
        processor = platform.processor()
    parts = (SOURCE.read_text(encoding="utf-8"), *FLAGS, os.path.realpath(compiler), processor)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _compile(compiler: str, kept: Path) -> ctypes.CDLL | str:
    """Compile and load the library, and keep it for the next time where that is possible."""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / kept.name
        command = [compiler, *FLAGS, str(SOURCE), "-o", str(built)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{compiler} cannot be run: {error}"
        if done.returncode:
            message = (done.stderr.strip() or f"status {done.returncode}").splitlines()[0]
            return f"{compiler} does not compile them: {message}"
        with contextlib.suppress(DataError):  # a folder that cannot be written to: compiled again the next time
            write_bytes(kept, built.read_bytes())
            built = kept
        try:
            return ctypes.CDLL(str(built))
        except OSError as error:
            return f"what {compiler} makes of them cannot be loaded: {error}"
