"""Compiles one product with llvmlite and calls it on arrays between forbidden pages."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm
import torch

from tests.backends.cpu.dots.guarded_memory import GuardedArray
from tests.backends.cpu.native_function import Machine
from tilesmith.backends.cpu.dots.product import emit_dot
from tilesmith.backends.cpu.dots.shapes import DotProblem, View, padded_shape
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.instructions import Module
from tilesmith.backends.cpu.llvm.registers import INDEX, POINTER, LType, Register, index
from tilesmith.dtypes import DType

_NAMES = ("m", "n", "k", "lhs", "l0", "l1", "rhs", "r0", "r1", "out", "o0", "scratch")
_POINTERS = ("lhs", "rhs", "out", "scratch")
_POISON = float("nan")


@dataclass(frozen=True)
class Product:
    """A product to compile.

    Attributes:
        machine: processor and lanes.
        source: type of both operands.
        dtype: type computed in.
        layouts: of the operands: ``rows`` or ``columns`` contiguous, ``near`` as rows at a
            small constant distance, ``any`` as strides only known at run time, ``apart`` as
            constant strides of which none is 1.
        shape: upper bounds of m, n and k.
        is_fixed: whether the bounds are the extents, as constants.
        accumulate: whether to add to what the output holds.
        decides_late: whether that is only known at run time.
        has_matrix_tiles: whether tile registers may be used.
        has_byte_products: whether four products of bytes may be added up at once.
        has_pair_products: whether two products of bf16 may be.
    """

    machine: Machine
    source: DType
    dtype: DType
    layouts: tuple[str, str] = ("rows", "rows")
    shape: tuple[int, int, int] = (64, 64, 64)
    is_fixed: bool = False
    accumulate: bool = False
    decides_late: bool = False
    has_matrix_tiles: bool = False
    has_byte_products: bool = False
    has_pair_products: bool = False


@dataclass(frozen=True)
class NativeProduct:
    """A compiled product; ``scratch`` is how many bytes it asked for."""

    engine: llvm.ExecutionEngine
    text: str
    scratch: int

    def __call__(self, *arguments: int) -> None:
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(_NAMES))
        kind(self.engine.get_function_address("entry"))(*arguments)


@cache
def compile_product(product: Product) -> NativeProduct:
    """Machine code of ``entry(m, n, k, lhs, strides, rhs, strides, out, stride, scratch)``."""
    module = Module()
    kinds = [(name, LType(POINTER if name in _POINTERS else INDEX)) for name in _NAMES]
    b = Builder(module, "entry", kinds, is_internal=False)
    given: dict[str, Register] = dict(zip(_NAMES, b.parameters, strict=True))
    sizes: list[int] = []

    def scratch(size: int) -> Register:
        sizes.append(size)
        return given["scratch"]

    m, n, k = product.shape
    extents = given["m"], given["n"], given["k"]
    if product.is_fixed:
        extents = index(m), index(n), index(k)
    late = b.compare("eq" if product.accumulate else "ne", given["o0"], given["o0"])
    problem = DotProblem(
        extents=extents,
        bounds=product.shape,
        dtype=product.dtype,
        lanes=product.machine.lanes,
        accumulate=late if product.decides_late else product.accumulate,
        scratch=scratch,
        has_matrix_tiles=product.has_matrix_tiles,
        has_byte_products=product.has_byte_products,
        has_pair_products=product.has_pair_products,
    )
    lhs, rhs = (
        _strides(layout, shape, (given[f"{side}0"], given[f"{side}1"]))
        for layout, shape, side in zip(product.layouts, ((m, k), (k, n)), "lr", strict=True)
    )
    emit_dot(
        b,
        View(given["lhs"], lhs, product.source),
        View(given["rhs"], rhs, product.source),
        View(given["out"], (given["o0"], index(1)), product.dtype),
        problem,
    )
    module.add(b)
    return NativeProduct(_compile(module.text(), product.machine), module.text(), sum(sizes))


def strides_of(layout: str, shape: tuple[int, int]) -> tuple[int, int]:
    """Strides that ``run_product`` gives an operand whose bounds are ``shape``."""
    rows, columns = shape
    known = {
        "rows": (columns + 3, 1),
        "columns": (1, rows + 3),
        "near": (columns + 3, 1),
        "any": (columns + 3, 1),
        "apart": (2 * columns + 3, 2),
    }
    return known[layout]


def _strides(
    layout: str, shape: tuple[int, int], given: tuple[Register, Register]
) -> tuple[Register, Register]:
    row, column = map(index, strides_of(layout, shape))
    if layout == "any":
        return given
    if layout == "rows":
        return given[0], column
    return (row, given[1]) if layout == "columns" else (row, column)


def _compile(text: str, machine: Machine) -> llvm.ExecutionEngine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    features = "" if machine.cpu else llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=machine.cpu or llvm.get_host_cpu_name(), features=features, opt=2
    )
    engine = llvm.create_mcjit_compiler(module, target)
    engine.finalize_object()
    return engine


def place(
    matrix: torch.Tensor, strides: tuple[int, int], *, at_end: bool
) -> tuple[GuardedArray, torch.Tensor]:
    """Lay a matrix out between forbidden pages, with poison in the gaps."""
    rows, columns = matrix.shape
    count = (rows - 1) * strides[0] + (columns - 1) * strides[1] + 1 if matrix.numel() else 0
    array = GuardedArray(count, matrix.dtype, at_end=at_end)
    poison = _POISON if matrix.dtype.is_floating_point else 77
    array.elements.copy_(torch.full((count,), poison).to(matrix.dtype))
    view = torch.as_strided(array.elements, (rows, columns), strides) if count else matrix
    view.copy_(matrix)
    return array, view


def run_product(
    product: Product, operands: tuple[torch.Tensor, torch.Tensor], start: torch.Tensor
) -> torch.Tensor:
    """The result of one call; ``start`` is what the output holds before."""
    native = compile_product(product)
    (m, k), n = operands[0].shape, operands[1].shape[1]
    bounds = product.shape
    shapes = (bounds[0], bounds[2]), (bounds[2], bounds[1])
    strides = [
        strides_of(layout, shape) for layout, shape in zip(product.layouts, shapes, strict=True)
    ]
    room = padded_shape(product.machine.lanes, product.dtype, bounds[0], bounds[1])
    out = GuardedArray(room[0] * room[1], start.dtype)
    out.elements.fill_(123)
    result = out.elements.view(room)[:m, :n]
    result.copy_(start)
    scratch = GuardedArray(-(-native.scratch // 64) * 64, torch.uint8)
    scratch.elements.fill_(255)
    for at_end in (True, False):
        result.copy_(start)
        lhs, rhs = (place(x, s, at_end=at_end)[0] for x, s in zip(operands, strides, strict=True))
        addresses = (lhs.address, *strides[0], rhs.address, *strides[1])
        native(m, n, k, *addresses, out.address, room[1], scratch.address)
    return result.clone()
