"""``tilesmith tune --on``: several kernels and shapes at once, on all devices of a place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Annotated

import typer

from tilesmith.cli.dispatch.shapes_file import flags_of_lines
from tilesmith.cli.flags import KERNEL_ERROR, make_command_adder
from tilesmith.cli.output import UsageError, show
from tilesmith.cli.tune import TuneFlags
from tilesmith.cli.tune import tune as tune_here
from tilesmith.fleet.lanes import PLACES
from tilesmith.fleet.scheduler import FleetResult
from tilesmith.fleet.tuning import FleetRequest, Job, tune_fleet
from tilesmith.fleet.work import FleetError
from tilesmith.lab.reports import json_line
from tilesmith.tune.report.listeners import result_record


@dataclass(frozen=True)
class FleetFlags(TuneFlags):
    """The options of ``tilesmith tune``."""

    on: Annotated[str, typer.Option("--on", help=f"where to search: {PLACES}")] = ""
    shapes: Annotated[
        str, typer.Option(help="with --on: a file with one set of arguments a line")
    ] = ""

    def jobs(self) -> list[Job]:
        """Every kernel of a comma-separated list with every set of arguments."""
        kernels = [replace(self, kernel=name.strip()) for name in self.kernel.split(",")]
        lines = [f for one in kernels for f in self._sets(one)]
        return [one.load() for one in lines]

    def _sets(self, one: FleetFlags) -> Sequence[FleetFlags]:
        return flags_of_lines(one, self.shapes) if self.shapes else [one]


def tune(flags: FleetFlags) -> int:
    """Find the fastest config of a kernel for given arguments. Several with --on."""
    if not flags.on:
        if flags.shapes:
            raise UsageError("--shapes needs --on; `tilesmith dispatch` decides between shapes")
        return tune_here(flags)
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
