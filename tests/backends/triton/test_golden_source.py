"""The emitted text of whole modules, for reading: is it what a careful engineer would write?"""

from __future__ import annotations

import pytest

from tests.backends.triton.kernels import (
    block,
    function,
    make,
    matmul,
    parse,
    rows,
    schedule,
    tensor,
)
from tests.lowering import emit_triton
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.ir.traversal import rewrite_function
from tilesmith.passes.masks import mask_partial_tiles
from tilesmith.schedule.schedule import AccessOptions, GridOptions, LoopOptions

SOFTMAX = """
%wide = cast(%x_tile) : f32[tile_m, 200]
%peak = reduce(%wide) {axis=1, kind="max"} : f32[tile_m]
%p = expand_dims(%peak) {axes=[1]} : f32[tile_m, 1]
%pb = broadcast(%p) : f32[tile_m, 200]
%shifted = elementwise(%wide, %pb) {fn="sub"} : f32[tile_m, 200]
%powers = elementwise(%shifted) {fn="exp"} : f32[tile_m, 200]
%total = reduce(%powers) {axis=1, kind="sum"} : f32[tile_m]
%t = expand_dims(%total) {axes=[1]} : f32[tile_m, 1]
%tb = broadcast(%t) : f32[tile_m, 200]
%quotient = elementwise(%powers, %tb) {fn="div"} : f32[tile_m, 200]
%r = cast(%quotient) : f16[tile_m, 200]
"""


def masked(text: str, **options) -> str:
    return emit_triton(mask_partial_tiles(parse(text)), schedule(**options)).source


@pytest.mark.parametrize("tile_m", [1, 4])
def test_softmax(golden, tile_m):
    golden(masked(rows("f16", 100, 200, SOFTMAX), symbols={"tile_m": tile_m}))


def test_matmul_with_pointers(golden):
    golden(make(matmul(1000, 512, 500), symbols={"tile_m": 128, "tile_n": 64, "tile_k": 32}).source)


def test_matmul_without_partial_tiles(golden):
    golden(make(matmul(1024, 512, 512), symbols={"tile_m": 128, "tile_n": 64, "tile_k": 32}).source)


def test_matmul_persistent_with_descriptors(golden):
    artifact = make(
        matmul(1000, 512, 512),
        symbols={"tile_m": 128, "tile_n": 64, "tile_k": 64},
        pid_type="persistent_interleaved",
        grids={0: GridOptions((0, 1), 8)},
        loops={0: LoopOptions(num_stages=3)},
        accesses={slot: AccessOptions("tensor_descriptor") for slot in range(3)},
        num_warps=8,
        num_stages=3,
    )
    golden(artifact.source)


def test_matmul_with_block_pointers(golden):
    artifact = make(
        matmul(1000, 512, 512),
        (3, 8),
        symbols={"tile_m": 128, "tile_n": 64, "tile_k": 64},
        accesses={slot: AccessOptions("block_ptr") for slot in range(3)},
        target="cuda:80",
    )
    golden(artifact.source)


def test_block_pointers_are_not_used_where_triton_has_none():
    options = {"symbols": {"tile_m": 64, "tile_n": 64, "tile_k": 64}}
    accesses = {slot: AccessOptions("block_ptr") for slot in range(3)}
    plain = make(matmul(1000, 512, 512), (3, 9), **options).source
    assert make(matmul(1000, 512, 512), (3, 9), accesses=accesses, **options).source == plain


DYNAMIC = function(
    "scale_rows",
    'param %x: tensor<f32[m, n], strides=[x_stride_0, 1], alias=-1> from "x"',
    'param %out: tensor<f32[m, n], strides=[out_stride_0, 1], alias=-1> from "out"',
    'param %m: i32[] from "x.size(0)"',
    'param %n: i32[] from "x.size(1)"',
    'param %x_stride_0: i64[] from "x.stride(0)"',
    'param %out_stride_0: i32[] from "out.stride(0)"',
    'param %alpha: f64[] from "alpha"',
    block("tile_m"),
    "size n {hint=200}",
    """
    %zero = full() {value=0} : i32[]
    grid([%zero], [%m]) {blocks=["tile_m"], slot=0}
    (%m0: i32[]) {
      %rows = tile_index(%m0) {block="tile_m"} : i32[tile_m]
      %cols = arange() : i32[n]
      %i = expand_dims(%rows) {axes=[1]} : i32[tile_m, 1]
      %j = expand_dims(%cols) {axes=[0]} : i32[1, n]
      %x_tile = load(%x, none, [%i, %j]) {slot=0} : f32[tile_m, n]
      %factor = cast(%alpha) : f32[]
      %f = expand_dims(%factor) {axes=[0, 1]} : f32[1, 1]
      %fb = broadcast(%f) : f32[tile_m, n]
      %scaled = elementwise(%x_tile, %fb) {fn="mul"} : f32[tile_m, n]
      store(%out, %scaled, none, [%i, %j]) {slot=1}
    }
    """,
)


