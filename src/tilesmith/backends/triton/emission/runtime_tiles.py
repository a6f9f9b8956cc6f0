"""How much of a tile each thread holds, for sizes that only a launch knows.

A default is chosen for the sizes of the first call. Where later ones are much larger, a thread
has thousands of elements to go through, and ptxas needs minutes for them.
"""

from __future__ import annotations

from collections.abc import Container

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import Value


def bytes_of_threads(emitter: Emitter) -> str:
    """An expression over compile-time parameters; empty where no tile has such a size.

    All of the body must be emitted: only its parameters are used.
    """
    known = frozenset(emitter.spelling.needs.constexprs)
    tiles = [value for op in walk_function(emitter.function) for value in _tiles(op)]
    found = {text for tile in tiles if (text := _bytes(emitter, tile, known))}
    threads = emitter.schedule.num_warps * emitter.schedule.target.warp_size
    return f"max(0, {', '.join(sorted(found))}) // {threads}" if found else ""


def _tiles(op: Operation) -> tuple[Value, ...]:
    if isinstance(op, Store):
        return (op.value,)
    return tuple(op.results) if isinstance(op, (Load, Elementwise, Cast)) else ()


def _bytes(emitter: Emitter, value: Value, known: Container[str]) -> str:
    """Bytes of a tile with a size that is a compile-time parameter."""
    count, names = value.tile.dtype.itemsize, list[str]()
    for factor in (factor for dim in value.tile.shape for factor in dim.factors):
        if not isinstance(factor, str):
            count *= factor
        elif emitter.function.is_block(factor):
            count *= emitter.schedule.symbols[factor]
        else:
            names.append(emitter.spelling.size_name(factor))
    is_known = names and all(name in known for name in names)
    return " * ".join([str(count), *names]) if is_known else ""
