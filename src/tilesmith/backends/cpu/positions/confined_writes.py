"""Which lanes lie in the memory of a tensor, where positions are computed and could be anywhere.

A stray element could end the process. Of runtime sizes the memory is not known. Lanes that follow
one another are looked at together: but for the last ones of a tensor they need no mask.
"""

from __future__ import annotations

from tilesmith.backends.cpu.llvm import lanes
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.lanes import Elements, Lanes, Place, Strided
from tilesmith.backends.cpu.llvm.registers import INDEX, Register, index
from tilesmith.backends.cpu.loop_ir.elements import Access


def confined_to(access: Access) -> int | None:
    """How many elements may be written at computed positions; None where any may be."""
    tensor = access.tensor.type
    extents = [*zip(tensor.shape, tensor.strides)]
    is_known = all(isinstance(extent, int) for pair in extents for extent in pair)
    if not access.is_confined or access.base is not None or not is_known:
        return None
    return 1 + sum((size - 1) * by for size, by in extents)  # type: ignore[operator]


def is_inside(builder: Builder, count: int, position: Place, width: int) -> Register:
    """Which lanes lie among so many elements."""
    places = lanes.to_vector(builder, position, INDEX, width)
    return builder.compare("ult", places, builder.splat(index(count), width))


def write_inside(
    builder: Builder,
    target: tuple[Elements, Place],
    count: int,
    x: Register,
    among: Lanes,
    explicit: Register | None,
) -> None:
    """Replace the elements at a position where ``explicit`` holds, none beyond ``count``."""
    memory, position = target

    def write_some() -> None:
        mask = is_inside(builder, count, position, among.width)
        if explicit is not None:
            mask = builder.binary("and", builder.splat(explicit, among.width), mask)
        lanes.write(builder, memory, position, x, among, mask)

    is_short = among.width == 1 or count < among.width
    if is_short or not isinstance(position, Strided) or not memory.has_neighbours(position):
        write_some()
        return
    is_whole = builder.compare("ule", position.base, index(count - among.width))
    builder.if_else(
        is_whole,
        lambda: lanes.write(builder, memory, position, x, among, explicit),
        write_some,
    )
