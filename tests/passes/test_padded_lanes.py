"""With padded tiles, whose invalid lanes hold garbage, kernels still give exact-tile results."""

from __future__ import annotations

import pytest
import torch

from tests.lowering import run_standard
from tests.passes.kernel_texts import (
    COMPRESS,
    MATMUL,
    layer_norm_body,
    parse_kernel,
    results_of,
    row_kernel,
    softmax_body,
)
from tests.passes.padded_run import PaddedRun
from tests.passes.program_text import make_program
from tilesmith.ir.function import Function
from tilesmith.ir.types import Dim
from tilesmith.passes.accesses import order_memory
from tilesmith.passes.masks import mask_partial_tiles
from tilesmith.passes.roll_reductions import roll_reductions


def check(function: Function, arguments: dict, sizes: dict[str, int]) -> None:
    expected = results_of(function, arguments, sizes)
    found = PaddedRun(sizes).run(function, arguments)
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=3e-6, atol=3e-6)


def make_rows(rows: int) -> dict[str, torch.Tensor | int]:
    # Negative everywhere, so that a 0 in an invalid lane would be the largest element.
    x = -torch.rand((rows, 200), generator=torch.Generator().manual_seed(1)) - 1
    return {"x": x, "out": torch.zeros_like(x), "rowwise": torch.zeros(rows), "rows": rows}


def reduce_body(kind: str) -> str:
    return f"""
        %r0 = reduce(%v) {{axis=1, kind="{kind}"}} : f32[m]
        store(%rowwise, %r0, none, [%r])
    """


def scan_body(kind: str, axis: int, *, reverse: bool) -> str:
    """A scan of what is no identity in invalid lanes, and a reduction of its result."""
    return f"""
        %e = elementwise(%v) {{fn="exp"}} : f32[m, 200]
        %s = scan(%e) {{axis={axis}, kind="{kind}", reverse={str(reverse).lower()}}} : f32[m, 200]
        store(%out, %s, none, [%r1, %n1])
        %total = reduce(%s) {{axis=1, kind="{kind}"}} : f32[m]
        store(%rowwise, %total, none, [%r])
    """


BODIES = [
    softmax_body(),
    softmax_body("x"),
    layer_norm_body(),
    reduce_body("max"),
    reduce_body("prod"),
    reduce_body("argmax").replace("f32[m]", "i64[m]\n%rf = cast(%r0) : f32[m]").replace(
        "%r0, none", "%rf, none"
    ),
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("rows", [1, 3, 4, 5])
def test_whole_rows(body: str, rows: int) -> None:
    function = run_standard(row_kernel(body))
    check(function, make_rows(rows), {"m": 4})


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_scans_of_whole_rows(kind: str, axis: int, reverse: bool) -> None:
    function = run_standard(row_kernel(scan_body(kind, axis, reverse=reverse)))
    check(function, make_rows(5), {"m": 4})


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("chunk", [32, 64, 256])
def test_rows_in_chunks(body: str, chunk: int) -> None:
    function = run_standard(row_kernel(body))
    rolled = order_memory(roll_reductions(function, {Dim.of(200): "chunk"}))
    assert rolled is not function
    check(rolled, make_rows(5), {"m": 4, "chunk": chunk})


def test_this_way_of_running_notices_missing_masks() -> None:
    function = row_kernel(softmax_body())
    with pytest.raises(AssertionError):
        check(function, make_rows(5), {"m": 4})


def test_partial_tiles_of_a_matmul() -> None:
    generator = torch.Generator().manual_seed(0)
    arguments = {
        "x": torch.randn((50, 70), generator=generator).bfloat16(),
        "y": torch.randn((33, 70), generator=generator).bfloat16().t(),
        "out": torch.zeros(50, 33),
    }
    check(run_standard(parse_kernel(MATMUL)), arguments, {"m": 16, "n": 32, "k": 32})


def test_partial_tiles_around_a_stored_product() -> None:
    generator = torch.Generator().manual_seed(0)
    arguments = {
        "x": torch.randn((3, 37, 16), generator=generator).bfloat16(),
        "y": torch.randn((3, 37, 8), generator=generator).bfloat16(),
        "xty": torch.zeros(3, 16, 8, dtype=torch.bfloat16),
        "out": torch.zeros(3, 37, 8, dtype=torch.bfloat16),
    }
    function = run_standard(parse_kernel(COMPRESS))
    check(function, arguments, {"b": 1, "m": 16, "p": 8})


@pytest.mark.parametrize("fn", ["add", "mul", "maximum", "minimum", "sub"])
@pytest.mark.parametrize("size", [8, 16, 64, 128])
def test_tiles_carried_over_a_loop_of_their_own(fn: str, size: int) -> None:
    function = mask_partial_tiles(make_program(f"""
        %init = full() {{value=-2.0}} : f32[u]
        %acc = loop([%zero], [%hundred], [], [%init]) {{blocks=["u"]}} : f32[u] \
(%k: i32[], %old: f32[u]) {{
          %j = tile_index(%k) {{block="u"}} : i32[u]
          %v = load(%x, none, [%j]) : f32[u]
          %new = elementwise(%old, %v) {{fn="{fn}"}} : f32[u]
          yield(%new)
        }}
        %s = reduce(%acc) {{axis=0, kind="sum"}} : f32[]
        store(%y, %s, none, [%b])
    """))  # fmt: skip
    x = 1 + torch.rand(100, generator=torch.Generator().manual_seed(0)) / 100
    arguments = {
        "x": x, "y": torch.zeros(100), "w": torch.zeros(100, 60),
        "h": torch.zeros(64, 64, dtype=torch.bfloat16), "a": 0, "f": 0.0, "c": False,
    }  # fmt: skip
    check(function, arguments, {"t": 128, "u": size, "fixed": 8})
