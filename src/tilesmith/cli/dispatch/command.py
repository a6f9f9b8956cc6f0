"""``tilesmith dispatch``: a few configs for many shapes; ``tilesmith record``: which there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from tilesmith.cli.dispatch.shapes_file import flags_of_lines, line_of
from tilesmith.cli.flags import USAGE_ERROR, KernelFlags, make_command_adder
from tilesmith.cli.output import UsageError, make_folder, require_folder, show, tell
from tilesmith.cli.run_script import SETTINGS, run_script
from tilesmith.diagnostics.wording import counted
from tilesmith.disk.writing import replace_file
from tilesmith.dispatch.tuning import Goal, tune_shapes
from tilesmith.jit.kernel import Kernel
from tilesmith.lab.reports import json_line
from tilesmith.tune.autotune import Autotuner

Calls = dict[Kernel, Counter[str]]
"""For each kernel its arguments as lines, and how often they came."""


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


@contextmanager
def recorded_calls() -> Iterator[Calls]:
    """Notes what kernels are called with, in this process, but for calls inside compiled graphs."""
    calls: Calls = {}
    original = Kernel.__call__

    def call(self: Kernel[..., Any], *args: Any, **keywords: Any) -> Any:
        values = self.normalize_args(*args, **keywords)
        try:
            line = line_of(values)
        except ValueError as error:
            line = f"# {error}"
        calls.setdefault(self, Counter())[line] += 1
        return original(self, *args, **keywords)

    Kernel.__call__ = call  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        Kernel.__call__ = original  # type: ignore[method-assign]


def record(
    script: Annotated[Path, typer.Argument(help="a Python file", exists=True, dir_okay=False)],
    arguments: Annotated[list[str] | None, typer.Argument(help="what the script is given")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for the files")] = Path(),
) -> None:
    """Run a script, and write what its kernels are called with. Each kernel gets a file."""
    try:
        make_folder(output)
    except UsageError as error:
        tell(f"error: {error}")
        raise typer.Exit(USAGE_ERROR) from None
    with recorded_calls() as calls:
        try:
            run_script(script, arguments or [])
        finally:
            # What a script has called before it failed, or left by sys.exit, is worth keeping.
            write_calls(calls, output)


def write_calls(calls: Calls, folder: Path) -> None:
    """One file for each kernel, the most frequent arguments first."""
    if not calls:
        tell("no kernel was called: nothing to write")
        return
    names = {kernel.name for kernel in calls}
    taken = set[str]()
    for kernel, lines in calls.items():
        # Kernels of two modules, or of a function that makes some, may share a name.
        numbered = (f"{kernel.name}_{number}" for number in count(2))
        free = (name for name in numbered if name not in taken | names)
        name = kernel.name if kernel.name not in taken else next(free)
        taken.add(name)
        path = folder / f"{name}.txt"
        text = "".join(f"{line}  # {counted(n, 'call')}\n" for line, n in lines.most_common())
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            tell(f"{path} cannot be written: {error.strerror}; what it would hold:\n{text}")
        else:
            tell(f"{path}: {counted(len(lines), 'shape')}, {counted(lines.total(), 'call')}")


def add_to(app: typer.Typer) -> None:
    """Make both commands known."""
    make_command_adder(dispatch=dispatch)(app)
    app.command(context_settings=SETTINGS)(record)
