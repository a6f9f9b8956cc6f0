"""Configs around the default of any operator of the suite, against torch.compile, on a GPU.

    python -m benchmarks.neighbours rope:2 layer_norm-bwd:4096x2560 [--most 40] [--rounds 2]
    python -m benchmarks.neighbours 'softmax:2@--grid={"num_warps": [1, 2, 4, 8]}' --rounds 0

A row is an operator and the position of one of its inputs, or sizes of your own; positions that are
held out (odd ones) are refused: nothing may be fitted to them. What follows ``@`` is for this row:
an option, or a variable of the environment (``@NAME=value``). Rows are built at the same time, each
in a process of its own; a lock lets one after the other have the device. Times are of replayed
graphs with a cold L2 cache, in turns with the default. A round tries configs around the three best.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any

import torch

from benchmarks.checking import describe
from benchmarks.gpu_defaults import time_all
from benchmarks.suites import suite
from tilesmith.bench.case import Operator
from tilesmith.bench.scoreboard.run import is_held_out
from tilesmith.exc import InvalidConfig
from tilesmith.frontend.containers import tensors_in
from tilesmith.jit.kernel import Kernel
from tilesmith.schedule.config import Config

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WARPS, LONGEST_TILE = (1, 2, 4, 8, 16, 32), 65536
AT_ONCE, TOGETHER = 13, 12
"""Processes that build, and works whose results stay in memory while they are timed."""


@dataclass(frozen=True)
class Found:
    """A call of one kernel, as an implementation makes it."""

    kernel: Any
    arguments: tuple[Any, ...]


class _MetError(Exception):
    """A kernel was called."""


def find_operator(row: str) -> tuple[Operator, tuple[Any, ...]]:
    """The operator of a row and its arguments."""
    name, _, which = row.partition(":")
    operator = next(one for one in suite().operators if one.name == name)
    if which.isdecimal():
        if is_held_out(int(which)):
            raise SystemExit(f"{row}: input {which} is held out")
        chosen = operator.inputs[int(which)]
        return operator, tuple(chosen.make(DEVICE, chosen.dtype))
    sizes = tuple(map(int, which.split("x")))
    make: Any = operator.inputs[0].make
    return operator, tuple(make.func(sizes, DEVICE, operator.inputs[0].dtype))


def calls_of(operator: Operator, arguments: tuple[Any, ...]) -> dict[str, Found]:
    """Our kernels with the arguments that they get; of a function, its first kernel."""
    found: dict[str, Found] = {}
    for name, place in operator.kernels.items():
        module, _, function = place.partition(":")
        made = getattr(importlib.import_module(module), function)
        found[name] = Found(made, arguments) if isinstance(made, Kernel) else met(made, arguments)
    return found


def met(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Found:
    """The first kernel that a function calls."""
    seen: list[Found] = []
    plain = Kernel.__call__

    def stop(self: Any, *given: Any, **_: Any) -> Any:
        seen.append(Found(self, given))
        raise _MetError

    Kernel.__call__ = stop  # type: ignore[method-assign]
    try:
        function(*arguments)
    except _MetError:
        pass
    finally:
        Kernel.__call__ = plain  # type: ignore[method-assign]
    return seen[0]


def steps(config: Config) -> Iterator[dict[str, Any]]:
    """Changes of a config: sizes, warps, chunks, forms of the grid, loads that run ahead."""
    sizes, warps = list(config.get("block_sizes") or []), int(config["num_warps"])
    near = [count for count in (warps // 2, warps * 2) if count in WARPS]
    moved = list(_moved_sizes(sizes))
    yield from ({"num_warps": count} for count in near)
    yield from ({"block_sizes": one} for one in moved)
    for key, values in _forms(config):
        yield from ({key: value} for value in values)
    yield from ({"block_sizes": one, "num_warps": count} for one in moved for count in near)
    for count in (1, 2, 4, 8, 16, 32):
        if count not in (*near, warps):
            yield {"num_warps": count}
    chunks = list(config.get("reduction_loops") or [])
    for place in range(len(chunks)):
        for size in (None, 1024, 2048, 4096, 8192, 16384):
            changed = [*chunks[:place], size, *chunks[place + 1 :]]
            yield {"reduction_loops": changed}
            yield from ({"reduction_loops": changed, "num_warps": count} for count in near)


def _moved_sizes(sizes: Sequence[int]) -> Iterator[list[int]]:
    """One size doubled or halved, or one for another."""
    for place, size in enumerate(sizes):
        for other in (size * 2, size // 2):
            if 1 <= other <= LONGEST_TILE:
                yield [*sizes[:place], other, *sizes[place + 1 :]]
    for first in range(len(sizes)):
        for second in range(len(sizes)):
            if first != second and sizes[second] > 1:
                traded = list(sizes)
                traded[first], traded[second] = traded[first] * 2, traded[second] // 2
                yield traded


def _forms(config: Config) -> Iterator[tuple[str, list[Any]]]:
    for key in ("flatten_loops",):
        if config.get(key):
            yield key, [[not flag for flag in config[key]]]
    for order in config.get("loop_orders") or []:
        if len(config["loop_orders"]) == 1:
            yield "loop_orders", [[order[::-1]]]
    yield "pid_type", ["persistent_blocked", "persistent_interleaved"]
    ranges = len(config.get("range_num_stages") or [])
    for key, values in (("range_num_stages", (2, 3, 4)), ("range_unroll_factors", (2, 4))):
        yield key, [[0] * (ranges - 1) + [value] for value in values if ranges > 1]
    slots = len(config.get("load_eviction_policies") or [])
    yield "load_eviction_policies", [["first"] * slots, ["last"] * slots] if slots else []
    yield "num_stages", [2, 3, 4]
    yield "maxnreg", [32, 40, 64]


class Row:
    """One kernel of an operator: what was tried, and how long it took."""

    def __init__(self, found: Found, expected: Sequence[torch.Tensor], lock: Path) -> None:
        self.arguments = found.kernel.normalize_args(*found.arguments)
        self.bound = found.kernel.bind(self.arguments)
        self.default = self.bound.config_spec.default_config()
        self.times: dict[Config, float] = {}
        self.failures: list[str] = []
        self._expected, self._lock = expected, lock

    def normal(self, config: Config, change: dict[str, Any]) -> Config | None:
        """The changed config as the kernel takes it."""
        try:
            return self.bound.config_spec.normalize(config.updated(**change))
        except InvalidConfig:
            return None

    def near(self, config: Config, most: int) -> list[Config]:
        """Configs around one that were not tried."""
        made = (self.normal(config, change) for change in steps(config))
        fresh = [one for one in dict.fromkeys(made) if one is not None and one not in self.times]
        return fresh[:most]

    def grid(self, values: dict[str, list[Any]]) -> Iterator[Config]:
        """Configs with every choice of some keys."""
        for chosen in product(*values.values()):
            made = self.normal(self.default, dict(zip(values, chosen)))
            if made is not None and made != self.default:
                yield made

    def measure(self, configs: Sequence[Config], repeats: int) -> None:
        """Build and check them, then time them alone on the device, in turns with the default.

        What is timed by itself takes up to a tenth longer than the same in turns with others.
        """
        for first in range(0, max(1, len(configs)), TOGETHER):
            chosen = [self.default, *configs[first : first + TOGETHER]]
            works = {str(i): work for i, work in self._works(chosen)}
            with self._lock.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                timings, _ = time_all(works, DEVICE, repeats)
            for name, timing in timings.items():
                self.times[chosen[int(name)]] = timing.median_ms
            torch.cuda.empty_cache()

    def _works(self, configs: Sequence[Config]) -> Iterator[tuple[int, Callable[[], Any]]]:
        for number, config in enumerate(configs):
            try:
                compiled = self.bound.compile_config(config)
                work = lambda compiled=compiled: compiled(*self.arguments)  # noqa: E731
                problem = difference(work(), self._expected)
            except Exception as error:
                problem = describe(error)
            if problem:
                self.failures.append(f"{changes_of(config, self.default)}: {problem}")
            else:
                yield number, work


def difference(returned: Any, expected: Sequence[torch.Tensor]) -> str:
    """Nothing where results are near to those of the default."""
    for ours, other in zip(tensors_in(returned), expected):
        off = (ours.float() - other.float()).abs().max() if ours.numel() else torch.zeros(())
        scale = other.float().abs().max() if other.numel() else torch.ones(())
        if not bool(off <= 0.02 * scale + 1e-6):
            return f"WRONG by {float(off):.3g} of {float(scale):.3g}"
    return ""


def changes_of(config: Config, default: Config) -> str:
    """What a config has that the default has not."""
    return ", ".join(f"{key}={value}" for key, value in config.items() if default.get(key) != value)


def rivals_of(
    operator: Operator, arguments: tuple[Any, ...], *, is_alone: bool
) -> dict[str, Callable[[], Any]]:
    """Eager, torch.compile and hand-written kernels; what fails is left out."""
    found: dict[str, Callable[..., Any]] = {"eager": operator.eager}
    if not is_alone:
        found["torch.compile"] = torch.compile(operator.eager, dynamic=False)
    for name, place in operator.others.items():
        module, _, function = place.partition(":")
        found[name] = getattr(importlib.import_module(module), function)
    works = {n: lambda call=call: call(*arguments) for n, call in found.items()}
    return {name: work for name, work in works.items() if _runs(name, work)}


def _runs(name: str, work: Callable[[], Any]) -> bool:
    try:
        work()
    except Exception as error:
        print(f"  {name}: {describe(error)}")
        return False
    return True


def measure(row: str, parsed: argparse.Namespace) -> None:
    """All of one row, printed best first."""
    torch.manual_seed(0)
    lock, repeats = parsed.lock, parsed.repeats
    operator, arguments = find_operator(row)
    rivals = rivals_of(operator, arguments, is_alone=parsed.alone)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        timed, _ = time_all(rivals, DEVICE, repeats)
    best = min((timing.median_ms for timing in timed.values()), default=0.0)
    told = ", ".join(f"{name} {timing.median_ms:.5f}" for name, timing in timed.items())
    expected = [one.clone() for one in tensors_in(operator.eager(*arguments))]
    for name, found in calls_of(operator, arguments).items():
        ours = Row(found, expected, lock)
        ours.measure(list(ours.grid(json.loads(parsed.grid))), repeats)
        for _ in range(parsed.rounds):
            starts = sorted(ours.times, key=lambda config: ours.times[config])[:3] or [ours.default]
            share = parsed.most // len(starts)
            wanted = chain.from_iterable(ours.near(start, share) for start in starts)
            ours.measure(list(dict.fromkeys(wanted)), repeats)
        show(row, name, ours, best, told)


def show(row: str, name: str, ours: Row, best: float, told: str) -> None:
    """The default, the best and what failed."""
    print(f"== {row} {name}: {told}")
    keys = ("block_sizes", "reduction_loops", "num_warps", "num_stages", "flatten_loops")
    named = {key: ours.default[key] for key in keys if ours.default.get(key)}
    own = ours.times.get(ours.default)
    print(f"  default {own or 0:.5f} ({best / own if own else 0:.2f}) {named}")
    for config in sorted(ours.times, key=lambda config: ours.times[config])[:16]:
        took = ours.times[config]
        print(f"  {took:.5f} {best / took:.2f}  {changes_of(config, ours.default) or 'default'}")
    for text in ours.failures[:3]:
        print(f"  - {text[:200]}")
    print(f"  ({len(ours.times)} timed, {len(ours.failures)} failed)", flush=True)


def measure_all(rows: Sequence[str], options: Sequence[str], seconds: float) -> None:
    """Rows side by side, as many as there are cores for."""
    start = time.perf_counter()
    command = ["TORCHINDUCTOR_COMPILE_THREADS=1", sys.executable, "-m"]
    with tempfile.NamedTemporaryFile() as lock:

        def run(row: str) -> None:
            left = seconds - (time.perf_counter() - start)
            name, *settings = row.split("@")
            own = [word for word in settings if word.startswith("--")]
            words = ["env", *(word for word in settings if word not in own), *command]
            words += ["benchmarks.neighbours", name, *options, *own, f"--lock={lock.name}"]
            try:
                done = subprocess.run(
                    words, capture_output=True, text=True, check=False, timeout=max(1.0, left)
                )
                text = done.stdout if done.returncode == 0 else done.stdout + done.stderr[-1500:]
            except subprocess.TimeoutExpired as expired:
                text = f"{row}: no time left\n{(expired.stdout or b'').decode()}"
            took = time.perf_counter() - start
            print(f"{' '.join(settings)}\n{text}  [{took:.0f} s]", flush=True)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(run, rows))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="+", help="operator:position or operator:sizes")
    parser.add_argument("--most", type=int, default=36, help="configs of a round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15, help="samples of each config")
    parser.add_argument("--seconds", type=float, default=600.0, help="then no row goes on")
    parser.add_argument("--grid", default="{}", help="JSON: values of keys, tried with each other")
    parser.add_argument("--alone", action="store_true", help="without torch.compile")
    parser.add_argument("--lock", type=Path, help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.lock:
        measure(parsed.rows[0], parsed)
        return
    given = {name: getattr(parsed, name) for name in ("most", "rounds", "repeats", "grid")}
    options = [f"--{name}={value}" for name, value in given.items()]
    options += ["--alone"] if parsed.alone else []
    measure_all(parsed.rows, options, parsed.seconds)


if __name__ == "__main__":
    main()
