"""All roles of a program at once, with their warps and registers."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.backends.source_writer import SourceWriter
from tilesmith.backends.triton.warp_roles.protocol import REGISTERS, WARPS_PER_GROUP


def write_roles(
    writer: SourceWriter, kernel: str, groups: int, common: Sequence[str], loaders: int = 1
) -> None:
    """All groups, and so many warps that load."""
    compute, load = f"{kernel}_compute", f"{kernel}_load"
    roles = [(compute, [str(group), *common]) for group in range(groups)]
    writer.line("gl.warp_specialize(")
    with writer.indented():
        writer.line("[")
        with writer.indented():
            for name, arguments in [*roles, (load, [*common])]:
                # Constants stay constants only in a tuple written where it is handed over.
                writer.statement(f"({name}, ", arguments, tail="),")
        writer.line("],")
        writer.line(f"{[WARPS_PER_GROUP] * (groups - 1) + [loaders]},")
        writer.line(f"{REGISTERS[groups][1]},")
    writer.line(")")
