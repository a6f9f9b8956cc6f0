"""``tilesmith dispatch``: a few configs for many shapes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tilesmith.cli.dispatch.shapes_file import flags_of_lines
from tilesmith.cli.flags import KernelFlags, make_command_adder
from tilesmith.cli.output import UsageError, require_folder, show
from tilesmith.disk.writing import replace_file
from tilesmith.dispatch.tuning import Goal, tune_shapes
from tilesmith.lab.reports import json_line
from tilesmith.tune.autotune import Autotuner


@dataclass(frozen=True)
class DispatchFlags(KernelFlags):
    """The options of ``tilesmith dispatch``."""

    shapes: Annotated[
        str, typer.Option(help="a file with one set of arguments a line, as --args takes them")
    ] = ""
    within: Annotated[
        float, typer.Option(help="per cent that shapes may be behind their own best", min=0.0)
    ] = 3.0
    configs: Annotated[int, typer.Option(help="at most this many configs", min=1)] = 8
    budget: Annotated[float, typer.Option(help="seconds for each search", min=0.1)] = 10.0
    output: Annotated[
        str, typer.Option("--output", "-o", help="where to write; default beside the kernel's file")
    ] = ""
    json: Annotated[bool, typer.Option("--json", help="as JSON")] = False


def dispatch(flags: DispatchFlags) -> int:
    """Search a few configs for many shapes. A file says which sizes get which."""
    if not flags.shapes:
        raise UsageError("name a file of arguments with --shapes; `tilesmith record` writes one")
    require_folder(Path(flags.output or "decision.py"))
    loaded = [one.load() for one in flags_of_lines(flags, flags.shapes)]
    goal = Goal(flags.within / 100.0, flags.configs, flags.budget)
    found = tune_shapes(loaded[0][0], [args for _, args in loaded], Autotuner, goal)
    path = Path(flags.output) if flags.output else found.path
    replace_file(path, found.file_text().encode())  # whole at once: calls elsewhere may read it
    told = {"file": str(path), **found.record()}
    show(json_line(told) if flags.json else f"{found.report()}\n\n{path}")
    return 0


add_to = make_command_adder(dispatch=dispatch)
