"""The device language, under the names kernels use: ``import tilesmith.language as hl``."""

from __future__ import annotations

from typing import NoReturn

import tilesmith.exc as errors
from tilesmith.frontend.advice.torch_names import suggested_names
from tilesmith.frontend.functions.combine import associative_scan, cumprod, cumsum, reduce
from tilesmith.frontend.functions.creation import arange, full, zeros
from tilesmith.frontend.functions.matmul import dot
from tilesmith.frontend.functions.moved_elements import subscript
from tilesmith.frontend.functions.packed_formats import (
    dot_scaled,
    float4_e2m1fn_x2_to_float32,
    load_bfloat16_x16_to_float16,
    load_float4_e2m1fn_x16_to_float16,
)
from tilesmith.frontend.functions.random import rand, rand4x, randint
from tilesmith.frontend.functions.rearrangement import join, split
from tilesmith.frontend.language.debugging import breakpoint, device_print
from tilesmith.frontend.language.host_functions import (
    constexpr,
    register_block_size,
    register_tunable,
    specialize,
)
from tilesmith.frontend.language.indexing import paired
from tilesmith.frontend.language.inline import inline_asm_elementwise, inline_triton, triton_kernel
from tilesmith.frontend.language.loops import barrier, grid, jagged_tile, static_range, tile
from tilesmith.frontend.language.memory import (
    StackTensor,
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
    load,
    stacktensor_like,
    store,
)
from tilesmith.frontend.tracing.tile import (
    Tile,
    tile_begin,
    tile_block_size,
    tile_end,
    tile_id,
    tile_index,
)

__all__ = [
    "StackTensor", "Tile", "arange", "associative_scan", "atomic_add", "atomic_and", "atomic_cas",
    "atomic_max", "atomic_min", "atomic_or", "atomic_xchg", "atomic_xor", "barrier", "breakpoint",
    "constexpr", "cumprod", "cumsum", "device_print", "dot", "dot_scaled",
    "float4_e2m1fn_x2_to_float32", "full", "grid", "inline_asm_elementwise", "inline_triton",
    "jagged_tile", "join", "load", "load_bfloat16_x16_to_float16",
    "load_float4_e2m1fn_x16_to_float16", "paired", "rand", "rand4x", "randint", "reduce",
    "register_block_size", "register_tunable", "specialize", "split", "stacktensor_like",
    "static_range", "store", "subscript", "tile", "tile_begin", "tile_block_size", "tile_end",
    "tile_id", "tile_index", "triton_kernel", "zeros",
]  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    raise errors.UnknownLanguageFunction(name=name, suggestions=suggested_names(name, __all__))
