"""Quotients are exact but where what is made of them is rounded to 16 bits."""

from __future__ import annotations

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tests.passes.program_text import make_program
from tilesmith.backends.triton.emission.rounded_quotients import find_rounded_values
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.traversal import walk_function


@tilesmith.kernel(static_shapes=True, config=tilesmith.Config(block_sizes=[128]))
def weigh(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    for tile in hl.tile(x.size(0)):
        wide = x[tile].to(torch.float32)
        weights = torch.nn.functional.silu(wide) / y[tile].to(torch.float32)
        out[tile] = torch.where(wide > 1.0, weights * 3.0, 0.0).to(out.dtype)


@pytest.mark.parametrize(("dtype", "is_exact"), [(torch.bfloat16, False), (torch.float32, True)])
def test_what_is_rounded_need_not_be_exact(dtype, is_exact):
    x = torch.zeros(512, dtype=torch.bfloat16)
    text = weigh.bind((x, x.clone(), x.to(dtype))).to_triton_code(target="cuda:90")
    assert ("div_rn" in text) == is_exact
    assert "libdevice.exp" in text


QUOTIENT = """
    %v = load(%x, none, [%i]) : f32[t]
    %q = elementwise(%v, %v) {fn="div"} : f32[t]
"""


ROUNDED = "%r = cast({}) {{bitcast=false}} : bf16[t]\n"
APPLIED = '%m = elementwise(%q, %v) {{fn="{}"}} : f32[t]\n'
STORED = "store(%y, {}, none, [%i])\n"


@pytest.mark.parametrize(
    ("uses", "is_rounded"),
    [
        (ROUNDED.format("%q"), True),
        (APPLIED.format("mul") + ROUNDED.format("%m"), True),
        (APPLIED.format("sub") + ROUNDED.format("%m"), False),
        (APPLIED.format("mul") + STORED.format("%m"), False),
        (ROUNDED.format("%q") + STORED.format("%q"), False),
    ],
)
def test_uses_of_a_quotient(uses, is_rounded):
    function = make_program(f"{QUOTIENT}{uses}")
    (quotient,) = (
        op for op in walk_function(function) if isinstance(op, Elementwise) and op.fn == "div"
    )
    assert (quotient.result in find_rounded_values(function)) == is_rounded