def test_runtime_sizes_strides_and_scalars(golden):
    artifact = make(DYNAMIC, symbols={"tile_m": 8, "n": 256})
    golden(artifact.source)
    assert artifact.grid == ("cdiv(m, 8)",)
    assert artifact.constexprs == (("N_PADDED", "next_power_of_2(n)"),)
    assert [parameter.source for parameter in artifact.parameters][2:4] == [
        "x.size(0)",
        "x.size(1)",
    ]


def test_runtime_sizes_and_scalars_at_run_time(run):
    import torch

    artifact = make(DYNAMIC, symbols={"tile_m": 8, "n": 256})
    for m, n in ((1, 1), (8, 16), (13, 17)):
        x, out = torch.randn(m, n), torch.zeros(m, n)
        result = run(artifact, x, out, m, n, x.stride(0), out.stride(0), 0.5)[1]
        assert torch.equal(result, x * 0.5)


def test_source_lines_are_named_where_they_change():
    function = parse(rows("f32", 16, 16, '%r = elementwise(%x_tile) {fn="neg"} : f32[tile_m, 16]'))
    lines = iter(range(10, 100))

    def locate(op):
        from dataclasses import replace

        is_shown = op.name in ("load", "elementwise", "store")
        line = {"load": 12, "elementwise": 12, "store": 13}.get(op.name, next(lines))
        return replace(op, loc=SourceLocation("/some/where/kernel.py", line)) if is_shown else op

    source = emit_triton(rewrite_function(function, locate), schedule(symbols={"tile_m": 4})).source
    comments = [line.strip() for line in source.splitlines() if "#" in line]
    assert comments == ["# src[kernel.py:12]", "# src[kernel.py:13]"]


def test_mask_behind_a_load_is_folded_into_it():
    body = """
    %least = mask(%x_tile) {fill=-inf, axes=[1]} : f32[tile_m, 12]
    %peak = reduce(%least) {axis=1, kind="max"} : f32[tile_m]
    %p = expand_dims(%peak) {axes=[1]} : f32[tile_m, 1]
    %r = broadcast(%p) : f32[tile_m, 12]
    """
    source = make(rows("f32", 16, 12, body), symbols={"tile_m": 4}).source
    assert 'other=float("-inf")' in source
    assert "tl.where" not in source


def test_mask_on_a_value_used_elsewhere_is_not_folded():
    body = """
    %least = mask(%x_tile) {fill=-inf, axes=[1]} : f32[tile_m, 12]
    %peak = reduce(%least) {axis=1, kind="max"} : f32[tile_m]
    %p = expand_dims(%peak) {axes=[1]} : f32[tile_m, 1]
    %pb = broadcast(%p) : f32[tile_m, 12]
    %r = elementwise(%x_tile, %pb) {fn="sub"} : f32[tile_m, 12]
    """
    source = make(rows("f32", 16, 12, body), symbols={"tile_m": 4}).source
    assert "other=0.0" in source
    assert 'tl.where(mask_12[None, :], x_tile, float("-inf"))' in source


def test_names_do_not_collide_with_what_triton_means():
    text = function(
        "tl",
        tensor("tl", "f32", 16),
        tensor("pid", "f32", 16),
        block("tile_m"),
        """
        %zero = full() {value=0} : i32[]
        %m = full() {value=16} : i32[]
        grid([%zero], [%m]) {blocks=["tile_m"], slot=0}
        (%m0: i32[]) {
          %rows = tile_index(%m0) {block="tile_m"} : i32[tile_m]
          %for = load(%tl, none, [%rows]) {slot=0} : f32[tile_m]
          %min = elementwise(%for) {fn="neg"} : f32[tile_m]
          %launch = elementwise(%min) {fn="abs"} : f32[tile_m]
          store(%pid, %launch, none, [%rows]) {slot=1}
        }
        """,
    )
    source = make(text, symbols={"tile_m": 16}).source
    assert "def _tl(tl_1, pid):" in source
    assert "pid_1 = tl.program_id(0)" in source
    assert "for_1 = tl.load(tl_1 + offs_m)" in source
    assert "min_1 = for_1 * -1.0" in source
    assert "launch_1 = tl.abs(min_1)" in source


def test_fast_math_takes_the_approximate_functions():
    body = """
    %e = elementwise(%x_tile) {fn="exp"} : f32[tile_m, 16]
    %r = elementwise(%e, %x_tile) {fn="div"} : f32[tile_m, 16]
    """
    text = rows("f32", 16, 16, body)
    fast = make(text, symbols={"tile_m": 4}, backend_options={"fast_math": True}).source
    exact = make(text, symbols={"tile_m": 4}).source
    assert "tl.exp(x_tile)" in fast
    assert "e / x_tile" in fast
    assert "libdevice" not in fast
    assert "libdevice.exp(x_tile)" in exact
    assert "tl.div_rn(e, x_tile)" in exact
