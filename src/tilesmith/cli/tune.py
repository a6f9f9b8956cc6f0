"""``tilesmith tune module:kernel --args ...``: searches, prints the line to paste, writes a report.

Standard output has the result alone; everything about the search goes to standard error. With
``--on`` several kernels and shapes are searched at once, on all devices of a place.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer

from tilesmith.cli.dispatch.shapes_file import flags_of_lines
from tilesmith.cli.flags import INTERRUPTED, KERNEL_ERROR, KernelFlags, make_command_adder
from tilesmith.cli.output import UsageError, show
from tilesmith.fleet.lanes import PLACES
from tilesmith.fleet.scheduler import FleetResult
from tilesmith.fleet.tuning import FleetRequest, Job, tune_fleet
from tilesmith.fleet.work import FleetError
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.kernel import Kernel
from tilesmith.jit.runners import is_interpreted
from tilesmith.jit.tuner import TuneRequest
from tilesmith.lab.reports import json_line
from tilesmith.tune.autotune import Autotuner
from tilesmith.tune.listener import History
from tilesmith.tune.options import EFFORT_SECONDS
from tilesmith.tune.report.listeners import result_record
from tilesmith.tune.result import StopReason, TuneResult
from tilesmith.tune.search.methods import find_method


@dataclass(frozen=True)
class TuneFlags(KernelFlags):
    """The options of ``tilesmith tune``."""

    budget: Annotated[float | None, typer.Option(help="seconds; default by effort", min=0.0)] = None
    effort: Annotated[str, typer.Option(help="quick (15 s) or full (120 s)")] = "quick"
    method: Annotated[str, typer.Option(help="search method; default ModelFirstSearch")] = ""
    report: Annotated[Path | None, typer.Option(help="folder for page, tables, pictures")] = None
    quiet: Annotated[bool, typer.Option("--quiet", help="only the result")] = False
    json: Annotated[bool, typer.Option("--json", help="the result as JSON")] = False
    force: Annotated[bool, typer.Option("--force", help="search even if a winner is stored")] = (
        False
    )

    on: Annotated[str, typer.Option("--on", help=f"where to search: {PLACES}")] = ""
    shapes: Annotated[str, typer.Option(help="with --on: a file, one --args a line")] = ""

    def jobs(self) -> list[Job]:
        """Every kernel of a comma-separated list with every set of arguments."""
        kernels = [replace(self, kernel=name.strip()) for name in self.kernel.split(",")]
        lines = [f for one in kernels for f in self._sets(one)]
        return [one.load() for one in lines]

    def _sets(self, one: TuneFlags) -> Sequence[TuneFlags]:
        return flags_of_lines(one, self.shapes) if self.shapes else [one]

    def request(self, kernel: Kernel) -> TuneRequest:
        """How to search, from the command line; the rest is in the kernel's settings."""
        if not EFFORT_SECONDS.get(self.effort):
            raise UsageError(f"--effort {self.effort}: expected quick or full")
        keywords: dict[str, Any] = {"autotune_random_seed": self.seed}
        if self.method:
            keywords["method"] = self.method
        try:
            find_method(self.method or kernel.settings.autotuner)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if self.quiet:
            keywords["autotune_log_level"] = logging.WARNING
        if self.report is not None:
            keywords["autotune_log"] = str(self.report / kernel.name)
        budget = EFFORT_SECONDS[self.effort] if self.budget is None else self.budget
        return TuneRequest(self.force, budget, keywords)


def tune_here(flags: TuneFlags) -> int:
    """One search by this process."""
    kernel, arguments = flags.load()
    request = flags.request(kernel)
    bound = kernel.bind(arguments)
    result = search(bound, arguments, request)
    if result is None:
        raise UsageError(_why_no_search(bound, request))
    written = _written(flags.report / kernel.name) if flags.report else []
    _show(flags, kernel, result, written)
    if result.stop is StopReason.INTERRUPTED:
        return INTERRUPTED
    return 0 if result.is_measured else KERNEL_ERROR


def search(
    bound: BoundKernel, arguments: tuple[Any, ...], request: TuneRequest
) -> TuneResult | None:
    """One search, or what is stored of an earlier one; None where there is no choice."""
    history = History()
    Autotuner([history]).tune(bound, arguments, request)
    return history.result


def _why_no_search(bound: BoundKernel, request: TuneRequest) -> str:
    name = bound.definition.name
    if is_interpreted(bound.settings):
        return f"{name} is interpreted, as its settings ask for: there is nothing to tune"
    if bound.settings.autotuner_fn is not None:
        return f"{name} has a tuner of its own, autotuner_fn, which says nothing of its search"
    if request.budget_s == 0.0:
        return f"{name} has no stored config, and --budget 0 does not search"
    return f"{name} has one config in its decorator; --force searches"


def _show(flags: TuneFlags, kernel: Kernel, result: TuneResult, written: list[Path]) -> None:
    if flags.json:
        record = {"kernel": kernel.name, **result_record(result), "report": list(map(str, written))}
        show(json_line(record))
        return
    if result.is_measured:
        show(result.paste_line)
    if flags.report and result.is_cached:
        typer.echo("no search, so no report: a winner is stored; --force searches", err=True)
    elif written and not flags.quiet:
        typer.echo(f"report: {', '.join(map(str, written))}", err=True)


def _written(prefix: Path) -> list[Path]:
    """The files of the report; one for which the disk had no room is empty."""
    found = prefix.parent.glob(f"{escape(prefix.name)}.*")
    return sorted(path for path in found if path.stat().st_size)


def tune(flags: TuneFlags) -> int:
    """Find the fastest config of a kernel for given arguments."""
    if flags.on:
        return tune_there(flags)
    if flags.shapes:
        raise UsageError("--shapes needs --on; `tilesmith dispatch` decides between shapes")
    return tune_here(flags)


def tune_there(flags: TuneFlags) -> int:
    """Searches on the devices of a place."""
    if flags.report is not None:
        raise UsageError("--report is of one search on this machine; leave out --on")
    # A driver without a GPU may search on those of a cluster: arguments then lie on its CPU.
    jobs = replace(flags, device="" if flags.on.startswith("local") else "cpu").jobs()
    start = monotonic()

    def tell(line: str) -> None:
        if not flags.quiet:
            typer.echo(f"[{monotonic() - start:.0f}s] {line}", err=True)

    wanted = FleetRequest(flags.on, flags.request(jobs[0][0]), flags.device, tell)
    try:
        found = tune_fleet(jobs, wanted)
    except FleetError as error:
        typer.echo(f"error: {error}", err=True)
        return KERNEL_ERROR
    for one in found:
        show(_line(one, is_json=flags.json))
    return 0 if all(one.result and one.result.is_measured for one in found) else KERNEL_ERROR


def _line(found: FleetResult, *, is_json: bool) -> str:
    task, result = found.task, found.result
    assert result is not None
    if is_json:
        about = {"kernel": task.title, "device": task.kind.device, "workers": list(found.lanes)}
        return json_line({**about, **result_record(result)})
    return f"# {task.title} on {task.kind.device}\n{result.paste_line}"


add_to = make_command_adder(tune=tune)
