"""The device language, under the names kernels use: ``import tilesmith.language as hl``."""

from __future__ import annotations

import difflib
from typing import NoReturn

from tilesmith.diagnostics import errors
from tilesmith.frontend.creation import arange, full, zeros
from tilesmith.frontend.host_functions import (
    constexpr,
    register_block_size,
    register_tunable,
    specialize,
)
from tilesmith.frontend.loops import grid, static_range, tile
from tilesmith.frontend.matmul import dot
from tilesmith.frontend.memory import (
    atomic_add,
    atomic_and,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
    load,
    store,
)
from tilesmith.frontend.random import rand, rand4x, randint
from tilesmith.frontend.scan import associative_scan, cumprod, cumsum
from tilesmith.frontend.shape import subscript
from tilesmith.frontend.tile import (
    Tile,
    tile_begin,
    tile_block_size,
    tile_end,
    tile_id,
    tile_index,
)

__all__ = [
    "Tile",
    "arange",
    "associative_scan",
    "atomic_add",
    "atomic_and",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_xchg",
    "atomic_xor",
    "constexpr",
    "cumprod",
    "cumsum",
    "dot",
    "full",
    "grid",
    "load",
    "rand",
    "rand4x",
    "randint",
    "register_block_size",
    "register_tunable",
    "specialize",
    "static_range",
    "store",
    "subscript",
    "tile",
    "tile_begin",
    "tile_block_size",
    "tile_end",
    "tile_id",
    "tile_index",
    "zeros",
]


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    near = difflib.get_close_matches(name, __all__, n=3)
    raise errors.UnknownLanguageFunction(name=name, suggestions=[f"hl.{item}" for item in near])
