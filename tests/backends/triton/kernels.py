"""IR of small kernels, and schedules for them."""

from __future__ import annotations

from textwrap import dedent, indent
from typing import Any

from tests.ir_parser import parse_function
from tests.lowering import emit_triton
from tilesmith.artifacts import Artifact
from tilesmith.dtypes import DType
from tilesmith.ir.function import Function
from tilesmith.ir.types import next_power_of_2
from tilesmith.ir.verifier import verify_function
from tilesmith.schedule.schedule import Schedule
from tilesmith.targets import parse_target

TARGETS = ("cuda:80", "cuda:90", "cuda:100", "hip:gfx942", "hip:gfx950")


def schedule(
    target: str = "cuda:90", padded: dict[int, int] | None = None, **options: Any
) -> Schedule:
    """A schedule; block sizes are given as ``symbols``."""
    sizes = {n: next_power_of_2(n) for n in range(2, 2049)} | (padded or {})
    return Schedule(target=parse_target(target), padded=sizes, **options)


def parse(text: str) -> Function:
    function = parse_function(dedent(text))
    verify_function(function)
    return function


def make(text: str, version: tuple[int, int] | None = None, **options: Any) -> Artifact:
    return emit_triton(parse(text), schedule(**options), version)


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides."""
    result: list[int] = []
    step = 1
    for size in reversed(shape):
        result.insert(0, step)
        step *= size
    return tuple(result)


def tensor(
    name: str, dtype: str, *shape: int, alias: int = -1, stride: Any = None, wide: bool = False
) -> str:
    given = list(strides(shape) if stride is None else stride)
    tail = ", wide" if wide else ""
    return (
        f"param %{name}: tensor<{dtype}{list(shape)}, strides={given}, alias={alias}{tail}>"
        f' from "{name}"'
    )


def block(name: str, slot: int = 0) -> str:
    return f"block {name} {{slot={slot}}}"


def function(name: str, *lines: str) -> str:
    return f"func @{name} {{\n" + "\n".join(indent(dedent(line), "  ") for line in lines) + "\n}\n"


def rows(dtype: DType | str, m: int, n: int, body: str, out: str | None = None) -> str:
    """``out[t, :] = body(x[t, :])`` over tiles of rows; the body defines %r from %x_tile."""
    return function(
        "rows",
        tensor("x", str(dtype), m, n),
        tensor("out", out or str(dtype), m, n),
        block("tile_m"),
        f"""
        %zero = full() {{value=0}} : i32[]
        %m = full() {{value={m}}} : i32[]
        grid([%zero], [%m]) {{blocks=["tile_m"], slot=0}}
        (%begin: i32[]) {{
          %rows = tile_index(%begin) {{block="tile_m"}} : i32[tile_m]
          %cols = arange() : i32[{n}]
          %i = expand_dims(%rows) {{axes=[1]}} : i32[tile_m, 1]
          %j = expand_dims(%cols) {{axes=[0]}} : i32[1, {n}]
          %x_tile = load(%x, none, [%i, %j]) {{slot=0}} : {dtype}[tile_m, {n}]
          """
        + indent(dedent(body), "          ").strip()
        + """
          store(%out, %r, none, [%i, %j]) {slot=1}
        }
        """,
    )


def matmul(m: int, n: int, k: int, dtype: str = "f16", precision: str = "ieee") -> str:
    tile = "f32[tile_m, tile_n]"
    return function(
        "matmul",
        tensor("x", dtype, m, k),
        tensor("y", dtype, k, n),
        tensor("out", dtype, m, n),
        block("tile_m", 0),
        block("tile_n", 1),
        block("tile_k", 2),
        f"""
        %zero = full() {{value=0}} : i32[]
        %m = full() {{value={m}}} : i32[]
        %n = full() {{value={n}}} : i32[]
        %k = full() {{value={k}}} : i32[]
        grid([%zero, %zero], [%m, %n]) {{blocks=["tile_m", "tile_n"], slot=0}}
        (%m0: i32[], %n0: i32[]) {{
          %start = full() {{value=0.0}} : f32[tile_m, tile_n]
          %rows = tile_index(%m0) {{block="tile_m"}} : i32[tile_m]
          %cols = tile_index(%n0) {{block="tile_n"}} : i32[tile_n]
          %i = expand_dims(%rows) {{axes=[1]}} : i32[tile_m, 1]
          %j = expand_dims(%cols) {{axes=[0]}} : i32[1, tile_n]
          %acc = loop([%zero], [%k], [], [%start]) {{blocks=["tile_k"], slot=0}} : {tile}
          (%k0: i32[], %before: {tile}) {{
            %inner = tile_index(%k0) {{block="tile_k"}} : i32[tile_k]
            %p = expand_dims(%inner) {{axes=[0]}} : i32[1, tile_k]
            %x_tile = load(%x, none, [%i, %p]) {{slot=0}} : {dtype}[tile_m, tile_k]
            %q = expand_dims(%inner) {{axes=[1]}} : i32[tile_k, 1]
            %y_tile = load(%y, none, [%q, %j]) {{slot=1}} : {dtype}[tile_k, tile_n]
            %after = dot(%x_tile, %y_tile, %before) {{precision="{precision}"}} : {tile}
            yield(%after)
          }}
          %r = cast(%acc) : {dtype}[tile_m, tile_n]
          store(%out, %r, none, [%i, %j]) {{slot=2}}
        }}
        """,
    )
