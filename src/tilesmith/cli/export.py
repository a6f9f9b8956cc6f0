"""``tilesmith export``: a package with compiled code, which needs torch alone where it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from tilesmith.cli.dispatch.shapes_file import flags_of_lines
from tilesmith.cli.flags import KernelFlags, make_command_adder
from tilesmith.cli.output import UsageError, show
from tilesmith.export.codes import parse_targets
from tilesmith.export.package import export_package
from tilesmith.lab.reports import json_line
from tilesmith.schedule.config import Config


@dataclass(frozen=True)
class ExportFlags(KernelFlags):
    """The options of ``tilesmith export``."""

    output: Annotated[str, typer.Option("--output", "-o", help="a new folder")] = ""
    target: Annotated[str, typer.Option(help="what to compile for: cpu,cuda:90,hip:gfx942")] = "cpu"
    shapes: Annotated[
        str, typer.Option(help="a file with one set of arguments a line, as --args takes them")
    ] = ""
    config: Annotated[
        str, typer.Option(help="a config as JSON, instead of the tuned or default one")
    ] = ""
    json: Annotated[bool, typer.Option("--json", help="as JSON")] = False


def export(flags: ExportFlags) -> int:
    """Write a package with compiled code, which needs torch alone."""
    if not flags.output:
        raise UsageError("name the package's folder with --output")
    try:
        parse_targets(flags.target)
    except ValueError as error:
        raise UsageError(f"--target: {error}") from None
    try:
        config = Config.from_json(flags.config) if flags.config else None
    except ValueError as error:
        raise UsageError(f"--config: {error}") from None
    loaded = [one.load() for one in _flags_of_samples(flags)]
    samples = [args for _, args in loaded]
    kernel, target = loaded[0][0], flags.target
    folder = export_package(kernel, samples, flags.output, target=target, config=config)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if flags.json:
        sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
        show(json_line({"folder": str(folder), "bytes": sizes}))
        return 0
    show("\n".join(f"{path.stat().st_size:>9,}  {path}" for path in files))
    return 0


def _flags_of_samples(flags: ExportFlags) -> list[ExportFlags]:
    """The same flags for each set of arguments: those of ``--args``, then those of the file."""
    given = [flags] if flags.args or flags.inputs or not flags.shapes else []
    return [*given, *(flags_of_lines(flags, flags.shapes) if flags.shapes else [])]


add_to = make_command_adder(export=export)
