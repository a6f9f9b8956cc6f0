"""What the compiler itself costs: import, trace, code for one more config, one call. Needs no GPU.

python -m benchmarks.frontend [--repeats 15] [--json rows.jsonl]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.table import print_table
from tilesmith.measure.statistics import summarize
from tilesmith.measure.timer import time_on_cpu
from tilesmith.numerics.inputs import random_tensor

MAX_IMPORTS = 5
IMPORT_SCRIPT = """
import time
import torch
start = time.perf_counter()
import tilesmith
print((time.perf_counter() - start) * 1e3)
"""


@dataclass(frozen=True)
class Row:
    """One cost in milliseconds; a failed one has ``problem``."""

    what: str
    median_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    num_samples: int = 0
    problem: str = ""


def attention_inputs() -> tuple[torch.Tensor, ...]:
    """Arguments of the kernel that is traced; only shapes and types matter."""
    return tuple(random_tensor((2, 4, 256, 64), torch.bfloat16, seed=seed) for seed in range(3))


def fresh_attention() -> Any:
    """A kernel object nothing has been traced for yet."""
    function = importlib.import_module("examples.attention").attention.fn
    return importlib.import_module("tilesmith").kernel(function, static_shapes=True)


def sample_imports(repeats: int) -> list[float]:
    """Milliseconds to import tilesmith after torch, each in a new process."""
    samples: list[float] = []
    for _ in range(min(repeats, MAX_IMPORTS)):
        done = subprocess.run(
            [sys.executable, "-c", IMPORT_SCRIPT],
            # An installed package has its bytecode; the first sample writes it here.
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},  # noqa: TID251 (passed on, not read)
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["import failed"])[-1])
        samples.append(float(done.stdout))
    return samples


def sample_traces(repeats: int) -> list[float]:
    """Milliseconds to bind a fresh attention kernel: source, trace, passes, facts."""
    inputs = attention_inputs()
    samples: list[float] = []
    for _ in range(repeats + 1):
        kernel = fresh_attention()
        start = time.perf_counter()
        kernel.bind(inputs)
        samples.append((time.perf_counter() - start) * 1e3)
    # The first also pays for tables that are made once per process.
    return samples[1:]


def sample_sources(repeats: int) -> list[float]:
    """Milliseconds to generate Triton code for one more random config of a bound kernel."""
    bound = fresh_attention().bind(attention_inputs())
    generator = random.Random(0)
    samples: list[float] = []
    for _ in range(repeats + 1):
        config = bound.config_spec.random_config(generator)
        start = time.perf_counter()
        bound.to_triton_code(config)
        samples.append((time.perf_counter() - start) * 1e3)
    return samples[1:]


def sample_calls(repeats: int) -> list[float]:
    """Milliseconds of a warm call on 16 elements, on the CPU through the interpreter."""
    add = importlib.import_module("examples.add").add
    x, y = (random_tensor((16,), torch.float32, seed=seed) for seed in range(2))
    timing = time_on_cpu({"call": lambda: add(x, y)}, repeats=repeats, min_sample_ms=20.0)
    return list(timing["call"].samples_ms)


def sample_eager_calls(repeats: int) -> list[float]:
    """Milliseconds of torch.add on the same, for scale."""
    x, y = (random_tensor((16,), torch.float32, seed=seed) for seed in range(2))
    timing = time_on_cpu({"call": lambda: torch.add(x, y)}, repeats=repeats, min_sample_ms=20.0)
    return list(timing["call"].samples_ms)


MEASUREMENTS: dict[str, Callable[[int], list[float]]] = {
    "import tilesmith, torch imported before": sample_imports,
    "trace attention (bind, fresh kernel)": sample_traces,
    "Triton code for one more config of it": sample_sources,
    "warm call, add of 16 elements, CPU interpreter": sample_calls,
    "torch.add of 16 elements": sample_eager_calls,
}


def measure(what: str, sample: Callable[[int], list[float]], repeats: int) -> Row:
    """One row; an exception is its content rather than the end of the run."""
    try:
        samples = sample(repeats)
    except Exception as error:
        line = (str(error).strip().splitlines() or [""])[0]
        return Row(what, problem=f"{type(error).__name__}: {line}")
    summary = summarize(samples)
    return Row(what, summary.median, summary.low, summary.high, summary.num_samples)


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if value < 1 else f"{value:.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 1 if something could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write rows as JSON lines")
    options = parser.parse_args(arguments)
    rows = [measure(what, sample, options.repeats) for what, sample in MEASUREMENTS.items()]
    if options.json is not None:
        options.json.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
    print_table(
        f"Compiler costs, torch {torch.__version__}, milliseconds",
        ["what", "median", "20%", "80%", "samples", "problem"],
        [
            [
                row.what,
                number(row.median_ms),
                number(row.low_ms),
                number(row.high_ms),
                str(row.num_samples),
                row.problem,
            ]
            for row in rows
        ],
    )
    return int(any(row.problem for row in rows))


if __name__ == "__main__":
    sys.exit(main())
