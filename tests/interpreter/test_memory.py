"""Loads and stores: slices, gathers, masks, bounds, and tensors of any strides."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreted import run_function
from tests.interpreter.run_text import build, in_program, over_tiles, run_text
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.exc import OutOfBoundsAccess
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.traversal import rewrite_function

COPY_2D = """
  grid([%zero, %zero], [%m_end, %n_end]) {{blocks=["m", "n"]}} (%bm: i64[], %bn: i64[]) {{
    %im = tile_index(%bm) {{block="m"}} : i64[m]
    %in = tile_index(%bn) {{block="n"}} : i64[n]
    %rows = expand_dims(%im) {{axes=[1]}} : i64[m, 1]
    %columns = expand_dims(%in) {{axes=[0]}} : i64[1, n]
    %v = load(%x, none, [%rows, %columns]) : {dtype}[m, n]
    store(%out, %v, none, [%rows, %columns])
  }}"""

LAYOUTS = {
    "contiguous": lambda m, n: (m, n, lambda base: base[:m, :n].contiguous()),
    "transposed": lambda m, n: (n, m, lambda base: base[:n, :m].t()),
    "strided": lambda m, n: (2 * m, 3 * n, lambda base: base[::2, ::3]),
    "offset": lambda m, n: (m + 2, n + 3, lambda base: base[2:, 3:]),
}


def tensor_of(layout: str, m: int, n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    rows, columns, view = LAYOUTS[layout](m, n)
    base = torch.arange(rows * columns).reshape(rows, columns) % 113
    return view(base.to(dtype))


@given(
    m=st.sampled_from([0, 1, 3, 4, 5, 13]),
    n=st.sampled_from([0, 1, 7, 8, 9, 17]),
    layouts=st.tuples(st.sampled_from(list(LAYOUTS)), st.sampled_from(list(LAYOUTS))),
    dtype=st.sampled_from([torch.float32, torch.bool, torch.int8, torch.uint32, torch.float8_e5m2]),
)
def test_tiled_copy_moves_every_element_once(m, n, layouts, dtype):
    x = tensor_of(layouts[0], m, n, dtype)
    out = torch.zeros_like(tensor_of(layouts[1], m, n, torch.int32)).to(dtype)
    arguments = {"x": x, "out": out, "m_end": m, "n_end": n}
    run_text(COPY_2D.format(dtype=from_torch(dtype)), arguments, {"m": 4, "n": 8}, races=True)
    assert torch.equal(out.float(), x.float())


@pytest.mark.parametrize("block", [1, 4, 16, 64])
def test_any_block_size_copies_a_transposed_tensor_into_a_strided_one(block: int):
    x = tensor_of("transposed", 13, 17)
    out = torch.zeros(26, 51)[::2, ::3]
    arguments = {"x": x, "out": out, "m_end": 13, "n_end": 17}
    run_text(COPY_2D.format(dtype="f32"), arguments, {"m": block, "n": block})
    assert torch.equal(out, x)


def test_store_leaves_other_elements_alone():
    x, base = tensor_of("contiguous", 3, 5), torch.full((8, 10), -1.0)
    arguments = {"x": x, "out": base[2:5, 1:6], "m_end": 3, "n_end": 5}
    run_text(COPY_2D.format(dtype="f32"), arguments, {"m": 2, "n": 2})
    assert torch.equal(base[2:5, 1:6], x)
    assert int((base == -1.0).sum()) == 80 - 15


def gather_rows(x: torch.Tensor, index: torch.Tensor, *, checked: bool = True) -> torch.Tensor:
    out = torch.zeros(len(index), x.shape[1])
    body = over_tiles(
        f"""
    %row = load(%index, none, [%i]) : i64[m]
    %rows = expand_dims(%row) {{axes=[1]}} : i64[m, 1]
    %a = arange() : i64[{x.shape[1]}]
    %columns = expand_dims(%a) {{axes=[0]}} : i64[1, {x.shape[1]}]
    %v = load(%x, none, [%rows, %columns]) : f32[m, {x.shape[1]}]
    %to = expand_dims(%i) {{axes=[1]}} : i64[m, 1]
    store(%out, %v, none, [%to, %columns])""",
        len(index),
    )
    run_text(body, {"x": x, "index": index, "out": out}, {"m": 4}, checked=checked)
    return out


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 11])
def test_gathered_rows(layout: str, count: int):
    x = tensor_of(layout, 7, 5)
    index = torch.arange(count) * 3 % 7
    assert torch.equal(gather_rows(x, index), x[index])
    assert torch.equal(gather_rows(x, index, checked=False), x[index])


@pytest.mark.parametrize("count", [1, 3, 4, 5])
def test_elements_gathered_one_by_one(count: int):
    x, index, out = tensor_of("strided", 5, 5), torch.arange(count) * 3 % 5, torch.zeros(count)
    body = over_tiles(
        """
    %row = load(%index, none, [%i]) : i64[m]
    %v = load(%x, none, [%row, %i]) : f32[m]
    store(%out, %v, none, [%i])""",
        count,
    )
    run_text(body, {"x": x, "index": index, "out": out}, {"m": 8})
    assert torch.equal(out, x[index, torch.arange(count)])


def test_an_index_that_wraps_in_its_type_is_used_as_wrapped():
    x, out = torch.arange(8.0), torch.zeros(4)
    body = over_tiles(
        """
    %far = full() {value=4294967298} : i64[m]
    %sum = elementwise(%i, %far) {fn="add"} : i64[m]
    %low = cast(%sum) : i32[m]
    %v = load(%x, none, [%low]) : f32[m]
    store(%out, %v, none, [%i])""",
        4,
    )
    run_text(body, {"x": x, "out": out}, {"m": 4})
    assert out.tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize("bad", [-1, 7, 1000])
def test_gather_out_of_bounds_is_reported(bad: int):
    with pytest.raises(OutOfBoundsAccess) as caught:
        gather_rows(tensor_of("contiguous", 7, 5), torch.tensor([0, 6, bad, 2, 1]))
    assert f"index {bad} is out of bounds for dimension 0 of `x`, of size 7" in str(caught.value)


@pytest.mark.parametrize(("offset", "index"), [(1, 10), (-2, -2), (20, 20)])
def test_slice_out_of_bounds_is_reported_at_the_users_line(offset: int, index: int):
    body = over_tiles(
        f"""
    %by = full() {{value={offset}}} : i64[m]
    %j = elementwise(%i, %by) {{fn="add"}} : i64[m]
    %v = load(%x, none, [%j]) : f32[m]
    store(%out, %v, none, [%i])""",
        10,
    )
    arguments = {"x": torch.zeros(10), "out": torch.zeros(10)}
    place = SourceLocation("kernel.py", 12, "kernel")

    def locate(op: Operation) -> Operation:
        if not isinstance(op, Load):
            return op
        return replace(op, loc=place)

    function = rewrite_function(build(body, arguments, {"m": 4}), locate)
    with pytest.raises(OutOfBoundsAccess) as caught:
        run_function(function, arguments, {"m": 4})
    assert f"index {index} is out of bounds for dimension 0 of `x`, of size 10" in str(caught.value)
    assert caught.value.loc == place


SHIFTED = """
    %by = full() {{value={offset}}} : i64[m]
    %j = elementwise(%i, %by) {{fn="add"}} : i64[m]
    %low = full() {{value=0}} : i64[m]
    %high = full() {{value={size}}} : i64[m]
    %above = elementwise(%j, %low) {{fn="ge"}} : bool[m]
    %below = elementwise(%j, %high) {{fn="lt"}} : bool[m]
    %mask = elementwise(%above, %below) {{fn="and"}} : bool[m]
