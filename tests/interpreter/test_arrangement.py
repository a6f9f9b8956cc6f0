"""Views of tiles, of stored ones and of those that are known without being stored."""

from __future__ import annotations

import pytest
import torch

from tests.interpreter.run_text import in_program, over_tiles, run_text


@pytest.mark.parametrize("rows", [1, 3, 4, 5])
def test_reshape_is_row_major_over_the_valid_lanes(rows: int):
    x, out = torch.arange(rows * 6.0).reshape(rows, 6), torch.zeros(rows, 6)
    body = over_tiles(
        """
    %rows = expand_dims(%i) {axes=[1]} : i64[m, 1]
    %columns = arange() : i64[6]
    %v = load(%x, none, [%rows, %columns]) : f32[m, 6]
    %flat = reshape(%v) : f32[m*6]
    %split = reshape(%flat) : f32[m, 2, 3]
    %turned = permute(%split) {order=[0, 2, 1]} : f32[m, 3, 2]
    %back = reshape(%turned) : f32[m, 6]
    store(%out, %back, none, [%rows, %columns])""",
        rows,
    )
    run_text(body, {"x": x, "out": out}, {"m": 4})
    assert torch.equal(out, x.reshape(rows, 2, 3).transpose(1, 2).reshape(rows, 6))


@pytest.mark.parametrize("rows", [1, 3, 4, 5])
def test_broadcast_repeats_axes_of_one(rows: int):
    x, out = torch.arange(float(rows)), torch.zeros(rows, 3)
    body = over_tiles(
        """
    %v = load(%x, none, [%i]) : f32[m]
    %column = expand_dims(%v) {axes=[1]} : f32[m, 1]
    %wide = broadcast(%column) : f32[m, 3]
    %rows = expand_dims(%i) {axes=[1]} : i64[m, 1]
    %columns = arange() : i64[3]
    store(%out, %wide, none, [%rows, %columns])""",
        rows,
    )
    run_text(body, {"x": x, "out": out}, {"m": 4})
    assert torch.equal(out, x[:, None].expand(rows, 3))


@pytest.mark.parametrize("rows", [1, 3, 4, 7])
def test_index_tiles_through_every_view(rows: int):
    out = torch.zeros(5, rows, dtype=torch.int64)
    body = over_tiles(
        """
    %row = expand_dims(%i) {axes=[0]} : i64[1, m]
    %many = broadcast(%row) : i64[5, m]
    %turned = permute(%many) {order=[1, 0]} : i64[m, 5]
    %a = arange() : i64[5]
    %ten = full() {value=10} : i64[5]
    %tens = elementwise(%a, %ten) {fn="mul"} : i64[5]
    %line = expand_dims(%tens) {axes=[0]} : i64[1, 5]
    %lines = broadcast(%line) : i64[m, 5]
    %sum = elementwise(%turned, %lines) {fn="add"} : i64[m, 5]
    %one_each = expand_dims(%zero) {axes=[0, 1]} : i64[1, 1]
    %zeros = broadcast(%one_each) : i64[m, 5]
    %same = elementwise(%sum, %zeros) {fn="sub"} : i64[m, 5]
    %flat = reshape(%same) : i64[m*5]
    %again = reshape(%flat) : i64[m, 5]
    %to_row = expand_dims(%a) {axes=[0]} : i64[1, 5]
    %to_column = expand_dims(%i) {axes=[1]} : i64[m, 1]
    store(%out, %again, none, [%to_row, %to_column])""",
        rows,
    )
    run_text(body, {"out": out}, {"m": 4})
    expected = torch.arange(rows)[None, :] + 10 * torch.arange(5)[:, None]
    assert torch.equal(out, expected)


def test_broadcast_of_a_tile_of_one_lane_repeats_its_index():
    out = torch.zeros(3, dtype=torch.int64)
    body = """
    %begin = full() {value=7} : i64[]
    %one_lane = arange() : i64[1]
    %shift = expand_dims(%begin) {axes=[0]} : i64[1]
    %seven = elementwise(%one_lane, %shift) {fn="add"} : i64[1]
    %wide = broadcast(%seven) : i64[3]
    %to = arange() : i64[3]
    store(%out, %wide, none, [%to])"""
    run_text(in_program(body), {"out": out}, {})
    assert out.tolist() == [7, 7, 7]


@pytest.mark.parametrize(("dtype", "value"), [("f32", 2.5), ("bool", "true"), ("i32", 3)])
def test_scalars_become_tiles(dtype: str, value: float | str):
    torch_dtype = {"f32": torch.float32, "bool": torch.bool, "i32": torch.int32}[dtype]
    out = torch.zeros(2, 2, dtype=torch_dtype)
    body = f"""
    %s = full() {{value={value}}} : {dtype}[]
    %t = expand_dims(%s) {{axes=[0, 1]}} : {dtype}[1, 1]
    %u = broadcast(%t) : {dtype}[2, 2]
    %r = reshape(%s) : {dtype}[1]
    %back = reshape(%r) : {dtype}[]
    %a = arange() : i64[2]
    %column = expand_dims(%a) {{axes=[1]}} : i64[2, 1]
    store(%out, %u, none, [%column, %a])
    store(%out, %back, none, [%zero, %zero])"""
    run_text(in_program(body), {"out": out}, {})
    expected = torch.full((2, 2), 1.0 if value == "true" else float(value))
    assert torch.equal(out, expected.to(torch_dtype))
