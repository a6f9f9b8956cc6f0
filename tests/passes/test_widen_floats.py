"""Widened functions compute in fp64 what the originals compute, from the very same inputs."""

from __future__ import annotations

import pytest
import torch

from tests.interpreted import run_function
from tests.passes.program_text import body_after, make_program
from tilesmith.dtypes import F64
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import TensorType, TileType
from tilesmith.ir.verifier import verify_function
from tilesmith.passes.roundings import CannotWidenError, widen_floats

SIZES = {"t": 16, "u": 4, "fixed": 8}


def arguments(y: torch.Tensor) -> dict[str, torch.Tensor | int | float | bool]:
    generator = torch.Generator().manual_seed(0)
    return {
        "x": torch.randn(100, generator=generator),
        "y": y,
        "w": torch.randn(100, 60, generator=generator),
        "h": torch.randn(64, 64, generator=generator).to(torch.bfloat16),
        "a": 3,
        "f": 0.1,
        "c": True,
    }


def run_wide(body: str) -> tuple[torch.Tensor, dict[str, torch.Tensor | int | float | bool]]:
    """What the widened program leaves in ``y``."""
    wide = widen_floats(make_program(body))
    verify_function(wide)
    y = torch.zeros(100, dtype=torch.float64)
    given = arguments(y)
    run_function(wide, given, SIZES)
    return y, given


def test_loads_are_widened_and_rounding_casts_vanish() -> None:
    lines = body_after(
        widen_floats,
        make_program("""
        %v = load(%x, none, [%i]) : f32[t]
        %n = cast(%v) : bf16[t]
        %e = elementwise(%n) {fn="exp"} : bf16[t]
        %r = cast(%e) : f32[t]
        store(%y, %r, none, [%i])
        """),
    )
    assert lines == [
        "%v = load(%x, none, [%i]) : f32[t]",
        "%v_1 = cast(%v) : f64[t]",
        '%e = elementwise(%v_1) {fn="exp"} : f64[t]',
        "store(%y, %e, none, [%i])",
    ]


def test_what_is_written_is_an_fp64_tensor_and_what_is_read_stays() -> None:
    wide = widen_floats(make_program("store(%y, %f, none, [%a])"))
    types = {p.value.name: p.value.type for p in wide.parameters}
    assert isinstance(types["y"], TensorType)
    assert isinstance(types["x"], TensorType)
    assert types["y"].dtype == F64
    assert types["x"].dtype != F64


def test_results_are_those_of_fp64() -> None:
    y, given = run_wide("""
        %v = load(%x, none, [%i]) : f32[t]
        %s = expand_dims(%f) {axes=[0]} : f32[1]
        %q = broadcast(%s) : f32[t]
        %p = elementwise(%v, %q) {fn="mul"} : f32[t]
        %n = cast(%p) : bf16[t]
        %z = elementwise(%n) {fn="sigmoid"} : bf16[t]
        %r = cast(%z) : f32[t]
        store(%y, %r, none, [%i])
    """)
    factor = torch.tensor(0.1, dtype=torch.float32).double()
    x = given["x"]
    assert isinstance(x, torch.Tensor)
    torch.testing.assert_close(y, torch.sigmoid(x.double() * factor), rtol=1e-15, atol=0)


def test_constants_are_those_of_the_original_type() -> None:
    y, _ = run_wide("""
        %k = full() {value=0.1} : bf16[t]
        %r = cast(%k) : f32[t]
        store(%y, %r, none, [%i])
    """)
    assert (y == torch.tensor(0.1, dtype=torch.bfloat16).double()).all()


def test_loops_carry_fp64() -> None:
    y, given = run_wide("""
        %acc = full() {value=0.0} : f32[t]
        %n = full() {value=60} : i32[]
        %sum = loop([%zero], [%n], [], [%acc]) {blocks=["u"]} : f32[t] (%k: i32[], %s: f32[t]) {
          %j = tile_index(%k) {block="u"} : i32[u]
          %ii = expand_dims(%i) {axes=[1]} : i32[t, 1]
          %jj = expand_dims(%j) {axes=[0]} : i32[1, u]
          %v = load(%w, none, [%ii, %jj]) : f32[t, u]
          %p = reduce(%v) {axis=1, kind="sum"} : f32[t]
          %q = elementwise(%s, %p) {fn="add"} : f32[t]
          yield(%q)
        }
        store(%y, %sum, none, [%i])
    """)
    w = given["w"]
    assert isinstance(w, torch.Tensor)
    torch.testing.assert_close(y, w.double().sum(1), rtol=1e-14, atol=1e-14)


def test_products_are_exact_in_fp64() -> None:
    program = make_program("""
        %r = full() {value=0} : i32[]
        %e = arange() : i32[64]
        %rows = expand_dims(%e) {axes=[1]} : i32[64, 1]
        %columns = expand_dims(%e) {axes=[0]} : i32[1, 64]
        %m = load(%h, none, [%rows, %columns]) : bf16[64, 64]
        %d = dot(%m, %m, none) {precision="tf32"} : f32[64, 64]
        %n = cast(%d) : bf16[64, 64]
        %o = cast(%n) : f32[64, 64]
        %s = reduce(%o) {axis=1, kind="sum"} : f32[64]
        store(%y, %s, none, [%e])
    """)
    y = torch.zeros(100, dtype=torch.float64)
    given = arguments(y)
    run_function(widen_floats(program), given, {**SIZES, "t": 128})
    h = given["h"]
    assert isinstance(h, torch.Tensor)
    expected = (h.double() @ h.double()).sum(1)
    torch.testing.assert_close(y[:64], expected, rtol=1e-12, atol=1e-12)


def test_bits_of_floats_are_those_of_rounded_values() -> None:
    y, given = run_wide("""
        %v = load(%x, none, [%i]) : f32[t]
        %bits = cast(%v) {bitcast=true} : i32[t]
        %n = full() {value=2147483647} : i32[t]
        %p = elementwise(%bits, %n) {fn="and"} : i32[t]
        %r = cast(%p) {bitcast=true} : f32[t]
        store(%y, %r, none, [%i])
    """)
    x = given["x"]
    assert isinstance(x, torch.Tensor)
    assert torch.equal(y, x.double().abs())


def test_integers_stay_as_they_are() -> None:
    wide = widen_floats(
        make_program("""
        %v = load(%x, none, [%i]) : f32[t]
        %n = cast(%v) : i32[t]
        %m = elementwise(%n, %i) {fn="mul"} : i32[t]
        %r = cast(%m) : f32[t]
        store(%y, %r, none, [%i])
        """)
    )
    floats = [
        value.type.dtype
        for op in walk_function(wide)
        for value in op.results
        if isinstance(value.type, TileType) and value.type.dtype.is_float
    ]
    assert [dtype.name for dtype in floats] == ["f64", "f32", "f64", "f64"]


def test_prints_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    run_wide("""
        print(%i) {prefix="here"}
        store(%y, %f, none, [%a])
    """)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            '%v = inline_triton(%i) {source="{0}", names=[]} : i32[t]',
            "code for one backend",
        ),
        (
            "%p = full() {value=0} : u64[t]\n%v = load(%x, none, [%i], bases=%p) : f32[t]",
            "by address",
        ),
    ],
)
def test_what_has_no_fp64_form_says_so(body: str, reason: str) -> None:
    with pytest.raises(CannotWidenError, match=reason):
        widen_floats(make_program(body))
