"""Times every example on this CPU: ``python -m tools.site.measure`` writes cpu_times.json.

An example that the benchmarks know runs at a size of theirs, in turns with eager PyTorch; another
at a size of its tests, or one that is larger. A row has the least of all rounds, since others on a
machine only add time. Results are judged by tests and benchmarks, not here.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.suites import suite
from tests.examples.case import Case
from tilesmith.bench.case import Operator
from tilesmith.checkup.report import cpu_name
from tilesmith.diagnostics.catalogue import BaseError
from tools.site.cases import arguments_of, calls_of, cases_by_module, example_files, module_of

OUTPUT = Path(__file__).parent / "cpu_times.json"
ROUNDS, SECONDS, MOST_BYTES = 10, 1.0, 64 << 20
LARGER, LONG_S = (2, 4, 8), 0.005
CPU = torch.device("cpu")
PROBLEMS = (BaseError, RuntimeError, TypeError, ValueError, IndexError, AssertionError)


class Timed(NamedTuple):
    """A kernel with its arguments and, where there is one, the same in PyTorch."""

    kernel: Any
    args: tuple[Any, ...]
    eager: Callable[..., Any] | None = None


@cache
def operators_by_module() -> dict[str, dict[str, Operator]]:
    """Operators of the benchmarks by module and kernel."""
    found: dict[str, dict[str, Operator]] = {}
    for operator in suite().operators:
        for target in operator.kernels.values():
            module, _, name = target.partition(":")
            found.setdefault(module, {}).setdefault(name, operator)
    return found


def timed_of(module: str) -> Iterator[Timed]:
    """What is timed for the page of a file: each kernel once."""
    known = operators_by_module().get(module, {})
    for name, operator in known.items():
        args = _input_of(operator)
        if args is not None:
            yield Timed(getattr(importlib.import_module(module), name), args, operator.eager)
    for name, case in cases_by_module().get(module, {}).items():
        if name not in known:
            yield Timed(case.kernel, _larger(case))
    if module not in cases_by_module() and not known:
        yield from (Timed(call.kernel, call.args) for call in calls_of(module))


def _input_of(operator: Operator) -> tuple[Any, ...] | None:
    """The largest of the first inputs that fit."""
    chosen = None
    for one in operator.inputs_on("cpu") if "cpu" in operator.devices else ():
        dtype = torch.float32 if torch.float32 in operator.dtypes else one.dtype
        args = one.make(CPU, dtype)
        if chosen is not None and _bytes(args) > MOST_BYTES:
            break
        chosen = args
    return chosen


def _bytes(args: tuple[Any, ...]) -> int:
    return sum(a.numel() * a.element_size() for a in args if isinstance(a, torch.Tensor))


def _larger(case: Case) -> tuple[Any, ...]:
    """The largest multiple of its last size that the kernel takes, up to some milliseconds."""
    found = arguments_of(case)
    for factor in LARGER:
        try:
            args = arguments_of(case, tuple(factor * n for n in case.sizes[-1]))
            case.kernel(*args)
            begin = time.perf_counter()
            case.kernel(*args)
        except PROBLEMS:
            break
        found = args
        if time.perf_counter() - begin > LONG_S:
            break
    return found


def measure(timed: Timed) -> dict[str, Any]:
    """A row: the least times, in milliseconds."""
    calls = [lambda: timed.kernel(*timed.args)]
    if timed.eager is not None:
        eager = timed.eager
        calls.append(lambda: eager(*timed.args))
    for call in calls:
        call()
    best = [math.inf] * len(calls)
    end = time.perf_counter() + SECONDS
    for number in range(1000):
        if number >= ROUNDS and time.perf_counter() > end:
            break
        for place, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            best[place] = min(best[place], time.perf_counter() - begin)
    name = getattr(timed.kernel, "name", timed.kernel.__name__)
    row = {"kernel": name, "input": _input_text(timed), "ours_ms": 1e3 * best[0]}
    return row | ({"eager_ms": 1e3 * best[1]} if timed.eager is not None else {})


def _input_text(timed: Timed) -> str:
    shapes = [
        f"{'x'.join(map(str, a.shape)) or 'scalar'} {str(a.dtype).removeprefix('torch.')}"
        for a in timed.args
        if isinstance(a, torch.Tensor)
    ]
    return ", ".join(shapes[:3]) + (", ..." if len(shapes) > 3 else "")


def main() -> None:
    """Measure all, or those named, and write the rows; what is there of others stays."""
    known: dict[str, Any] = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {"rows": {}}
    wanted = sys.argv[1:] or [module_of(path) for path in example_files()]
    threads = torch.get_num_threads()
    known["device"] = f"{cpu_name()}, {threads} thread{'s' * (threads > 1)}"
    known["date"] = datetime.now(timezone.utc).date().isoformat()
    known["torch"] = torch.__version__
    with torch.no_grad():
        for module in wanted:
            rows = list(_rows(module))
            if rows:
                known["rows"][module] = rows
                OUTPUT.write_text(json.dumps(known, indent=1) + "\n")
            print(module, *(f"{row['kernel']} {row['ours_ms']:.3g} ms" for row in rows), flush=True)


def _rows(module: str) -> Iterator[dict[str, Any]]:
    for timed in timed_of(module):
        row = _try_measure(timed)
        yield from [] if row is None else [row]


def _try_measure(timed: Timed) -> dict[str, Any] | None:
    try:
        return measure(timed)
    except PROBLEMS as error:
        print(f"{timed.kernel}: {error}".splitlines()[0])
        return None


if __name__ == "__main__":
    main()
