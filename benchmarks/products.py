"""Products with the default config, with configs around it, and by cuBLAS.

    python -m benchmarks.products [--only bf16,tf32x3] [--sets issue,fresh] [--defaults]

Cases are built at the same time, each in a process of its own; a lock lets one after the other have
the device. Times are of replayed graphs with a cold L2 cache, all rows of a case in turns. The
table has one line for each case; before it, the fastest configs of each. Errors are of the result
with the default config against fp64: the norm of what is wrong over that of what is right. Shapes
are rows x depth x columns; "nt" has the second operand along the summed axis.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import tilesmith as helion
from benchmarks.checking import describe
from benchmarks.gpu_defaults import environment, time_all
from benchmarks.gpu_tuning import geometric_mean
from benchmarks.product_cases import DEVICE, SETS, Case, Tile
from benchmarks.table import print_table
from examples.matmul import matmul

DEFAULT = "default"
REPEATS = 20
Call = Callable[[], Any]


@dataclass
class Row:
    """What was found of one case."""

    case: str
    ours_ms: float = 0.0
    spread: float = 0.0
    rivals: dict[str, float] = field(default_factory=dict[str, float])
    error: float = 0.0
    is_same: bool = True
    """Whether results of repeated calls have the same bits."""
    rival_error: float = 0.0
    config: str = ""
    best_ms: float = 0.0
    best: str = ""
    """The fastest of all configs that were timed."""

    @property
    def ratio(self) -> float:
        """The best rival's time over ours."""
        return min(self.rivals.values()) / self.ours_ms


def _gelu(case: Case, bias: torch.Tensor) -> Callable[..., torch.Tensor]:
    return lambda acc, tile: functional.gelu(acc + bias[tile[1]].float())


def _kernel(case: Case) -> Any:
    settings: dict[str, Any] = {}
    if case.precision != "bf16":
        settings["dot_precision"] = case.precision
    return helion.kernel(matmul.fn, static_shapes=True, **settings)


def _rivals(case: Case, x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor) -> dict[str, Call]:
    torch.backends.cuda.matmul.allow_tf32 = case.precision == "tf32"
    if not case.has_gelu:
        return {"cuBLAS": lambda: x @ y}
    eager = lambda x, y, bias: functional.gelu(torch.addmm(bias, x, y))  # noqa: E731
    compiled = torch.compile(eager, dynamic=False)
    return {"eager": lambda: eager(x, y, bias), "torch.compile": lambda: compiled(x, y, bias)}


def config_of(tile: Tile, num_accesses: int) -> dict[str, Any]:
    """The keys of a Config; operands are loaded first and the result stored last."""
    bm, bn, bk, warps, stages, form, grouping = tile
    described = ["tensor_descriptor"]
    middle = ["pointer"] * (num_accesses - 3)
    indexing = {
        "pointers": ["pointer"] * num_accesses,
        "loads": [*described * 2, *middle, "pointer"],
    }.get(form, [*described * 2, *middle, *described])
    values: dict[str, Any] = {
        "block_sizes": [bm, bn, bk], "num_warps": warps, "num_stages": stages,
        "l2_groupings": [grouping],
    }  # fmt: skip
    if form == "roles":
        return {**values, "structure": "warp_roles", "pid_type": "persistent_interleaved"}
    if form == "loop":
        values |= {"pid_type": "persistent_interleaved", "range_flattens": [True, None]}
        values |= {"epilogue_subtile": 2}
    return {**values, "indexing": indexing}


def in_words(config: Any) -> str:
    """Tile, warps, stages, form and grouping of a config."""
    indexing = config.get("indexing") or []
    form = "pointers"
    if "tensor_descriptor" in indexing:
        form = "copies" if indexing[-1] == "tensor_descriptor" else "loads"
    if str(config.get("pid_type", "flat")).startswith("persistent"):
        form = "loop" if form == "copies" else f"{form}, persistent"
    form = "roles" if config.get("structure") else form
    sides = "x".join(map(str, config["block_sizes"]))
    grouping = (config.get("l2_groupings") or [1])[0]
    return f"{sides} w{config.get('num_warps')} s{config.get('num_stages')} g{grouping} {form}"


