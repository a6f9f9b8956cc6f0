"""``tilesmith bench --launch``: what a call costs, as a table or as JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from tilesmith.bench.timing import launch_costs, print_launch_costs
from tilesmith.cli.json_option.words import STDOUT
from tilesmith.cli.output import UsageError, show
from tilesmith.lab.reports import json_line


def show_launch_costs(device: str, place: Path | None) -> int:
    """Measure and print; a file that ``--json`` names is written beside the table."""
    costs = launch_costs(device)
    text = json_line({"calls": [asdict(cost) for cost in costs]})
    if place == STDOUT:
        show(text)
        return 0
    print_launch_costs(Console(), costs)
    if place is not None:
        try:
            place.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{place} cannot be written: {error.strerror}") from None
    return 0
