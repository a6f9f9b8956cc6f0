"""Products whose rows are reduced (founding case 3) in every form, against PyTorch.

    python -m benchmarks.row_forms [--only layernorm,4096] [--forms] [--json rows.jsonl]

Times are interleaved: cold L2, device time, replays of CUDA graphs. Before that some rows of each
result are checked against float64, and results of three calls must be the same to the last bit.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from benchmarks.checking import describe
from benchmarks.gpu_defaults import Work, environment, time_all, write_lines
from benchmarks.gpu_tuning import geometric_mean
from benchmarks.suites.founding import operators
from benchmarks.table import print_table
from tilesmith.bench.case import Arguments, Input, Operator
from tilesmith.numerics.compare import ErrorReport, measure_error
from tilesmith.schedule.spec import ConfigSpec

DEFAULT, WHOLE, EAGER, COMPILED = "default", "whole rows", "eager", "torch.compile"
NUM_CHECKED = 512
"""Rows; the last ones among them, where tiles are partial."""


@dataclass
class Cell:
    """One product with what follows it."""

    name: str
    structure: str = ""
    """Of the default config."""
    ms: dict[str, float] = field(default_factory=dict[str, float])
    problems: dict[str, str] = field(default_factory=dict[str, str])


class Measurement:
    """All implementations for one input of one operator."""

    def __init__(self, operator: Operator, one: Input, device: torch.device) -> None:
        self._operator = operator
        self._dtype = torch.float32 if device.type == "cpu" else one.dtype
        self._device = device
        self._arguments = one.make(device, self._dtype)
        self._rows = some_rows(self._arguments[0].size(0), device)
        (target,) = operator.kernels.values()
        module, _, kernel_name = target.partition(":")
        kernel: Any = getattr(import_module(module), kernel_name)
        self._inputs: Arguments = kernel.normalize_args(*self._arguments)
        self._bound = kernel.bind(self._inputs)
        self.cell = Cell(f"{operator.name} {one.label}")

    def run(self, repeats: int, *, all_forms: bool, with_compile: bool) -> Cell:
        """Build, check and time."""
        works: dict[str, Work] = {}
        for name, make in self._implementations(all_forms=all_forms, with_compile=with_compile):
            work = self._try(name, make)
            if work is not None:
                works[name] = work
        timings, _ = time_all(works, self._device, repeats)
        self.cell.ms = {name: timing.median_ms for name, timing in timings.items()}
        return self.cell

    def _try(self, name: str, make: Callable[[], Work]) -> Work | None:
        """What can be timed; None, with the reason in the cell, where it is wrong or fails."""
        try:
            return self._checked(name, make())
        except Exception as error:
            self.cell.problems[name] = describe(error)
            return None

    def _implementations(
        self, *, all_forms: bool, with_compile: bool
    ) -> Iterator[tuple[str, Callable[[], Work]]]:
        spec = self._bound.config_spec
        config = spec.default_config()
        self.cell.structure = config.get("structure") or WHOLE
        yield DEFAULT, lambda: self._ours(config)
        forms = spec.forms() if all_forms else {}
        for name, form in forms.items():
            own = form.default_config() if name else ConfigSpec.default_config(spec)
            marked = own.updated(structure=name) if name else own
            if marked != config:
                yield name or WHOLE, lambda marked=marked: self._ours(marked)
        yield EAGER, lambda: lambda: self._operator.eager(*self._arguments)
        if with_compile:
            made = torch.compile(self._operator.eager, dynamic=False)
            yield COMPILED, lambda: lambda: made(*self._arguments)

    def _ours(self, config: Any) -> Work:
        compiled = self._bound.compile_config(config)
        return lambda: compiled(*self._inputs)

    def _checked(self, name: str, work: Work) -> Work:
        results = [work() for _ in range(3)]
        report = self._judge(results[0][self._rows])
        if not report.is_within_budget:
            raise ValueError(str(report).splitlines()[0])
        is_ours = name not in (EAGER, COMPILED)
        if is_ours and not all(torch.equal(results[0], other) for other in results[1:]):
            raise ValueError("results of equal calls differ")
        return work

    def _judge(self, found: torch.Tensor) -> ErrorReport:
        operator = self._operator
        x, *others = self._arguments
        arguments = (x[self._rows], *others)
        assert operator.exact is not None
        kind = self._device.type
        return measure_error(
            found,
            operator.exact(*arguments),
            reduction_length=operator.reduction_length(*arguments),
            intermediate=operator.intermediates(self._dtype, kind, arguments),
        )


def some_rows(count: int, device: torch.device) -> torch.Tensor:
    """Numbers of rows: some from everywhere, and the last."""
    spread = torch.linspace(0, count - 1, min(count, NUM_CHECKED)).long()
    last = torch.arange(max(0, count - NUM_CHECKED), count)
    return torch.unique(torch.cat([spread, last])).to(device)


def speed(cell: Cell, name: str) -> float | None:
    """Times as fast as eager."""
    known = name in cell.ms and EAGER in cell.ms
    return cell.ms[EAGER] / cell.ms[name] if known else None


def show(cells: Sequence[Cell]) -> None:
    """The table, and means over the cells that have all of a column."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.ms))
    rows: list[list[str]] = []
    for cell in cells:
        entries = [_entry(cell, name) for name in names]
        problems = "; ".join(f"{name}: {text}" for name, text in cell.problems.items())
        rows.append([cell.name, cell.structure, *entries, problems])
    print_table("ms (times as fast as eager)", ["product", "form", *names, "problems"], rows)
    for name in names:
        ratios = [ratio for cell in cells if (ratio := speed(cell, name)) is not None]
        print(f"{name}: {geometric_mean(ratios):.3f} times as fast as eager ({len(ratios)} cells)")


def _entry(cell: Cell, name: str) -> str:
    ratio = speed(cell, name)
    return "-" if name not in cell.ms else f"{cell.ms[name]:.4f} ({ratio or 0:.2f})"


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--only", default="", help="parts of names, with commas between")
    add("--forms", action="store_true", help="also the default of each form")
    add("--no-compile", action="store_true", help="without torch.compile")
    add("--repeats", type=int, default=30)
    add("--json", type=Path, help="append rows as JSON lines, each when it is known")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    wanted = options.only.split(",")
    cells: list[Cell] = []
    if options.json:
        write_lines(options.json, [environment()])
    for operator in (one for one in operators() if one.name.startswith("matmul_")):
        for one in operator.inputs_on(device.type):
            if not any(part in f"{operator.name} {one.label}" for part in wanted):
                continue
            measurement = Measurement(operator, one, device)
            cell = measurement.run(
                options.repeats, all_forms=options.forms, with_compile=not options.no_compile
            )
            cells.append(cell)
            print(json.dumps(asdict(cell)), flush=True)
            if options.json:
                write_lines(options.json, [asdict(cell)])
            # Each cell is a program of its own to torch.compile, which keeps few for a function.
            torch.compiler.reset()
    show(cells)


if __name__ == "__main__":
    main()
