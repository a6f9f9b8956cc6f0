"""``tilesmith record``: runs a script, and writes what its kernels are called with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from tilesmith.cli.dispatch.shapes_file import line_of
from tilesmith.cli.flags import USAGE_ERROR
from tilesmith.cli.output import UsageError, make_folder, show, tell
from tilesmith.cli.run_script import SETTINGS, run_script
from tilesmith.diagnostics.wording import counted
from tilesmith.jit.kernel import Kernel
from tilesmith.lab.reports import json_line

Calls = dict[Kernel, Counter[str]]
"""For each kernel its arguments as lines, and how often they came."""
NOTHING = "no kernel was called: nothing to write"


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
    is_json: Annotated[bool, typer.Option("--json", help="say as JSON what was written")] = False,
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
            written = write_calls(calls, output)
            if is_json:
                show(json_line({"files": [file_record(*item) for item in written.items()]}))
            else:
                tell("\n".join(map(file_text, written, written.values())) or NOTHING)


def write_calls(calls: Calls, folder: Path) -> dict[Path, Counter[str]]:
    """One file for each kernel, the most frequent arguments first; what was written."""
    written: dict[Path, Counter[str]] = {}
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
            written[path] = lines
    return written


def file_text(path: Path, lines: Counter[str]) -> str:
    """A file in one line."""
    return f"{path}: {counted(len(lines), 'shape')}, {counted(lines.total(), 'call')}"


def file_record(path: Path, lines: Counter[str]) -> dict[str, Any]:
    """A file with the arguments in it; of those that no line can hold, why."""
    calls = [
        {"problem" if line.startswith("# ") else "arguments": line.removeprefix("# "), "calls": n}
        for line, n in lines.most_common()
    ]
    return {"file": str(path), "shapes": calls}


def add_to(app: typer.Typer) -> None:
    """Make the command known."""
    app.command(context_settings=SETTINGS)(record)