"""


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 11])
@pytest.mark.parametrize("offset", [-12, -3, 0, 1, 12])
def test_masked_lanes_are_never_read_and_give_zero(size: int, offset: int):
    x, out = torch.arange(1.0, size + 1), torch.full((size,), -1.0)
    text = SHIFTED + "%v = load(%x, %mask, [%j]) : f32[m]\n store(%out, %v, none, [%i])"
    body = over_tiles(text.format(offset=offset, size=size), size)
    run_text(body, {"x": x, "out": out}, {"m": 4})
    expected = [x[i + offset].item() if 0 <= i + offset < size else 0.0 for i in range(size)]
    assert out.tolist() == expected


@pytest.mark.parametrize("size", [1, 7, 8, 9, 11])
@pytest.mark.parametrize("offset", [-12, -3, 0, 1, 12])
def test_masked_lanes_are_never_written(size: int, offset: int):
    x, out = torch.arange(1.0, size + 1), torch.full((size,), -1.0)
    text = SHIFTED + "%v = load(%x, none, [%i]) : f32[m]\n store(%out, %v, %mask, [%j])"
    run_text(
        over_tiles(text.format(offset=offset, size=size), size), {"x": x, "out": out}, {"m": 4}
    )
    expected = [x[i - offset].item() if 0 <= i - offset < size else -1.0 for i in range(size)]
    assert out.tolist() == expected


@pytest.mark.parametrize("mask", ["true", "false"])
def test_scalar_masks(mask: str):
    x, out = torch.tensor([5.0, 6.0]), torch.tensor([1.0, 2.0])
    body = f"""
    %mask = full() {{value={mask}}} : bool[]
    %far = full() {{value={1 if mask == "true" else 99}}} : i64[]
    %v = load(%x, %mask, [%far]) : f32[]
    %true = full() {{value=true}} : bool[]
    store(%out, %v, %true, [%zero])
    store(%out, %v, %mask, [%far])"""
    run_text(in_program(body), {"x": x, "out": out}, {})
    assert out.tolist() == ([6.0, 6.0] if mask == "true" else [0.0, 2.0])


def test_broadcast_mask_covers_the_whole_access():
    x, out = tensor_of("contiguous", 3, 4), torch.full((3, 4), -1.0)
    keep = torch.tensor([True, False, True])
    body = over_tiles(
        """
    %k = load(%keep, none, [%i]) : bool[m]
    %mask = expand_dims(%k) {axes=[1]} : bool[m, 1]
    %rows = expand_dims(%i) {axes=[1]} : i64[m, 1]
    %columns = arange() : i64[4]
    %v = load(%x, none, [%rows, %columns]) : f32[m, 4]
    store(%out, %v, %mask, [%rows, %columns])""",
        3,
    )
    run_text(body, {"x": x, "out": out, "keep": keep}, {"m": 2})
    assert torch.equal(out, torch.where(keep[:, None], x, -1.0))


def test_a_loaded_value_does_not_change_with_later_stores():
    x = torch.arange(6.0)
    body = over_tiles(
        """
    %old = load(%x, none, [%i]) : f32[m]
    %new = full() {value=9.0} : f32[m]
    store(%x, %new, none, [%i])
    %again = load(%x, none, [%i]) : f32[m]
    %sum = elementwise(%old, %again) {fn="add"} : f32[m]
    store(%x, %sum, none, [%i])""",
        6,
    )
    run_text(body, {"x": x}, {"m": 4})
    assert x.tolist() == [9, 10, 11, 12, 13, 14]


def test_a_store_through_an_alias_does_not_change_loaded_values():
    x = torch.arange(6.0)
    body = over_tiles(
        """
    %old = load(%x, none, [%i]) : f32[m]
    %new = full() {value=9.0} : f32[m]
    store(%alias, %new, none, [%i])
    store(%out, %old, none, [%i])""",
        6,
    )
    out = torch.zeros(6)
    run_text(body, {"x": x, "alias": x.view(2, 3).view(6), "out": out}, {"m": 4})
    assert out.tolist() == [0, 1, 2, 3, 4, 5]
    assert x.tolist() == [9.0] * 6


@pytest.mark.parametrize("size", [1, 4, 5])
def test_diagonal_strided_and_reversed_accesses(size: int):
    x, out = tensor_of("strided", 2 * size, 2 * size), torch.zeros(3, size)
    body = over_tiles(
        f"""
    %two = full() {{value=2}} : i64[m]
    %even = elementwise(%i, %two) {{fn="mul"}} : i64[m]
    %last = full() {{value={size - 1}}} : i64[m]
    %back = elementwise(%last, %i) {{fn="sub"}} : i64[m]
    %diagonal = load(%x, none, [%i, %i]) : f32[m]
    %column = load(%x, none, [%even, %one]) : f32[m]
    %reversed = load(%x, none, [%zero, %back]) : f32[m]
    %second = full() {{value=2}} : i64[]
    store(%out, %diagonal, none, [%zero, %i])
    store(%out, %column, none, [%one, %i])
    store(%out, %reversed, none, [%second, %back])""",
        size,
    )
    run_text(body, {"x": x, "out": out}, {"m": 4})
    assert torch.equal(out[0], x.diagonal()[:size])
    assert torch.equal(out[1], x[::2, 1])
    assert torch.equal(out[2], x[0, :size])


def test_transposed_store():
    x, out = tensor_of("contiguous", 5, 7), torch.zeros(7, 5)
    body = COPY_2D.format(dtype="f32").replace(
        "store(%out, %v, none, [%rows, %columns])", "store(%out, %v, none, [%columns, %rows])"
    )
    run_text(body, {"x": x, "out": out, "m_end": 5, "n_end": 7}, {"m": 4, "n": 4})
    assert torch.equal(out, x.t())


def test_one_of_several_values_stored_to_one_element_stays():
    out = torch.zeros(2)
    body = over_tiles(
        """
    %v = cast(%i) : f32[m]
    %same = full() {value=1} : i64[m]
    store(%out, %v, none, [%same])""",
        4,
    )
    run_text(body, {"out": out}, {"m": 4})
    assert out[0] == 0
    assert out[1] in (0, 1, 2, 3)


def test_rank_zero_tensors():
    x, out = torch.tensor(3.0), torch.zeros(())
    body = "%v = load(%x, none, []) : f32[]\n store(%out, %v, none, [])"
    run_text(in_program(body), {"x": x, "out": out}, {})
    assert out == 3.0


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn])
def test_scatter_of_types_torch_hardly_knows(dtype: torch.dtype):
    index = torch.tensor([4, 0, 3, 1, 2])
    x, out = torch.tensor([1, 2, 3, 4, 7]).to(dtype), torch.zeros(5).to(dtype)
    name = from_torch(dtype)
    body = over_tiles(
        f"""
    %to = load(%index, none, [%i]) : i64[m]
    %v = load(%x, none, [%to]) : {name}[m]
    store(%out, %v, none, [%to])""",
        5,
    )
    run_text(body, {"x": x, "index": index, "out": out}, {"m": 4})
    assert out.float().tolist() == x.float().tolist()


def test_tensors_that_require_gradients_are_written_in_place():
    x = torch.ones(3, requires_grad=True)
    parameter = torch.nn.Parameter(torch.zeros(3))
    body = over_tiles("%v = load(%x, none, [%i]) : f32[m]\n store(%out, %v, none, [%i])", 3)
    run_text(body, {"x": x, "out": parameter}, {"m": 2})
    assert parameter.tolist() == [1.0, 1.0, 1.0]
