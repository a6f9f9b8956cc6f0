"""Atomics of small elements leave their neighbours alone, and masked lanes touch nothing."""

from __future__ import annotations

import pytest
import torch

from tests.backends.triton.kernels import block, function, tensor
from tests.backends.triton.test_against_reference import compare

SMALL = {"i8": torch.int8, "u8": torch.uint8, "i16": torch.int16}
SIZE = 10


def updated(dtype: str, ops: str) -> str:
    """Ops on elements of ``out`` that leave old values in ``%before``, which go to ``old``."""
    return function(
        "updated",
        tensor("x", dtype, SIZE),
        tensor("out", dtype, SIZE + 3),
        tensor("old", dtype, SIZE),
        block("tile_m"),
        f"""
        %zero = full() {{value=0}} : i32[]
        %size = full() {{value={SIZE}}} : i32[]
        grid([%zero], [%size]) {{blocks=["tile_m"], slot=0}}
        (%begin: i32[]) {{
          %rows = tile_index(%begin) {{block="tile_m"}} : i32[tile_m]
          %v = load(%x, none, [%rows]) {{slot=0}} : {dtype}[tile_m]
          {ops}
          store(%old, %before, none, [%rows]) {{slot=1}}
        }}
        """,
    )


def bits(dtype: torch.dtype, count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    return torch.randint(low, high, (count,), dtype=dtype, generator=generator)


@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize("kind", ["and", "or", "xor"])
def test_bits_of_small_elements(run, kind, dtype):
    x, out = bits(SMALL[dtype], SIZE, 1), bits(SMALL[dtype], SIZE + 3, 2)
    atomic = f'atomic(%out, %v, none, [%rows]) {{kind="{kind}", slot=0}} : {dtype}[tile_m]'
    text = updated(dtype, f"%before = {atomic}")
    source = compare(run, text, {"tile_m": 4}, x, out, torch.zeros(SIZE, dtype=SMALL[dtype]))
    assert f"tl.atomic_{kind}(" in source


SWAP = """%seven = full() {value=7} : i32[tile_m]
          %none = full() {value=0} : i32[tile_m]
          %three = full() {value=3} : i32[tile_m]
          %to = elementwise(%rows, %three) {fn="add"} : i32[tile_m]
          %before = atomic(%out, %seven, none, [%to], expected=%none) {kind="cas", slot=0} \
: i32[tile_m]"""


def test_lanes_past_the_end_swap_nothing(run):
    # Triton's has no mask: such lanes go to the first element, which holds what they expect.
    x, out = torch.zeros(SIZE, dtype=torch.int32), torch.zeros(SIZE + 3, dtype=torch.int32)
    compare(run, updated("i32", SWAP), {"tile_m": 4}, x, out, x.clone())
