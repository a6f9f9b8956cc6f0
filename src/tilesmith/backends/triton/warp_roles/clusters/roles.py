"""All roles of a program at once, with their warps and registers."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.backends.source_writer import SourceWriter
from tilesmith.backends.triton.warp_roles.protocol import REGISTERS, WARPS_PER_GROUP

IDLE_WARPS = (1, 2)
"""Of the four that the loading warp is one of; Triton has them in any case."""


def write_roles(
    writer: SourceWriter, kernel: str, groups: int, common: Sequence[str], idle: str = ""
) -> None:
    """All groups, the warp that loads, and the warps beside it where they run something too."""
    compute, registers = f"{kernel}_compute", REGISTERS[groups][1]
    roles = [(compute, [str(group), *common]) for group in range(groups)]
    roles.append((f"{kernel}_load", [*common]))
    beside = IDLE_WARPS if idle else ()
    writer.line("gl.warp_specialize(")
    with writer.indented():
        writer.line("[")
        with writer.indented():
            for name, arguments in roles:
                # Constants stay constants only in a tuple written where it is handed over.
                writer.statement(f"({name}, ", arguments, tail="),")
            for _ in beside:
                writer.line(f"({idle}, ()),")
        writer.line("],")
        writer.line(f"{[WARPS_PER_GROUP] * (groups - 1) + [1, *beside]},")
        writer.line(f"{[*registers, *(registers[-1] for _ in beside)]},")
    writer.line(")")
