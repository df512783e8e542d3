"""Which precision of matrix products is the fastest one of a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


def fastest_precision(precisions: Sequence[str], device: torch.device) -> str:
    """bf16 if there is a choice and the device has units of its own for it, else fp32.

    On a CPU these are AMX alone: with AVX-512's instructions for bf16 encoders are a little slower than in fp32, and
    without any they take three times as long (docs/lab_notes.md, 2026-11-23).
    """
    is_fast: dict[str, Callable[[], bool]] = {
        "cpu": torch.cpu._is_amx_tile_supported,
        "cuda": lambda: torch.cuda.is_bf16_supported(including_emulation=False),
    }
    return "bf16" if "bf16" in precisions and device.type in is_fast and is_fast[device.type]() else "fp32"
