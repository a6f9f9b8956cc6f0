"""Every scalar function: it compiles, keeps its element type, and rounds as eager torch does."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.backends.triton.kernels import make, rows
from tilesmith.artifacts import Artifact
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.backends.triton.emission.spelling import triton_dtype
from tilesmith.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, U32, U64, DType
from tilesmith.ir.ops.elementwise import SCALAR_FUNCTIONS, ResultKind
from tilesmith.targets import parse_target

INTEGER = {
    "neg", "abs", "floor", "ceil", "round", "trunc", "not", "isnan", "isinf", "add", "mul", "sub",
    "maximum", "minimum", "and", "or", "xor", "floordiv", "truncdiv", "mod", "fmod", "shl", "shr",
    "pow", "eq", "ne", "lt", "le", "gt", "ge", "where",
}  # fmt: skip
BOOLEAN = {"not", "add", "mul", "maximum", "minimum", "and", "or", "xor", "eq", "ne", "lt", "where"}
NOT_FLOAT = {"not", "and", "or", "xor", "shl", "shr", "mulhi"}


def functions_of(dtype: DType) -> list[str]:
    if dtype.is_float:
        return [name for name in SCALAR_FUNCTIONS if name not in NOT_FLOAT]
    if dtype in (U32, U64):
        return ["add", "mul", "sub", "and", "xor", "shr", "mod", "mulhi"]
    return [name for name in SCALAR_FUNCTIONS if name in (BOOLEAN if dtype.is_bool else INTEGER)]


def body(dtype: DType, names: list[str], second: str = "x_tile") -> str:
    """All functions one after the other; what each gives is kept alive by a sum."""
    lines = ['%flag = elementwise(%x_tile, %x_tile) {fn="eq"} : bool[tile_m, 8]']
    lines.append(f"%one = full() {{value={1 if not dtype.is_float else 1.5}}} : {dtype}[tile_m, 8]")
    total = "x_tile"
    for name in names:
        function = SCALAR_FUNCTIONS[name]
        operands = ["x_tile", second, second][: function.arity]
        if name == "where":
            operands[0] = "flag"
        is_bool = function.result is ResultKind.BOOL
        result = "bool" if is_bool else str(dtype)
        args = ", ".join(f"%{operand}" for operand in operands)
        lines.append(f'%r_{name} = elementwise({args}) {{fn="{name}"}} : {result}[tile_m, 8]')
        kept = f"r_{name}"
        if is_bool and not dtype.is_bool:
            kept = f"k_{name}"
            lines.append(f"%{kept} = cast(%r_{name}) : {dtype}[tile_m, 8]")
        join = "or" if dtype.is_bool else "add"
        lines.append(
            f'%s_{name} = elementwise(%{total}, %{kept}) {{fn="{join}"}} : {dtype}[tile_m, 8]'
        )
        total = f"s_{name}"
    lines.append(f"%r = cast(%{total}) : {dtype}[tile_m, 8]")
    return "\n".join(lines)


def with_type_checks(artifact: Artifact, dtype: DType) -> Artifact:
    """Let the compiler itself check the element type of every value."""

    def check(match: re.Match[str]) -> str:
        name = match[2].split("_", 1)[1]
        is_bool = SCALAR_FUNCTIONS[name].result is ResultKind.BOOL
        wanted = triton_dtype(BOOL if is_bool else dtype)
        return f"{match[0]}\n{match[1]}tl.static_assert({match[2]}.dtype == {wanted})"

    source = re.sub(
        r"^( +)(r_\w+) = .*(?:\n    (?:    .*|\)))*", check, artifact.source, flags=re.M
    )
    return replace(artifact, source=source)


@pytest.mark.parametrize("second", ["x_tile", "one"])
@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64, I32, I64, I8, U8, U32, U64, BOOL], ids=str)
def test_every_function_compiles_and_keeps_its_type(dtype, second):
    text = rows(dtype, 64, 8, body(dtype, functions_of(dtype), second))
    artifact = with_type_checks(make(text, symbols={"tile_m": 16}), dtype)
    assert "static_assert" in artifact.source
    for target in ("cuda:90", "hip:gfx942"):
        compile_artifact(artifact, parse_target(target))
