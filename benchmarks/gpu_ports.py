"""Ports on a GPU: the default config, configs around it, and the best rival.

    python -m benchmarks.gpu_ports [--only decode] [--repeats 40]

Cases are built at the same time, each in a process of its own; a lock lets one after the other have
the device. Times are of replayed graphs with a cold L2 cache, all rows of a case in turns. A row
has milliseconds, how many times as long as the best rival that is, and what was timed.
"""

from __future__ import annotations

import argparse
import fcntl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import tilesmith as helion
import tilesmith.language as hl
from benchmarks.checking import describe
from benchmarks.gpu_defaults import time_all
from examples.cross_entropy import cross_entropy
from examples.kl_div import kl_div
from examples.ports.split_kv_decode import attend_parts, join_parts, random_inputs

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
"""Without a GPU the benchmark can be tried: defaults only, on the CPU."""
Call = Callable[[], Any]
Change = dict[str, Any]


@helion.kernel
def nearest(x: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """The centre nearest to each row: the step of k-means that takes long."""
    n, k = x.size(0), centres.size(0)
    out = torch.empty([n], dtype=torch.int64, device=x.device)
    for t in hl.tile(n):
        best = hl.full([t], float("inf"), dtype=torch.float32)
        which = hl.zeros([t], dtype=torch.int64)
        for u in hl.tile(k):
            offsets = x[t, :][:, None, :] - centres[u, :][None, :, :]
            distances = (offsets * offsets).sum(-1)
            least, place = distances.amin(-1), distances.argmin(-1) + u.begin
            which = torch.where(least < best, place, which)
            best = torch.minimum(best, least)
        out[t] = which
    return out


@helion.kernel
def solve_columns(lower: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``x`` with ``lower @ x = b``, one column of ``b`` for each lane."""
    n, m = b.size()
    out = torch.empty_like(b)
    for t in hl.tile(m):
        for j in range(n):
            acc = b[j, t]
            for i in range(j):
                acc = acc - lower[j, i] * out[i, t]
            out[j, t] = acc / lower[j, j]
    return out


@helion.kernel
def solve_batch(lower: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same for many small matrices with one column each: ``[batch, n, n]``, ``[batch, n]``."""
    batch, n = b.size()
    n = hl.specialize(n)
    out = torch.empty_like(b)
    for t in hl.tile(batch):
        left = b[t, :]
        solved = torch.zeros_like(left)
        place = hl.arange(n)
        for j in range(n):
            is_j = (place == j)[None, :]
            x = torch.where(is_j, left, 0.0).sum(-1) / lower[t, j, j]
            solved = torch.where(is_j, x[:, None], solved)
            left = left - lower[t, :, j] * x[:, None]
        out[t, :] = solved
    return out


@dataclass(frozen=True)
class GpuCase:
    """One kernel with its arguments, configs around its default, and its rivals.

    ``finish`` is what a caller does with the kernel's result, in everybody's time.
    """

    kernel: Any
    arguments: tuple[Any, ...]
    rivals: Mapping[str, Call]
    changes: Sequence[Change] = ()
    finish: Callable[[Any], Any] = lambda result: result
    others: Mapping[str, Call] = field(default_factory=dict[str, Call])
    """Other calls of ours, with their defaults."""

    def works(self) -> dict[str, Callable[[], Call]]:
        """What is timed, by name, each still to be built."""
        arguments = self.kernel.normalize_args(*self.arguments)
        bound = self.kernel.bind(arguments)
        default = bound.config_spec.default_config()

        def ours(change: Change) -> Call:
            compiled = bound.compile_config(default.updated(**change))
            return lambda: self.finish(compiled(*arguments))

        changes = self.changes if DEVICE == "cuda" else ()
        keys = ("block_sizes", "reduction_loops", "num_warps", "num_stages", "loop_orders")
        named = {key: default[key] for key in keys if default.get(key)}
        configs = {f"default: {_in_words(named)}": {}, **{_in_words(c): c for c in changes}}
        made = {name: lambda change=change: ours(change) for name, change in configs.items()}
        given = {**self.rivals, **self.others}
        return {**made, **{name: lambda call=call: call for name, call in given.items()}}


def _in_words(change: Change) -> str:
    return ", ".join(f"{key} {value}" for key, value in change.items())


def _tiles(*sizes: Any, key: str = "block_sizes") -> list[Change]:
    """Changes of tiles and warps (and stages)."""
    names = ("num_warps", "num_stages")
    return [{key: list(tile), **dict(zip(names, others))} for tile, *others in sizes]


def _ahead(tiles: Sequence[tuple[list[int], int]], ranges: Sequence[Change]) -> list[Change]:
    """Tiles with options of the innermost loop: loads that are started ahead, or turns together."""
    return [{**change, **options} for change in _tiles(*tiles) for options in ranges]


def _decode_case(batch: int, length: int, splits: int) -> GpuCase:
    q, k, v = (x.to(DEVICE) for x in random_inputs(batch, length, (32, 8), 128, torch.bfloat16))
    view = (q[:, :, None], k.transpose(1, 2), v.transpose(1, 2))

    def sdpa() -> torch.Tensor:
        return functional.scaled_dot_product_attention(*view, enable_gqa=True)[:, :, 0]

    def split_otherwise(count: int) -> Call:
        return lambda: join_parts(*attend_parts(q, k, v, count), q.dtype)

    heads_first = {"loop_orders": [[1, 2, 0]]}
    changes = [
        heads_first, {"loop_orders": [[1, 0, 2]]},
        *_tiles(([32], 4, 4), ([64], 4, 2), ([64], 4, 4), ([64], 2, 3), ([128], 4, 2)),
        *_tiles(([128], 4, 3), ([128], 8, 2), ([128], 8, 3), ([256], 8, 2)),
        {"block_sizes": [128], "num_stages": 2, **heads_first},
        {"block_sizes": [128], "num_warps": 8, "num_stages": 2, **heads_first},
        {"load_eviction_policies": ["", "first", "first"], **heads_first},
    ]  # fmt: skip
    others = {f"default, {n} splits": split_otherwise(n) for n in (splits // 2, splits * 2)}
    finish = lambda parts: join_parts(*parts, q.dtype)  # noqa: E731
    return GpuCase(attend_parts, (q, k, v, splits), {"sdpa": sdpa}, changes, finish, others)


def _join_case(batch: int, splits: int) -> GpuCase:
    parts, sums = (
        torch.randn(batch, 32, splits, 128).to(DEVICE),
        torch.randn(batch, 32, splits).to(DEVICE),
    )
    eager = lambda: (parts * (sums * 0.6931472).softmax(-1)[..., None]).sum(2).bfloat16()  # noqa: E731
    changes = _tiles(([32], 1), ([32], 2), ([64], 2), ([64], 4), ([128], 1), ([128], 2), ([128], 8))
    return GpuCase(join_parts, (parts, sums, torch.bfloat16), {"eager": eager}, changes)


def _nearest_case(n: int, k: int, d: int) -> GpuCase:
    x, centres = torch.randn(n, d).to(DEVICE), torch.randn(k, d).to(DEVICE)
    eager = lambda: torch.cdist(x, centres).argmin(-1)  # noqa: E731
    tiles = [([8, 8], 2), ([16, 8], 4), ([8, 16], 4), ([16, 16], 8), ([32, 8], 4), ([32, 32], 8)]
    tiles += [([64, 4], 4), ([128, 2], 4), ([128, 1], 4), ([256, 1], 8), ([32, 4], 4), ([64, 1], 2)]
    ranges = [{"range_num_stages": [0, n]} for n in (2, 3, 4)]
    ranges += [{"range_unroll_factors": [0, n]} for n in (2, 4)]
    changes = [*_tiles(*tiles), *_ahead(tiles[7:10], ranges)]
    return GpuCase(nearest, (x, centres), {"cdist": eager}, changes)


def _solve_case(n: int, columns: int) -> GpuCase:
    lower, b = (
        torch.randn(n, n).tril().to(DEVICE) / n + torch.eye(n).to(DEVICE),
        torch.randn(n, columns),
    )
    b = b.to(DEVICE)
    eager = lambda: torch.linalg.solve_triangular(lower, b, upper=False)  # noqa: E731
    tiles = [([32], 1), ([64], 1), ([64], 2), ([128], 2), ([128], 4), ([256], 4), ([512], 4)]
    ranges = [{"range_unroll_factors": [0, 0, n]} for n in (2, 3, 4)]
    ranges += [{"range_num_stages": [0, 0, n]} for n in (2, 4)]
    changes = [*_tiles(*tiles), *_ahead(tiles[:4], ranges)]
    return GpuCase(solve_columns, (lower, b), {"solve_triangular": eager}, changes)


def _solve_batch_case(batch: int, n: int) -> GpuCase:
    lower = torch.randn(batch, n, n).tril().to(DEVICE) / n + torch.eye(n).to(DEVICE)
    b = torch.randn(batch, n).to(DEVICE)
    eager = lambda: torch.linalg.solve_triangular(lower, b[..., None], upper=False)[..., 0]  # noqa: E731
    tiles = [([1], 1), ([2], 1), ([4], 1), ([8], 1), ([16], 2), ([16], 4), ([32], 4), ([64], 4)]
    return GpuCase(solve_batch, (lower, b), {"solve_triangular": eager}, _tiles(*tiles))


def _cross_entropy_case(rows: int, columns: int) -> GpuCase:
    x = torch.randn(rows, columns, dtype=torch.bfloat16, device=DEVICE)
    labels = torch.randint(columns, (rows,), device=DEVICE)
    eager = lambda: functional.cross_entropy(x.float(), labels)  # noqa: E731
    compiled = torch.compile(eager, dynamic=False)
    chunks = [(size, warps) for size in (4096, 8192, 16384, 32768) for warps in (8, 16, 32)]
    changes = _tiles(*(([size], warps) for size, warps in chunks), key="reduction_loops")
    return GpuCase(cross_entropy, (x, labels), {"eager": eager, "torch.compile": compiled}, changes)


def _kl_div_case(rows: int, columns: int) -> GpuCase:
    x, y = (torch.randn(rows, columns, device=DEVICE).softmax(-1) for _ in range(2))
    x = x.log()
    eager = lambda: functional.kl_div(x, y, reduction="batchmean")  # noqa: E731
    compiled = torch.compile(eager, dynamic=False)
    tiles = [([1, size], warps) for size in (2048, 4096, 8192, 16384) for warps in (8, 16, 32)]
    ahead = _ahead(tiles[:9], [{"range_num_stages": [0, n]} for n in (2, 3, 4)])
    changes = [*_tiles(*tiles), *ahead]
    return GpuCase(kl_div, (x, y), {"eager": eager, "torch.compile": compiled}, changes)


CASES: dict[str, Callable[[], GpuCase]] = {
    "decode 8x8192, 8 splits": lambda: _decode_case(8, 8192, 8),
    "decode 1x32768, 32 splits": lambda: _decode_case(1, 32768, 32),
    "decode 32x2048, 4 splits": lambda: _decode_case(32, 2048, 4),
    "join 8x32x8": lambda: _join_case(8, 8),
    "join 1x32x64": lambda: _join_case(1, 64),
    "kmeans 65536x16, 256": lambda: _nearest_case(65536, 256, 16),
    "kmeans 131072x64, 512": lambda: _nearest_case(131072, 512, 64),
    "solve 64x64, 4096 columns": lambda: _solve_case(64, 4096),
    "solve 64x64, 2^18 columns": lambda: _solve_case(64, 1 << 18),
    "solve 4096 of 32x32": lambda: _solve_batch_case(4096, 32),
    "cross_entropy 8x128256": lambda: _cross_entropy_case(8, 128256),
    "cross_entropy 64x32000": lambda: _cross_entropy_case(64, 32000),
    "kl_div 8x128256": lambda: _kl_div_case(8, 128256),
}


def _is_right(ours: torch.Tensor, expected: torch.Tensor) -> bool:
    if not ours.is_floating_point():
        # Of two that are nearly as far, either may be found.
        return bool((ours == expected).float().mean() > 0.999)
    return bool(torch.allclose(ours.double(), expected.double(), rtol=1e-2, atol=1e-2))


def build(case: GpuCase) -> dict[str, Call]:
    """All that can be timed; what fails is told at once."""
    expected = next(iter(case.rivals.values()))()
    works: dict[str, Call] = {}

    def add(label: str, make: Callable[[], Call]) -> None:
        try:
            work = make()
            works[label if _is_right(work(), expected) else f"{label} (WRONG)"] = work
        except Exception as error:
            print(f"    -       {label}: {describe(error)}")

    for label, make in case.works().items():
        add(label, make)
    return works


def measure(name: str, repeats: int, lock: Path) -> None:
    """Build and check everything of a case, then time it alone on the device."""
    torch.manual_seed(0)
    case = CASES[name]()
    works = build(case)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        timings, timers = time_all(works, torch.device(DEVICE), repeats)
    best = min(timings[rival].median_ms for rival in case.rivals if rival in timings)
    for label, timing in sorted(timings.items(), key=lambda item: item[1].median_ms):
        how = "" if timers[label] == "graph" else f" ({timers[label]})"
        print(f"    {timing.median_ms:.4f}  {timing.median_ms / best:5.2f}  {label}{how}")


def measure_all(only: str, repeats: int) -> None:
    """All cases, built side by side."""
    start = time.perf_counter()
    # A pool of compiling processes for each case would be more than there are cores.
    command = [
        "env",
        "TORCHINDUCTOR_COMPILE_THREADS=1",
        sys.executable,
        "-m",
        "benchmarks.gpu_ports",
    ]
    with tempfile.NamedTemporaryFile() as lock:
        options = [f"--repeats={repeats}", f"--lock={lock.name}"]
        processes = {
            name: subprocess.Popen(
                [*command, *options, f"--case={name}"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for name in CASES if only in name
        }  # fmt: skip
        for name, process in processes.items():
            text, _ = process.communicate()
            rows = [line for line in text.splitlines() if line.startswith("    ")]
            shown = "\n".join(rows) if process.returncode == 0 else f"FAILED\n{text}"
            print(f"{name} ({time.perf_counter() - start:.0f} s)\n{shown}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--repeats", type=int, default=40, help="samples of each row")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--lock", type=Path, help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.case:
        measure(parsed.case, parsed.repeats, parsed.lock)
    else:
        measure_all(parsed.only, parsed.repeats)


if __name__ == "__main__":
    main()
