"""Kernels as IR text, as a frontend would make them: rows reduced over a full slice, and dots."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tests.interpreted import run_function
from tests.ir_parser import parse_function
from tilesmith.ir.function import Function
from tilesmith.ir.verifier import verify_function

Arguments = Mapping[str, torch.Tensor | int | float]


def parse_kernel(text: str) -> Function:
    """A verified function."""
    function = parse_function(text)
    verify_function(function)
    return function


def results_of(
    function: Function, arguments: Arguments, sizes: Mapping[str, int]
) -> dict[str, torch.Tensor]:
    """All tensors after a run on copies of the arguments."""
    copies = {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }
    run_function(function, copies, sizes, races=True)
    return {name: value for name, value in copies.items() if isinstance(value, torch.Tensor)}


def row_kernel(body: str, columns: int = 200, parameters: str = "") -> Function:
    """A grid over rows (block ``m``) of ``x``, f32[rows, columns], loaded whole as ``%v``.

    ``%r`` are the rows, ``%r1`` the rows as a column, ``%n1`` the columns as a row. Results go to
    ``out`` (like ``x``) or ``rowwise`` (f32[rows]).
    """
    return parse_kernel(f"""func @rows {{
  param %x: tensor<f32[rows, {columns}], strides=[{columns}, 1], alias=0> from "x"
  param %out: tensor<f32[rows, {columns}], strides=[{columns}, 1], alias=1> from "out"
  param %rowwise: tensor<f32[rows], strides=[1], alias=2> from "rowwise"
  param %rows: i32[] from "x.size(0)"
  {parameters}
  block m {{slot=0}}
  %zero = full() {{value=0}} : i32[]
  grid([%zero], [%rows]) {{blocks=["m"]}} (%b: i32[]) {{
    %r = tile_index(%b) {{block="m"}} : i32[m]
    %r1 = expand_dims(%r) {{axes=[1]}} : i32[m, 1]
    %n = arange() : i32[{columns}]
    %n1 = expand_dims(%n) {{axes=[0]}} : i32[1, {columns}]
    %v = load(%x, none, [%r1, %n1]) : f32[m, {columns}]
    {body}
  }}
}}
""")


def spread(name: str, columns: int = 200) -> str:
    """Text that makes ``%<name>_b``, f32[m, columns], of a value per row."""
    return f"""
    %{name}_1 = expand_dims(%{name}) {{axes=[1]}} : f32[m, 1]
    %{name}_b = broadcast(%{name}_1) : f32[m, {columns}]
    """


def binary(result: str, fn: str, lhs: str, rhs: str, columns: int = 200) -> str:
    """Text of one lane-wise op over rows."""
    return f'%{result} = elementwise(%{lhs}, %{rhs}) {{fn="{fn}"}} : f32[m, {columns}]\n'


def softmax_body(target: str = "out", columns: int = 200) -> str:
    """Softmax of ``%v``, stored to ``target``."""
    return f"""
    %top = reduce(%v) {{axis=1, kind="max"}} : f32[m]
    {spread("top", columns)}
    {binary("d", "sub", "v", "top_b", columns)}
    %e = elementwise(%d) {{fn="exp"}} : f32[m, {columns}]
    %s = reduce(%e) {{axis=1, kind="sum"}} : f32[m]
    {spread("s", columns)}
    {binary("q", "div", "e", "s_b", columns)}
    store(%{target}, %q, none, [%r1, %n1])
    """


def layer_norm_body(columns: int = 200) -> str:
    """Rows with mean 0 and variance 1."""
    return f"""
    %count = full() {{value={columns}.0}} : f32[m]
    %total = reduce(%v) {{axis=1, kind="sum"}} : f32[m]
    %mean = elementwise(%total, %count) {{fn="div"}} : f32[m]
    {spread("mean", columns)}
    {binary("c", "sub", "v", "mean_b", columns)}
    {binary("c2", "mul", "c", "c", columns)}
    %ss = reduce(%c2) {{axis=1, kind="sum"}} : f32[m]
    %var = elementwise(%ss, %count) {{fn="div"}} : f32[m]
    %inv = elementwise(%var) {{fn="rsqrt"}} : f32[m]
    {spread("inv", columns)}
    {binary("q", "mul", "c", "inv_b", columns)}
    store(%out, %q, none, [%r1, %n1])
    store(%rowwise, %mean, none, [%r])
    """


MATMUL = """func @matmul {
  param %x: tensor<bf16[50, 70], strides=[70, 1], alias=0> from "x"
  param %y: tensor<bf16[70, 33], strides=[1, 70], alias=1> from "y"
  param %out: tensor<f32[50, 33], strides=[33, 1], alias=2> from "out"
  block m {slot=0}
  block n {slot=1}
  block k {slot=2}
  %zero = full() {value=0} : i32[]
  %M = full() {value=50} : i32[]
  %N = full() {value=33} : i32[]
  %K = full() {value=70} : i32[]
  grid([%zero, %zero], [%M, %N]) {blocks=["m", "n"]} (%bm: i32[], %bn: i32[]) {
    %init = full() {value=0.0} : f32[m, n]
    %r = tile_index(%bm) {block="m"} : i32[m]
    %r1 = expand_dims(%r) {axes=[1]} : i32[m, 1]
    %c = tile_index(%bn) {block="n"} : i32[n]
    %c1 = expand_dims(%c) {axes=[0]} : i32[1, n]
    %acc = loop([%zero], [%K], [], [%init]) {blocks=["k"]} : f32[m, n] \
(%bk: i32[], %old: f32[m, n]) {
      %again = tile_index(%bm) {block="m"} : i32[m]
      %again1 = expand_dims(%again) {axes=[1]} : i32[m, 1]
      %i = tile_index(%bk) {block="k"} : i32[k]
      %i0 = expand_dims(%i) {axes=[0]} : i32[1, k]
      %i1 = expand_dims(%i) {axes=[1]} : i32[k, 1]
      %a = load(%x, none, [%again1, %i0]) : bf16[m, k]
      %b = load(%y, none, [%i1, %c1]) : bf16[k, n]
      %d = dot(%a, %b, none) : f32[m, n]
      %half = cast(%d) : bf16[m, n]
      %wide = cast(%half) : f32[m, n]
      %new = elementwise(%old, %wide) {fn="add"} : f32[m, n]
      yield(%new)
    }
    store(%out, %acc, none, [%r1, %c1])
  }
}
"""

COMPRESS = """func @compress {
  param %x: tensor<bf16[3, 37, 16], strides=[592, 16, 1], alias=0> from "x"
  param %y: tensor<bf16[3, 37, 8], strides=[296, 8, 1], alias=1> from "y"
  param %xty: tensor<bf16[3, 16, 8], strides=[128, 8, 1], alias=2> from "xty"
  param %out: tensor<bf16[3, 37, 8], strides=[296, 8, 1], alias=3> from "out"
  block b {fixed=1}
  block m {slot=0}
  block p {slot=1}
  %zero = full() {value=0} : i32[]
  %B = full() {value=3} : i32[]
  %M = full() {value=37} : i32[]
  grid([%zero], [%B]) {blocks=["b"]} (%bb: i32[]) {
    %init = full() {value=0.0} : f32[16, 8]
    %d = arange() : i32[16]
    %d0 = expand_dims(%d) {axes=[0]} : i32[1, 16]
    %d1 = expand_dims(%d) {axes=[1]} : i32[16, 1]
    %k = arange() : i32[8]
    %k0 = expand_dims(%k) {axes=[0]} : i32[1, 8]
    %acc = loop([%zero], [%M], [], [%init]) {blocks=["m"]} : f32[16, 8] \
(%bm: i32[], %old: f32[16, 8]) {
      %i = tile_index(%bm) {block="m"} : i32[m]
      %i1 = expand_dims(%i) {axes=[1]} : i32[m, 1]
      %xt = load(%x, none, [%bb, %i1, %d0]) : bf16[m, 16]
      %xtt = permute(%xt) {order=[1, 0]} : bf16[16, m]
      %yt = load(%y, none, [%bb, %i1, %k0]) : bf16[m, 8]
      %new = dot(%xtt, %yt, %old) : f32[16, 8]
      yield(%new)
    }
    %half = cast(%acc) : bf16[16, 8]
    store(%xty, %half, none, [%bb, %d1, %k0])
    loop([%zero], [%M], [], []) {blocks=["p"]} (%bp: i32[]) {
      %j = tile_index(%bp) {block="p"} : i32[p]
      %j1 = expand_dims(%j) {axes=[1]} : i32[p, 1]
      %xt2 = load(%x, none, [%bb, %j1, %d0]) : bf16[p, 16]
      %e = arange() : i32[16]
      %e1 = expand_dims(%e) {axes=[1]} : i32[16, 1]
      %back = load(%xty, none, [%bb, %e1, %k0]) : bf16[16, 8]
      %prod = dot(%xt2, %back, none) : f32[p, 8]
      %low = cast(%prod) : bf16[p, 8]
      store(%out, %low, none, [%bb, %j1, %k0])
    }
  }
}
"""
