"""``tilesmith bench --launch``: what a call costs, as a table or as JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from tilesmith.bench.timing import launch_costs, print_launch_costs
from tilesmith.cli.json_option.words import STDOUT, write_json
from tilesmith.cli.output import show
from tilesmith.lab.reports import json_line


def show_launch_costs(device: str, place: Path | None) -> int:
    """Measure and print; a file that ``--json`` names is written beside the table."""
    costs = launch_costs(device)
    text = json_line({"calls": [asdict(cost) for cost in costs]})
    if place == STDOUT:
        show(text)
        return 0
    print_launch_costs(Console(), costs)
    write_json(text, place)
    return 0
