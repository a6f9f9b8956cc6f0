"""``tilesmith compare a.jsonl b.jsonl``: what changed between two runs of ``tilesmith bench``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tilesmith.bench.compare import (
    THRESHOLD,
    Change,
    ChangeKind,
    Comparison,
    Differences,
    compare,
    differences_text,
    run_differences,
)
from tilesmith.bench.summary import GAP, PIPED_WIDTH, ending_text
from tilesmith.bench.tables import plus_minus
from tilesmith.cli.flags import make_command_adder
from tilesmith.cli.output import UNPRINTED, is_shown, tell
from tilesmith.cli.results import load_results
from tilesmith.diagnostics.wording import counted, number_text
from tilesmith.lab.reports import json_line

WORSE = 1
"""Exit code with ``--fail-on-slower``."""
_STYLES = {ChangeKind.SLOWER: "red", ChangeKind.FASTER: "green", ChangeKind.FAILS_NOW: "bold red"}
NAMES = ("", "operator", "input", "implementation")
TIMES = ("before, ms", "after, ms", "time", "against eager", "noise")
_TIMED = (ChangeKind.SLOWER, ChangeKind.FASTER, ChangeKind.MACHINE, ChangeKind.DISTURBED)


@dataclass(frozen=True)
class CompareFlags:
    """The options of ``tilesmith compare``."""

    before: Annotated[Path, typer.Argument(help="file of rows of the first run")]
    after: Annotated[Path, typer.Argument(help="file of rows of the second run")]
    threshold: Annotated[
        float, typer.Option(help="percent that times may differ by in any case", min=0.0)
    ] = 100 * THRESHOLD
    every: Annotated[bool, typer.Option("--all", help="also what did not change")] = False
    fail_on_slower: Annotated[
        bool,
        typer.Option(
            "--fail-on-slower", help="exit 1 if ours is slower, fails now or cannot be compared"
        ),
    ] = False
    json: Annotated[bool, typer.Option("--json", help="as JSON")] = False


def run_compare(flags: CompareFlags) -> int:
    """Say what got faster or slower beyond noise. Also what fails now or works now."""
    before, after = load_results(flags.before), load_results(flags.after)
    found = compare(before.rows, after.rows, flags.threshold / 100)
    differences = run_differences(before, after, found)
    changes = [change_record(change) for change in found.changes]
    line = json_line({"differences": differences, "changes": changes})
    print_parts = partial(_print_parts, found, differences, has_all=flags.every)
    if not is_shown(partial(typer.echo, line) if flags.json else print_parts):
        return UNPRINTED
    if flags.fail_on_slower and found.is_empty:
        tell("error: nothing of ours can be compared: the runs share no row that both timed")
        return WORSE
    return WORSE if flags.fail_on_slower and found.regressions else 0


def _print_parts(found: Comparison, differences: Differences, *, has_all: bool) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    if differences:
        console.print(Text(differences_text(differences), style="yellow"), soft_wrap=True)
    for part in comparison_parts(found, has_all=has_all, width=console.width):
        console.print(part, soft_wrap=isinstance(part, Text))


def change_record(change: Change) -> dict[str, object]:
    """One change as plain values."""
    row = change.row
    return {
        "kind": change.kind.value,
        "operator": row.operator,
        "input": row.input_label,
        "implementation": row.implementation,
        "owner": row.owner.value,
        "dtype": row.dtype,
        "before_ms": change.before.latency_ms if change.before else None,
        "after_ms": change.after.latency_ms if change.after else None,
        "ratio": change.ratio,
        "relative_ratio": change.relative_ratio,
        "noise": change.noise,
        "relative_noise": change.relative_noise,
        "reason": row.reason,
    }


def comparison_parts(
    found: Comparison, *, has_all: bool, width: int = PIPED_WIDTH
) -> Iterator[RenderableType]:
    """What is printed, part by part; where a table is too wide, a line for each change."""
    timed = found.of(*_TIMED, *((ChangeKind.SAME,) if has_all else ()))
    timed = [change for change in timed if change.ratio is not None]
    if timed and table_width(timed) <= width:
        yield _times_table(timed)
    else:
        for change in timed:
            kind, *names = _name_cells(change)
            before, after, *moved = _time_cells(change)
            told = ", ".join(f"{name} {text}" for name, text in zip(TIMES[2:], moved) if text)
            text = f"{kind}: {' '.join(names)}: {before} to {after} ms, {told}"
            yield Text(text, style=_STYLES.get(change.kind, ""))
    for change in found.of(ChangeKind.FAILS_NOW, ChangeKind.WORKS_NOW, ChangeKind.STILL_FAILS):
        row = change.row
        text = f"{change.kind.value}: {row.operator} {row.input_label} {row.implementation}"
        ending = "" if change.kind is ChangeKind.WORKS_NOW else f": {ending_text(row)}"
        yield Text(text + ending, style=_STYLES.get(change.kind, ""))
    for kind in (ChangeKind.ADDED, ChangeKind.REMOVED):
        only = found.of(kind)
        if only:
            yield Text(f"{counted(len(only), 'row')} {kind.value}")
    for name, average in found.ratios.items():
        if average.value is not None:
            words = f"geometric mean, {average.count_text}"
            yield Text(f"{name}: times {_moved_text(average.value)} ({words})")
    yield Text(counts_line(found))
    disturbed = found.of(ChangeKind.DISTURBED)
    if disturbed:
        rows = counted(len(disturbed), "row")
        yield Text(f"the machine was busy: {rows} cannot be compared", style="yellow")


def counts_line(found: Comparison) -> str:
    """How many changes of each kind there are."""
    counts = {kind: len(found.of(kind)) for kind in ChangeKind}
    return ", ".join(f"{count} {kind.value}" for kind, count in counts.items() if count)


def table_width(changes: Sequence[Change]) -> int:
    """How many columns of a terminal the table of times takes."""
    lines = [
        (*NAMES, *TIMES),
        *((*_name_cells(change), *_time_cells(change)) for change in changes),
    ]
    return GAP * len(lines[0]) + 1 + sum(max(map(len, column)) for column in zip(*lines))


def _times_table(changes: Sequence[Change]) -> Table:
    table = Table(*NAMES, box=SIMPLE_HEAD)
    for name in TIMES:
        table.add_column(name, justify="right", no_wrap=True)
    for change in changes:
        names = map(Text, _name_cells(change))
        table.add_row(*names, *_time_cells(change), style=_STYLES.get(change.kind, ""))
    return table


def _name_cells(change: Change) -> tuple[str, ...]:
    row = change.row
    label = f"{row.input_label} {row.dtype}".strip()
    return (change.kind.value, row.operator, label, row.implementation)


def _time_cells(change: Change) -> tuple[str, ...]:
    times = [row.latency_ms if row else None for row in (change.before, change.after)]
    return (
        *("" if time is None else number_text(time) for time in times),
        _moved_text(change.ratio),
        _moved_text(change.relative_ratio),
        "" if change.noise is None else plus_minus(change.noise),
    )


def _moved_text(ratio: float | None) -> str:
    return "" if ratio is None else f"{100 * (ratio - 1):+.1f}%"


add_to = make_command_adder(compare=run_compare)