class Measurement:
    """One case: what is built, checked and timed."""

    def __init__(self, case: Case, seconds: float) -> None:
        self._case, self._end = case, time.perf_counter() + seconds
        x, y, bias = case.operands()
        self.rivals = _rivals(case, x, y, bias)
        kernel = _kernel(case)
        given = (x, y, _gelu(case, bias)) if case.has_gelu else (x, y)
        self.arguments = kernel.normalize_args(*given)
        self.bound = kernel.bind(self.arguments)
        wide = x.double() @ y.double()
        self._exact = functional.gelu(wide + bias.double()) if case.has_gelu else wide
        self.row = Row(case.name)

    def works(self, *, is_alone: bool) -> dict[str, Call]:
        """The default, rivals, and as many other configs as there is time to build."""
        default = self.bound.config_spec.default_config()
        self.row.config = in_words(default)
        ours = self.compiled(default)
        found = ours()
        self.row.error = self.error(found)
        self.row.is_same = all(torch.equal(ours(), found) for _ in range(REPEATS))
        works: dict[str, Call] = {DEFAULT: ours}
        for name, rival in self.rivals.items():
            self.row.rival_error = self.error(rival())
            works[name] = rival
        if DEVICE == "cuda" and not is_alone:
            self._add_others(works, len(default.get("indexing") or [0, 0, 0]))
        return works

    def _add_others(self, works: dict[str, Call], num_accesses: int) -> None:
        limit = 4.0 * self.row.rival_error
        for tile in self._case.tiles():
            if time.perf_counter() > self._end:
                print("    time is up")
                break
            try:
                config = helion.Config(**config_of(tile, num_accesses))
                work = self.compiled(config)
                is_right = self.error(work()) <= limit
                works[in_words(config) + " (WRONG)" * (not is_right)] = work
            except Exception as error:
                print(f"    -       {tile}: {describe(error)}")

    def compiled(self, config: Any) -> Call:
        """A call with this config."""
        compiled = self.bound.compile_config(config)
        return lambda: compiled(*self.arguments)

    def error(self, found: torch.Tensor) -> float:
        """Against fp64: the norm of what is wrong over that of what is right."""
        return float((found.double() - self._exact).norm() / self._exact.norm())

    def time(self, works: dict[str, Call], repeats: int, most: int) -> None:
        """Fill the row, and print the fastest."""
        timings, _ = time_all(works, torch.device(DEVICE), repeats)
        times = {name: timing.median_ms for name, timing in timings.items()}
        self.row.ours_ms, self.row.spread = times[DEFAULT], timings[DEFAULT].summary.spread
        self.row.rivals = {name: times[name] for name in self.rivals}
        ranked = sorted(times, key=lambda name: times[name])
        own = [name for name in ranked if name not in self.rivals and "WRONG" not in name]
        self.row.best, self.row.best_ms = own[0], times[own[0]]
        best = min(self.row.rivals.values())
        shown = {*ranked[:most], DEFAULT, *self.rivals, *(n for n in ranked if "WRONG" in n)}
        for name in ranked:
            if name in shown:
                print(f"    {times[name]:.4f}  {best / times[name]:.3f}  {name}")


def measure(case: Case, parsed: argparse.Namespace) -> None:
    """Build everything of a case, then time it alone on the device."""
    measurement = Measurement(case, parsed.seconds)
    works = measurement.works(is_alone=parsed.defaults)
    with parsed.lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        measurement.time(works, parsed.repeats, parsed.alternatives)
    print(json.dumps(asdict(measurement.row)))


def measure_all(cases: Sequence[Case], parsed: argparse.Namespace) -> list[Row]:
    """All cases, built side by side."""
    start = time.perf_counter()
    command = [
        "env",
        "TORCHINDUCTOR_COMPILE_THREADS=1",
        sys.executable,
        "-m",
        "benchmarks.products",
    ]
    options = [f"--{key}={getattr(parsed, key)}" for key in ("repeats", "alternatives", "seconds")]
    options += ["--defaults"] * parsed.defaults
    rows: list[Row] = []
    with tempfile.NamedTemporaryFile() as lock:
        processes = {
            case.name: subprocess.Popen(
                [*command, *options, f"--lock={lock.name}", f"--case={case.name}"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for case in cases
        }  # fmt: skip
        for name, process in processes.items():
            text, _ = process.communicate()
            lines = text.splitlines()
            rows += [Row(**json.loads(line)) for line in lines if line.startswith("{")]
            shown = [line for line in lines if line.startswith("    ")]
            body = "\n".join(shown) if process.returncode == 0 else f"FAILED\n{text}"
            print(f"{name} ({time.perf_counter() - start:.0f} s)\n{body}", flush=True)
    return rows


HEADERS = [
    "product", "ours ms", "spread", "rival", "rival ms", "ratio", "config", "error", "rival's",
    "best ms", "best config",
]  # fmt: skip


def cells(row: Row) -> list[str]:
    """One line of the table."""
    rival = min(row.rivals, key=lambda name: row.rivals[name])
    return [
        row.case, f"{row.ours_ms:.4f}", f"{row.spread:.1%}", rival, f"{row.rivals[rival]:.4f}",
        f"{row.ratio:.3f}", row.config, f"{row.error:.1e}" + " (DIFFER)" * (not row.is_same),
        f"{row.rival_error:.1e}",
        f"{row.best_ms:.4f}", row.best,
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names contain one of these")
    parser.add_argument("--sets", default="issue", help=f"of shapes: {', '.join(SETS)}")
    parser.add_argument("--defaults", action="store_true", help="no configs around the default")
    parser.add_argument("--repeats", type=int, default=30, help="samples of each row")
    parser.add_argument("--alternatives", type=int, default=8, help="configs to print of each case")
    parser.add_argument("--seconds", type=float, default=80.0, help="for building one case")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--lock", type=Path, help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.case:
        every = [case for cases in SETS.values() for case in cases]
        measure(next(case for case in every if case.name == parsed.case), parsed)
        return
    parts = parsed.only.split(",")
    cases = [case for name in parsed.sets.split(",") for case in SETS[name]]
    chosen = [case for case in cases if any(part in case.name for part in parts)]
    rows = measure_all(chosen, parsed)
    facts = environment()
    print_table(
        f"Products on {facts['device']}, torch {facts['torch']}",
        HEADERS,
        [cells(row) for row in rows],
    )
    for kind in dict.fromkeys(row.case.split()[0] for row in rows):
        ratios = [
            row.ratio for row in rows if row.case.split()[0] == kind and "gelu" not in row.case
        ]
        if ratios:
            print(f"{kind}: geometric mean {geometric_mean(ratios):.3f}, least {min(ratios):.3f}")


if __name__ == "__main__":
    main()
