"""``tilesmith new kernel.py``: a kernel with a test and a benchmark, to start from."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from tilesmith.cli.output import show, tell

USAGE_ERROR = 2
TEMPLATE = Template('''\
"""$name: what it computes, in one sentence.

    tilesmith lint $file                            what would fail, without running it
    python -m pytest $file                          the tests below
    tilesmith tune $file:$name --inputs $file:example  the fastest config for these sizes
    python $file                                    times, beside eager and torch.compile
"""

from __future__ import annotations

import torch

import tilesmith
import tilesmith.language as hl


@tilesmith.kernel
def $name(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The sum of each row of ``x * y``."""
    m, n = x.size()
    out = torch.empty([m], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(m):                        # programs: each takes some rows
        acc = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(n):                    # a loop inside each program
            acc += (x[tile_m, tile_n] * y[tile_m, tile_n]).to(torch.float32).sum(1)
        out[tile_m] = acc
    return out


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The same in plain PyTorch. The test calls it with fp64."""
    return (x * y).sum(1)


def example(rows: int = 1024, columns: int = 4096) -> tuple[torch.Tensor, torch.Tensor]:
    """Arguments as they come in your program."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.randn(rows, columns, device=device), torch.randn(rows, columns, device=device)


def test_it_is_right_at_the_edges():
    for rows, columns in [(1, 1), (7, 130), (64, 64), (65, 1000), (0, 5)]:
        x, y = example(rows, columns)
        expected = reference(x.double(), y.double())
        torch.testing.assert_close($name(x, y).double(), expected, rtol=1e-4, atol=1e-4)


def test_it_stays_in_bounds_and_programs_do_not_race():
    checked = tilesmith.kernel($name.fn, check=True)
    checked(*example(7, 130))


def main() -> None:
    """Times, beside those of eager PyTorch and of torch.compile."""
    args = example()
    rivals = {"tilesmith": $name, "eager": reference, "torch.compile": torch.compile(reference)}
    for label, run in rivals.items():
        print(f"{label:<14} {milliseconds(run, args):.4f} ms")


def milliseconds(run, args) -> float:
    """The median of many calls."""
    from torch.utils.benchmark import Timer

    run(*args)
    timer = Timer("run(*args)", globals={"run": run, "args": args})
    return 1e3 * timer.blocked_autorange(min_run_time=0.5).median


if __name__ == "__main__":
    main()
''')


def new(
    file: Annotated[Path, typer.Argument(help="the Python file to write", dir_okay=False)],
    name: Annotated[str, typer.Option(help="of the kernel; default: that of the file")] = "",
    force: Annotated[bool, typer.Option("--force", help="also over a file that is there")] = False,
) -> None:
    """Write a kernel with a test and a benchmark to start from."""
    chosen = name or re.sub(r"\W", "_", file.stem)
    problem = _find_problem(file, chosen, force=force)
    if problem:
        tell(f"error: {problem}")
        raise typer.Exit(USAGE_ERROR)
    file.write_text(TEMPLATE.substitute(name=chosen, file=file), encoding="utf-8")
    show(f"wrote {file}; its first lines say what to do with it. Try: python {file}")


def _find_problem(file: Path, name: str, *, force: bool) -> str:
    if file.suffix != ".py":
        return f"{file} is no Python file: its name must end in .py"
    if not name.isidentifier() or keyword.iskeyword(name):
        return f"{name!r} is no name of a function; choose one with --name"
    if file.exists() and not force:
        return f"{file} exists; --force writes over it"
    if not file.parent.is_dir():
        return f"there is no folder {file.parent}"
    return ""


def add_to(app: typer.Typer) -> None:
    """Make ``tilesmith new`` known."""
    app.command()(new)
