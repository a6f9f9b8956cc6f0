"""One example for each key of a Config: a kernel and a device on which it has an effect."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

import tilesmith
import tilesmith.language as hl


@tilesmith.kernel
def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A product of matrices: three tiles, and a loop in each program."""
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc.to(x.dtype)
    return out


@tilesmith.kernel
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A sum of matrices: two tiles, no loop in a program."""
    out = torch.empty_like(x)
    for tile_m, tile_n in hl.tile(x.size()):
        out[tile_m, tile_n] = x[tile_m, tile_n] + y[tile_m, tile_n]
    return out


@tilesmith.kernel
def row_sum(x: torch.Tensor) -> torch.Tensor:
    """Sums of rows: one tile, and whole rows."""
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, :].sum(1)
    return out


@tilesmith.kernel
def total(x: torch.Tensor) -> torch.Tensor:
    """The sum of all elements, by atomics."""
    out = torch.zeros([1], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(out, [0], x[tile].sum())
    return out


@tilesmith.kernel
def four_times(x: torch.Tensor) -> torch.Tensor:
    """A loop in each program whose length is known."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        acc = hl.zeros([tile])
        for _ in hl.grid(4):
            acc = acc + x[tile]
        out[tile] = acc
    return out


class KeyExample(NamedTuple):
    """A value that is not the default one, with what else the Config needs for it."""

    kernel: str
    target: str
    value: Any
    others: Mapping[str, Any] = MappingProxyType({})


H200, MI300 = "cuda:90", "hip:gfx942"
_SQUARE = {"block_sizes": [64, 64, 32]}
_WALKING = {**_SQUARE, "pid_type": "persistent_blocked"}
_DESCRIBED = {**_SQUARE, "indexing": ["tensor_descriptor"] * 3}
KEY_EXAMPLES = {
    "block_sizes": KeyExample("matmul", H200, [64, 64, 32]),
    "loop_orders": KeyExample("matmul", H200, [[1, 0]], _SQUARE),
    "flatten_loops": KeyExample("add", H200, [True], {"block_sizes": [16, 16]}),
    "l2_groupings": KeyExample("matmul", H200, [8], _SQUARE),
    "reduction_loops": KeyExample("row_sum", H200, [512], {"block_sizes": [1]}),
    "range_unroll_factors": KeyExample("matmul", H200, [0, 2], _SQUARE),
    "range_warp_specializes": KeyExample("matmul", "cuda:100", [None, True], _SQUARE),
    "range_num_stages": KeyExample("matmul", H200, [0, 3], _SQUARE),
    "range_multi_buffers": KeyExample("matmul", H200, [None, False], _SQUARE),
    "range_flattens": KeyExample("matmul", H200, [None, True], _SQUARE),
    "static_ranges": KeyExample("four_times", H200, [True], {"block_sizes": [64]}),
    "num_warps": KeyExample("matmul", H200, 8, _SQUARE),
    "num_stages": KeyExample("matmul", H200, 3, _SQUARE),
    "indexing": KeyExample("matmul", H200, ["tensor_descriptor"] * 3, _SQUARE),
    "atomic_indexing": KeyExample("total", H200, ["pointer"], {"block_sizes": [64]}),
    "pid_type": KeyExample("matmul", H200, "persistent_interleaved", _SQUARE),
    "num_sm_multiplier": KeyExample("matmul", H200, 2, _WALKING),
    "load_eviction_policies": KeyExample("matmul", H200, ["first", "last"], _SQUARE),
    "load_cache_modifiers": KeyExample("matmul", MI300, [".cg", ""], _SQUARE),
    "store_cache_modifiers": KeyExample("matmul", MI300, [".cs"], _SQUARE),
    "waves_per_eu": KeyExample("matmul", MI300, 2, _SQUARE),
    "matrix_instr_nonkdim": KeyExample("matmul", MI300, 16, _SQUARE),
    "xcd_remap": KeyExample("matmul", MI300, True, _SQUARE),
    "maxnreg": KeyExample("matmul", H200, 128, _WALKING),
    "epilogue_subtile": KeyExample("matmul", H200, 2, _DESCRIBED),
    "cpu_threads": KeyExample("matmul", "cpu", 2, _SQUARE),
    "cpu_unroll": KeyExample("row_sum", "cpu", 8, {"block_sizes": [1]}),
    "cpu_streaming_stores": KeyExample("add", "cpu", True, {"block_sizes": [16, 64]}),
    "cpu_schedule": KeyExample("matmul", "cpu", "dynamic", _SQUARE),
}
"""By the name of the key."""


@cache
def bound_kernel(name: str, target: str) -> Any:
    """A kernel of the examples for a device."""
    half = torch.randn(512, 512, dtype=torch.float16)
    whole = torch.randn(512, 512)
    arguments: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
        "matmul": (matmul, (half, half)),
        "add": (add, (whole, whole)),
        "row_sum": (row_sum, (torch.randn(64, 4096),)),
        "total": (total, (torch.randn(4096),)),
        "four_times": (four_times, (torch.randn(4096),)),
    }
    kernel, given = arguments[name]
    return kernel.bind(given, target=target)


def config_of(key: str) -> dict[str, Any]:
    """The Config of an example."""
    example = KEY_EXAMPLES[key]
    return {**example.others, key: example.value}


def text_of(key: str) -> str:
    """The same as an expression."""
    given = ", ".join(f"{name}={value!r}" for name, value in config_of(key).items())
    return f"Config({given})".replace("'", '"')
