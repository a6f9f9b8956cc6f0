"""Times a list of configs on many shapes in one process; other processes have compiled them.

`benchmarks.dispatch_shapes --direct` uses it in place of the tuner, whose search for each of sixty
shapes takes longer than a lent device is there. Sizes are arguments of the code, so a config is
compiled once and serves all shapes: every shape is timed with every config of the list. Results
are compared with fp64. As a script it compiles every so many-th config by calls with small tensors:

    python -m benchmarks.dispatch_direct matmul --part 3 --parts 16 --seconds 90
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from math import inf
from typing import Any

import torch

import tilesmith as helion
from benchmarks.checking import describe
from examples.attention import attention
from examples.matmul import matmul
from tilesmith.jit.tuner import TuneRequest
from tilesmith.measure.statistics import median
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.tune.listener import Listener, Progress

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KERNELS = {
    "matmul": helion.aot_kernel(matmul.fn, autotune_log_level=30),
    "attention": helion.aot_kernel(attention.fn, autotune_log_level=30),
}
FEW_ROWS = (
    (16, 32, 128), (16, 32, 256), (16, 64, 64), (16, 64, 128), (16, 64, 256), (16, 128, 64),
    (16, 128, 128), (32, 32, 128), (32, 64, 64), (32, 64, 128), (32, 128, 64), (32, 128, 128),
)  # fmt: skip
MORE_ROWS = (
    (64, 32, 128), (64, 64, 64), (64, 64, 128), (64, 128, 64), (64, 128, 128), (128, 32, 64),
    (128, 64, 64), (128, 64, 128), (128, 128, 32), (128, 128, 64), (64, 256, 64), (128, 256, 64),
    (256, 128, 64), (256, 64, 64), (128, 256, 32), (256, 128, 32),
)  # fmt: skip
HEADS = (
    (16, 64), (32, 32), (32, 64), (64, 32), (64, 64), (64, 128), (128, 32), (128, 64), (128, 128)
)  # fmt: skip
SMALL = {
    "matmul": [(64, 128, 128)],
    "attention": [(1, 8, 128, 128), (1, 32, 128, 128), (4, 8, 128, 128)],
}
"""Shapes whose calls compile what all others need: 8 is no multiple of 16, one batch no axis."""
LIKE_EXACT = 1e-2
"""How far a right result is from fp64, relative in norm: bf16 rounds to 2**-9."""
SCREENED, MEASURED = (3, 0.004), (12, 0.03)
"""Samples, and seconds that they may take together but for two."""
HOPELESS = 1.7
"""Of a config that takes this many times the best there is one sample."""
GRACE_S = 20.0
"""For builds that had begun when the time for them was over."""
FLUSH_BYTES = 512 << 20


def _products() -> Iterator[dict[str, Any]]:
    for tile, stages, group in product(FEW_ROWS, (3, 5), (1,)):
        yield {"block_sizes": tile, "num_warps": 4, "num_stages": stages, "l2_groupings": [group]}
    for tile, stages, group in product(MORE_ROWS, (3, 4), (1, 8)):
        warps = 8 if tile[0] * tile[1] >= 128 * 128 else 4
        yield {"block_sizes": tile, "num_warps": warps, "num_stages": stages} | {
            "l2_groupings": [group]
        }
    for tile, stages in product(MORE_ROWS[-7:-2], (3, 4)):
        yield {"block_sizes": tile, "num_warps": 8, "num_stages": stages, "l2_groupings": [8]} | {
            "pid_type": "persistent_interleaved"
        }


def _attentions() -> Iterator[dict[str, Any]]:
    for tile, warps, stages in product(HEADS, (4, 8), (2, 3, 4)):
        if tile[0] * 8 >= warps * 16:
            yield {"block_sizes": [1, *tile], "num_warps": warps, "num_stages": stages}
    for tile, warps, stages in product(HEADS[4:], (4, 8), (2, 3)):
        yield {"block_sizes": [1, *tile], "num_warps": warps, "num_stages": stages} | {
            "loop_orders": [[1, 0]]
        }


LISTS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "matmul": _products, "attention": _attentions,
}  # fmt: skip


def make_args(name: str, shape: Sequence[int]) -> tuple[Any, ...]:
    """Random arguments of a shape."""
    if name == "attention":
        return tuple(_random(*shape) for _ in range(3))
    m, k, n = shape
    return _random(m, k), _random(k, n)


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16)


def complete(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with their defaults."""
    return KERNELS[name].definition.arguments.complete(args)


def configs_of(name: str) -> list[Config]:
    """The list of a kernel; a config that it does not take is left out."""
    args = complete(name, make_args(name, SMALL[name][-1]))
    spec = KERNELS[name].bind(args).config_spec
    found: dict[Config, None] = {}
    for given in LISTS[name]():
        sizes = [*given["block_sizes"]]
        try:
            found[spec.normalize(Config.from_dict({**given, "block_sizes": sizes}))] = None
        except helion.exc.InvalidConfig:
            continue
    return list(found)


