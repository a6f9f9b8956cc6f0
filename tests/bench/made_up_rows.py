"""Rows of a run that never was: operators, implementations and failures of every kind."""

from __future__ import annotations

import random
from typing import Any

from tilesmith.bench.row import Cause, Owner, Row, Status

CONFIG = "tilesmith.Config(block_sizes=[128, 256, 64], num_warps=8, num_stages=4)"
ENVIRONMENT = {
    "device": "NVIDIA H200",
    "target": "cuda:90",
    "torch": "2.11.0",
    "triton": "3.6.0",
    "Python": "3.12.3",
}
FACTORS = {
    "tilesmith": (Owner.OURS, 1.08),
    "tilesmith_tuned": (Owner.OURS, 1.21),
    "eager": (Owner.THEIRS, 1.0),
    "torch_compile": (Owner.THEIRS, 1.12),
    "torch_compile_max": (Owner.THEIRS, 1.17),
    "triton": (Owner.THEIRS, 0.94),
}


def make_row(**changes: Any) -> Row:
    """A row that ended well."""
    values: dict[str, Any] = {
        "operator": "gemm",
        "input_id": 0,
        "input_label": "256x256x256",
        "implementation": "tilesmith",
        "owner": Owner.OURS,
        "status": Status.OK,
        "device": "cuda",
        "dtype": "bfloat16",
        "latency_ms": 0.5,
        "spread": 0.01,
        "noise_floor": 0.004,
        "baseline_ms": 0.6,
        "baseline_spread": 0.008,
        "speedup": 1.2,
        "speedup_spread": 0.013,
        "tflops": 420.0,
        "gbps": 900.0,
        "error": 1.9e-3,
        "error_share": 0.21,
        "compile_s": 0.84,
        "config": CONFIG,
        "timer": "CUDA graph, cold",
        "samples": 100,
        "seconds": 6.1,
        "environment": ENVIRONMENT,
    }
    return Row(**{**values, **changes})


def fail(row: Row, cause: Cause, reason: str, status: Status = Status.FAILED) -> Row:
    """The same row without any number."""
    return Row(
        row.operator,
        row.input_id,
        row.input_label,
        row.implementation,
        row.owner,
        status,
        row.device,
        row.dtype,
        cause,
        reason,
        environment=row.environment,
    )


def disturbed_row(**changes: Any) -> Row:
    """A row of a busy machine whose baseline is the scheduler's: steady, and far too slow."""
    busy = {"latency_ms": 0.012, "baseline_ms": 11.98, "speedup": 11.98 / 0.012, "device": "cpu"}
    return make_row(**{**busy, "is_speedup_disturbed": True, "disturbed_samples": 15, **changes})


def make_rows(seed: int = 0) -> list[Row]:
    """Two operators, six implementations, a failure of each kind."""
    rng = random.Random(seed)
    sizes = (256, 512, 1024, 2048, 4096, 8192)
    rows = [
        row
        for number, size in enumerate(sizes)
        for row in _rows_of("gemm", number, f"{size}x{size}x{size}", 2.0 * size**3, rng)
    ]
    for number, size in enumerate(sizes[2:]):
        rows += _rows_of("rms_norm", number, f"2048x{size}", 0.0, rng, 2.0 * 2048 * size * 2)
    return _with_failures(rows)


def _rows_of(
    operator: str, number: int, label: str, flops: float, rng: random.Random, moved: float = 0.0
) -> list[Row]:
    moved = moved or 6.0 * (flops / 2) ** (2 / 3)
    best_ms = max(flops / 7e11, moved / 4e9) + 0.0022
    made: list[Row] = []
    for name, (owner, factor) in FACTORS.items():
        ms = best_ms * 1.4 / factor * rng.uniform(0.93, 1.07)
        baseline = best_ms * 1.4 * rng.uniform(0.98, 1.02)
        made.append(
            make_row(
                operator=operator,
                input_id=number,
                input_label=label,
                implementation=name,
                owner=owner,
                latency_ms=ms,
                spread=rng.uniform(0.002, 0.02),
                baseline_ms=baseline,
                speedup=baseline / ms,
                tflops=flops / ms / 1e9 if flops else None,
                gbps=moved / ms / 1e6,
                tune_s=15.1 if name == "tilesmith_tuned" else None,
                config=CONFIG if owner is Owner.OURS else "",
            )
        )
    return made


def _with_failures(rows: list[Row]) -> list[Row]:
    changed = {
        3: (Cause.EXCEPTION, "RuntimeError: <no> kernel & no luck\n  File 'x.py', line 3", None),
        8: (Cause.WRONG_RESULT, "element [3, 17] is 4.1, should be 3.9; 12 ulp allowed", None),
        17: (Cause.HANG, "no result for 300 s\nstack:\n  in spin", None),
        40: (Cause.CRASH, "signal 11 (SIGSEGV)", None),
        44: (Cause.EXCEPTION, "the inputs cannot be made", Status.HARNESS_FAILED),
        45: (Cause.NOT_INSTALLED, "triton is not installed", Status.UNAVAILABLE),
    }
    for place, (cause, reason, status) in changed.items():
        rows[place] = fail(rows[place], cause, reason, status or Status.FAILED)
    # Ours fails once: out of memory with the second input of the norm.
    place = next(n for n, row in enumerate(rows) if row.operator == "rms_norm" and row.input_id)
    rows[place] = fail(rows[place], Cause.OUT_OF_MEMORY, "needs 150 GiB, 139 GiB are there")
    return rows
