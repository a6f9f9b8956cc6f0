"""``tilesmith explore module:kernel --args ... -o page.html``: from source to machine code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tilesmith.cli.flags import BoundFlags, make_command_adder
from tilesmith.cli.output import UsageError, require_folder, show
from tilesmith.explore.costs import NotHereError, measure_ms
from tilesmith.explore.explorer import json_text
from tilesmith.schedule.config import Config


@dataclass(frozen=True)
class ExploreFlags(BoundFlags):
    """The options of ``tilesmith explore``."""

    config: Annotated[str, typer.Option(help="a config as JSON; default: that of calls")] = ""
    beside: Annotated[str, typer.Option(help="a second config as JSON, to compare with")] = ""
    measure: Annotated[
        bool, typer.Option("--measure", help="run it here, and draw its time into the roofline")
    ] = False
    output: Annotated[Path, typer.Option("-o", "--output", help="the file to write")] = Path(
        "explore.html"
    )
    json: Annotated[
        bool, typer.Option("--json", help="print what the page shows as JSON, and write no page")
    ] = False


def explore(flags: ExploreFlags) -> int:
    """Write a page about a kernel, from source to machine code. Also its tiles and its time."""
    if not flags.json:
        require_folder(flags.output)
    bound = flags.bind()
    config, beside = _config("--config", flags.config), _config("--beside", flags.beside)
    if flags.measure and hasattr(bound, "stages"):
        raise UsageError("--measure: one time says nothing of several launches; leave it out")
    try:
        measured = measure_ms(bound, config) if flags.measure else None
    except NotHereError as error:
        raise UsageError(f"--measure: {error}") from None
    made = bound.explore(config, beside=beside, measured_ms=measured)
    if flags.json:
        show(json_text(made.data))
        return 0
    try:
        path = made.save(flags.output)
    except OSError as error:
        raise UsageError(f"{flags.output} cannot be written: {error.strerror}") from None
    show(f"{path} ({path.stat().st_size / 1024:.0f} KiB)")
    return 0


def _config(option: str, text: str) -> Config | None:
    try:
        return Config.from_json(text) if text else None
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


add_to = make_command_adder(explore=explore)