def exact(name: str, args: tuple[Any, ...]) -> torch.Tensor:
    """The result in fp64, one head after the other."""
    if name == "matmul":
        return args[0].double() @ args[1].double()
    q, k, v = (x.flatten(0, -3) for x in args)
    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    for head in range(q.shape[0]):
        scores = q[head].double() @ k[head].double().T / q.shape[-1] ** 0.5
        out[head] = scores.softmax(-1) @ v[head].double()
    return out.view(args[0].shape)


def build_part(name: str, part: int, parts: int, seconds: float) -> None:
    """Compile every so many-th config, and print the number of each that runs."""
    end = time.monotonic() + seconds
    sets = [complete(name, make_args(name, shape)) for shape in SMALL[name]]
    for number, config in list(enumerate(configs_of(name)))[part::parts]:
        if time.monotonic() > end:
            break
        try:
            for args in sets:
                KERNELS[name].bind(args).compile_config(config)(*args)
            if DEVICE == "cuda":
                torch.cuda.synchronize()
        except Exception as error:
            print(f"{name} {number}: {describe(error)[:150]}", file=sys.stderr, flush=True)
            continue
        print(f"built {number}", flush=True)


def build_all(names: Sequence[str], jobs: int, seconds: float) -> dict[str, list[Config]]:
    """The configs that compile in this time, built side by side; the rest is not used."""
    work = {name: len(list(LISTS[name]())) * len(SMALL[name]) for name in names}
    shares = {name: max(1, jobs * work[name] // sum(work.values())) for name in names}
    command = [sys.executable, "-m", "benchmarks.dispatch_direct"]
    running = {
        (name, part): subprocess.Popen(
            [*command, name, f"--part={part}", f"--parts={shares[name]}", f"--seconds={seconds}"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for name in names
        for part in range(shares[name])
    }  # fmt: skip
    listed = {name: configs_of(name) for name in names}
    for name in names:
        bound = KERNELS[name].bind(complete(name, make_args(name, SMALL[name][-1])))
        for config in listed[name]:
            bound.to_artifact(config)
    built: dict[str, list[Config]] = {name: [] for name in names}
    end = time.monotonic() + seconds + GRACE_S
    for (name, _), process in running.items():
        try:
            out, err = process.communicate(timeout=max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        numbers = [int(line.split()[1]) for line in out.splitlines() if line.startswith("built ")]
        built[name] += [listed[name][number] for number in numbers]
        for line in err.strip().splitlines()[-2:]:
            print(line, file=sys.stderr, flush=True)
    return built


@cache
def _flush() -> torch.Tensor:
    return torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=DEVICE)


def sample_ms(work: Callable[[], Any]) -> float:
    """Milliseconds of one call with a cold L2 cache; clearing it hides the launch."""
    if DEVICE != "cuda":
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) * 1e3
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    _flush().zero_()
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


class Direct:
    """Stands for a tuner: tells the times of the configs that it is given, or of its list."""

    def __init__(
        self, name: str, configs: Sequence[Config], end: float, listeners: Sequence[Listener]
    ) -> None:
        self._name, self._configs, self._end = name, configs, end
        self._listeners = listeners

    def tune(self, bound: Any, args: tuple[Any, ...], request: TuneRequest) -> Config | None:
        """Time all that runs and is right, in turns with nothing; the fastest is returned."""
        given: Sequence[Config] = request.keywords.get("configs", ())
        plan = MEASURED if given else SCREENED
        best, fastest = inf, None
        right = None if given else exact(self._name, args)
        for number, config in enumerate(given or self._configs):
            if time.monotonic() > self._end:
                break
            ms = self._time(bound, args, config, plan, best, right)
            if ms < best:
                best, fastest = ms, config
            outcome = Outcome(
                Candidate(config), Verdict.OK if ms < inf else Verdict.RUN_ERROR, median_ms=ms
            )
            for listener in self._listeners:
                listener.on_outcome(outcome, Progress(0.0, 0.0, number, 0))
        return fastest

    def _time(
        self, bound: Any, args: tuple[Any, ...], config: Config, plan: tuple[int, float],
        best: float, right: torch.Tensor | None,
    ) -> float:  # fmt: skip
        compiled = _compiled(bound, config)

        def work() -> torch.Tensor:
            return compiled(*args)

        try:
            found = work()
            if right is not None:
                error = float((found - right).norm() / right.norm())
                if not error < LIKE_EXACT:
                    print(f"wrong by {error:.2e}: {tuple(found.shape)} {config}", flush=True)
                    return inf
        except Exception as error:
            print(f"{describe(error)[:200]}: {config}", file=sys.stderr, flush=True)
            return inf
        most, seconds = plan
        taken = [sample_ms(work)]
        while len(taken) < most and taken[0] < HOPELESS * best:
            if len(taken) > 1 and sum(taken) > 1e3 * seconds:
                break
            taken.append(sample_ms(work))
        return median(taken)


@cache
def _compiled(bound: Any, config: Config) -> Any:
    return bound.compile_config(config)


def main() -> None:
    """Compile a part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(KERNELS))
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=90.0)
    given = parser.parse_args()
    build_part(given.name, given.part, given.parts, given.seconds)


if __name__ == "__main__":
    main()
