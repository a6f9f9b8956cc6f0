"""Exponentials and tf32 products have the roundings of a GPU; all else is left alone."""

from __future__ import annotations

import torch

from tests.interpreted import run_function
from tests.passes.program_text import body_after, make_program
from tilesmith.passes.roundings import round_like_gpu

PRODUCT = """
  %e = arange() : i32[64]
  %rows = expand_dims(%e) {{axes=[1]}} : i32[64, 1]
  %columns = expand_dims(%e) {{axes=[0]}} : i32[1, 64]
  %m = load(%w, none, [%rows, %columns]) : f32[64, 64]
  %d = dot(%m, %m, none) {{precision="{0}"}} : f32[64, 64]
  %s = reduce(%d) {{axis=1, kind="sum"}} : f32[64]
  store(%y, %s, none, [%e])
"""


def run_product(precision: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What the program stores, and its operand."""
    y = torch.zeros(100)
    w = torch.randn(100, 60, generator=torch.Generator().manual_seed(0))
    program = make_program(PRODUCT.format(precision).replace("64", "60"))
    given = {"x": y, "y": y, "w": w, "h": y, "a": 0, "f": 0.0, "c": False}
    given["h"] = torch.zeros(64, 64, dtype=torch.bfloat16)
    run_function(round_like_gpu(program), given, {"t": 128, "u": 4})
    return y[:60], w[:60]


def test_exponentials_go_through_powers_of_two() -> None:
    program = make_program("""
        %v = load(%x, none, [%i]) : f32[t]
        %p = elementwise(%v) {fn="exp"} : f32[t]
        store(%y, %p, none, [%i])
    """)
    lines = body_after(round_like_gpu, program)
    assert lines[1:4] == [
        "%p = full() {value=1.4426950408889634} : f32[t]",
        '%p_1 = elementwise(%v, %p) {fn="mul"} : f32[t]',
        '%p_2 = elementwise(%p_1) {fn="exp2"} : f32[t]',
    ]


def test_products_in_tf32_drop_bits_of_their_operands() -> None:
    found, operand = run_product("tf32")
    kept = (operand.view(torch.int32) & -(1 << 13)).view(torch.float32).double()
    expected = (kept @ kept).sum(1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    exact = (operand.double() @ operand.double()).sum(1)
    assert (found - exact).abs().max() > 1e-3


def test_exact_products_stay() -> None:
    found, operand = run_product("ieee")
    exact = (operand.double() @ operand.double()).sum(1)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)


def test_other_functions_stay() -> None:
    program = make_program("""
        %v = load(%x, none, [%i]) : f32[t]
        %p = elementwise(%v) {fn="sin"} : f32[t]
        store(%y, %p, none, [%i])
    """)
    assert round_like_gpu(program) is program
