"""``tilesmith compare a.jsonl b.jsonl``: what changed between two runs of ``tilesmith bench``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tilesmith.bench.compare import THRESHOLD, Change, compare, run_differences
from tilesmith.bench.summary import print_comparison
from tilesmith.cli.flags import commands
from tilesmith.cli.output import UNPRINTED, is_shown, tell
from tilesmith.cli.results import load_results
from tilesmith.lab.reports import json_line

WORSE = 1
"""Exit code with ``--fail-on-slower``."""


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
    print_parts = partial(print_comparison, found, differences, has_all=flags.every)
    if not is_shown(partial(typer.echo, line) if flags.json else print_parts):
        return UNPRINTED
    if flags.fail_on_slower and found.is_empty:
        tell("error: nothing of ours can be compared: the runs share no row that both timed")
        return WORSE
    return WORSE if flags.fail_on_slower and found.regressions else 0


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


add_to = commands(compare=run_compare)
