"""Powers of two are the same from one instruction as from two factors, to the last bit."""

from __future__ import annotations

import pytest
import torch

from tests.backends.cpu.native_function import LaneFunction, Machine, NativeFunctions
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.instructions import Module
from tilesmith.backends.cpu.llvm.registers import number
from tilesmith.backends.cpu.math.scalar_functions import apply
from tilesmith.backends.cpu.math.scaling import has_scaling
from tilesmith.backends.cpu.math.term import Term
from tilesmith.dtypes import F32, F64, DType
from tilesmith.runtime.native.host_cpu import host_target

NAMES = ("exp", "exp2", "sinh", "cosh")
EDGES = (0.0, -0.0, torch.inf, -torch.inf, torch.nan, 88.7228, 89.4, 128.0, 127.9999, -103.97)
needs_wide_vectors = pytest.mark.skipif(
    host_target().arch != "avx512", reason="this CPU has no vectors of 512 bits"
)


def functions(dtype: DType, lanes: int, *, scales: bool) -> NativeFunctions:
    def one(name: str) -> LaneFunction:
        return LaneFunction(name, (dtype,), dtype, lambda b, x: apply(b, name, dtype, [x]))

    return NativeFunctions([one(name) for name in NAMES], Machine("", lanes, scales))


@needs_wide_vectors
@pytest.mark.parametrize(("dtype", "lanes"), [(F32, 16), (F64, 8)], ids=str)
def test_results_are_those_of_two_factors(dtype: DType, lanes: int) -> None:
    kind = torch.float32 if dtype == F32 else torch.float64
    most = 180.0 if dtype == F32 else 1100.0
    x = torch.cat([torch.tensor(EDGES, dtype=kind), torch.linspace(-most, most, 40_001).to(kind)])
    scaled = functions(dtype, lanes, scales=True)
    plain = functions(dtype, lanes, scales=False)
    for name in NAMES:
        torch.testing.assert_close(
            scaled(name, x), plain(name, x), rtol=0, atol=0, equal_nan=True, msg=name
        )


@pytest.mark.parametrize(
    ("element", "lanes", "scales"),
    [("float", 8, True), ("double", 16, True), ("float", 1, True), ("float", 16, False)],
)
def test_other_registers_have_no_such_instruction(element: str, lanes: int, scales: bool) -> None:
    builder = Builder(Module(scales_vectors=scales), "f")
    assert not has_scaling(Term(builder, number(element, 1.0, lanes)))


def test_registers_of_512_bits_have_one() -> None:
    builder = Builder(Module(scales_vectors=True), "f")
    assert has_scaling(Term(builder, number("float", 1.0, 16)))
    assert has_scaling(Term(builder, number("double", 1.0, 8)))
