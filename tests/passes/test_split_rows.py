"""A product whose rows are reduced gives the same in two steps; other functions are left alone."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any

import pytest
import torch

from examples.attention import attention
from examples.matmul import matmul
from examples.matmul_layernorm import matmul_layernorm
from examples.matmul_layernorm import reference as reference_layernorm
from examples.matmul_row_reduction import (
    matmul_l2_normalize,
    matmul_logsumexp,
    matmul_rms_norm,
    matmul_softmax,
    reference_l2_normalize,
    reference_logsumexp,
    reference_rms_norm,
    reference_softmax,
)
from tests.lowering import emit_triton, schedule_function, split_function
from tests.native_text import run_native
from tests.passes import row_product_kernels as kernels
from tests.passes.kernel_texts import results_of
from tests.passes.padded_run import PaddedRun
from tests.specs import config_spec
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.dtypes import I32, I64
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Region
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, GroupBarrier, If, Loop
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.memory import Atomic, Load, ProgramBarrier, Store
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import TensorType
from tilesmith.ir.verifier import verify_function
from tilesmith.passes.split_rows import Form
from tilesmith.targets import parse_target


class TwoPhases(PaddedRun):
    """A run with padded lanes that knows barriers and the reshapes of keepdim."""

    def _grid_barrier(self, op: Any) -> None:
        pass

    def _block_size(self, op: Any) -> torch.Tensor:
        return torch.tensor(self._sizes[op.block])

    def _program_barrier(self, op: Any) -> None:
        pass

    def _atomic(self, op: Any) -> torch.Tensor:
        counts, place = self._values[op.tensor], int(self._values[op.indices[0]])
        before = counts[place].clone()
        counts[place] += self._values[op.value]
        return before

    def _grid(self, op: Any) -> None:
        """All programs up to where they meet, then on from there."""
        ends = [i for i, inner in enumerate(op.body.ops) if isinstance(inner, GroupBarrier)]
        programs = [(dict(self._values), dict(self._valid)) for _ in self._tiles(op)]
        for begin, end in zip([0, *ends], [*ends, len(op.body.ops)]):
            for values, valid in programs:
                self._values, self._valid = values, valid
                self._region(Region((), op.body.ops[begin:end]))

    def _group_barrier(self, op: Any) -> None:
        pass

    def _if(self, op: Any) -> None:
        self._region(op.then if self._values[op.condition] else op.otherwise)

    def _reshape(self, op: Any) -> torch.Tensor:
        return self._values[op.x].reshape(self._physical(op.result.tile.shape))


Named = dict[str, Any]
THROUGH_MEMORY = [Form.PHASES, Form.LAST]
OF_PRODUCTS = [*THROUGH_MEMORY, Form.EXCHANGE]


def padded_results_of(
    function: Function, arguments: Named, sizes: dict[str, int]
) -> dict[str, torch.Tensor]:
    return TwoPhases(sizes).run(function, arguments)


def function_of(kernel: Any, args: tuple[Any, ...]) -> Function:
    return kernel.bind(kernel.normalize_args(*args), target="cuda:90").function


def split(function: Function, form: Form = Form.PHASES) -> Function:
    found = split_function(function, form)
    assert found is not None
    verify_function(found)
    return found


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def complete(function: Function, named: Named) -> Named:
    """Arguments for every parameter; tensors that are made by host code begin as NaN."""
    found: Named = {}
    for parameter in function.parameters:
        value = parameter.value
        if value.name in named:
            found[value.name] = named[value.name]
        else:
            assert isinstance(value.type, TensorType)
            shape: tuple[int, ...] = value.type.shape  # type: ignore[assignment]
            is_count = value.type.dtype == I32
            found[value.name] = (
                torch.zeros(shape, dtype=torch.int32) if is_count else torch.full(shape, nan)
            )
    return found


def products(m: int, k: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(m, k), normal(k, n) * k**-0.5


def affine(m: int, k: int, n: int) -> Named:
    x, y = products(m, k, n)
    return {"x": x, "y": y, "weight": normal(n), "bias": normal(n + 1)[1:], "eps": 1e-5}


def scaled(m: int, k: int, n: int) -> Named:
    return {key: value for key, value in affine(m, k, n).items() if key != "bias"}


def plain(m: int, k: int, n: int) -> Named:
    x, y = products(m, k, n)
    return {"x": x, "y": y}


def guarded(m: int, k: int, n: int) -> Named:
    return {**plain(m, k, n), "eps": 1e-12}


def reference_var(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.var(x.double() @ y.double(), -1)


FAMILY: dict[str, tuple[Any, Callable[..., torch.Tensor], Callable[..., Named]]] = {
    "layernorm": (matmul_layernorm, reference_layernorm, affine),
    "rms_norm": (matmul_rms_norm, reference_rms_norm, scaled),
    "softmax": (matmul_softmax, reference_softmax, plain),
    "l2_normalize": (matmul_l2_normalize, reference_l2_normalize, guarded),
    "logsumexp": (matmul_logsumexp, reference_logsumexp, plain),
    "var": (kernels.matmul_var, reference_var, plain),
}
SHAPES = [(37, 29, 45), (1, 1, 2), (32, 32, 64), (5, 64, 33)]
BLOCKS = [
    {"tile_m": 16, "tile_k": 8, "columns": 16, "rows": 4},
    {"tile_m": 4, "tile_k": 32, "columns": 64, "rows": 16},
    {"tile_m": 1, "tile_k": 16, "columns": 32, "rows": 64},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("form", OF_PRODUCTS, ids=str)
def test_gives_what_whole_rows_give(name: str, shape: tuple[int, int, int], form: Form) -> None:
    kernel, reference, make = FAMILY[name]
    named = make(*shape)
    function = function_of(kernel, tuple(named.values()))
    in_phases = split(function, form)
    exact = reference(*named.values())
    for blocks in BLOCKS:
        whole = results_of(function, complete(function, named), blocks)["out"]
        found = results_of(in_phases, complete(in_phases, named), blocks)["out"]
        # The whole sums of a product, up to 64 fp32 terms, then a row of up to 64 of them.
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found, whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("form", OF_PRODUCTS, ids=str)
def test_lanes_beyond_the_end_are_harmless(name: str, form: Form) -> None:
    kernel, reference, make = FAMILY[name]
    named = make(37, 29, 45)
    in_phases = split(function_of(kernel, tuple(named.values())), form)
    for blocks in BLOCKS:
        found = padded_results_of(in_phases, complete(in_phases, named), blocks)["out"]
        exact = reference(*named.values())
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)


def test_the_phases_and_their_names() -> None:
    function = function_of(matmul_layernorm, tuple(affine(37, 29, 45).values()))
    in_phases = split(function)
    first, barrier, second = in_phases.body.ops[-3:]
    assert isinstance(first, Grid)
    assert isinstance(barrier, GridBarrier)
    assert isinstance(second, Grid)
    assert (first.blocks, first.slot) == (("tile_m", "columns"), 0)
    assert (second.blocks, second.slot) == (("rows",), 1)
    assert in_phases.blocks[:2] == function.blocks
    new = [(block.name, block.slot, block.extent) for block in in_phases.blocks[2:]]
    assert new == [("columns", 2, 45), ("rows", 3, 37)]
    assert [op.slot for op in walk_function(in_phases) if isinstance(op, Loop)] == [0]
    accesses = [op for op in walk_function(in_phases) if isinstance(op, (Load, Store))]
    shown = [(op.name, op.tensor.name) for op in sorted(accesses, key=lambda op: op.slot)]
    assert shown == [
        ("load", "x"), ("load", "y"), ("store", "row_scratch"),
        ("load", "row_scratch"), ("load", "weight"), ("load", "bias"), ("store", "out"),
    ]  # fmt: skip


def test_the_last_program_of_a_panel_reduces_it() -> None:
    function = function_of(matmul_layernorm, tuple(affine(37, 29, 45).values()))
    last = split(function, Form.LAST)
    (grid,) = [op for op in last.body.ops if isinstance(op, Grid)]
    assert grid.blocks == ("tile_m", "columns")
    kinds = (Loop, Store, ProgramBarrier, Atomic, If)
    steps = [op for op in grid.body.ops if isinstance(op, kinds)]
    # Stores of all threads come before the count, and the count before all loads.
    assert [type(op) for op in steps] == [Loop, Store, ProgramBarrier, Atomic, If]
    branch = steps[-1]
    assert isinstance(branch, If)
    inside = [type(op) for op in branch.then.ops if isinstance(op, kinds)]
    assert inside == [ProgramBarrier, Loop]
    counts = last.parameters[6]
    assert counts.source == "torch.zeros((37,), dtype=torch.int32, device=x.device)"


def test_scratch_is_made_at_launch_and_follows_the_tensors() -> None:
    in_phases = split(function_of(matmul_layernorm, tuple(affine(37, 29, 45).values())))
    names = [parameter.value.name for parameter in in_phases.parameters]
    assert names == ["x", "y", "weight", "bias", "out", "row_scratch", "eps"]
    scratch = in_phases.parameters[5]
    assert scratch.source == "torch.empty((37, 45), dtype=torch.float32, device=x.device)"
    assert str(scratch.value.type) == "tensor<f32[37, 45], strides=[45, 1], alias=-1>"


def test_large_scratch_needs_wide_offsets() -> None:
    shapes = ((1 << 20, 64), (64, 4096))
    args = tuple(torch.empty(shape, device="meta") for shape in shapes)
    scratch = split(function_of(matmul_logsumexp, args)).parameters[-1].value.tensor
    assert scratch.wide
    assert scratch.shape == (1 << 20, 4096)


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("form", OF_PRODUCTS, ids=str)
def test_values_around_the_product_go_where_they_are_needed(
    blocks: dict[str, int], form: Form
) -> None:
    x, y = products(37, 29, 45)
    named = {"x": x, "y": y.T.contiguous(), "bias": normal(45), "factor": normal(45) + 2}
    named["rows"] = normal(37)
    function = function_of(kernels.surrounded, tuple(named.values()))
    in_phases = split(function, form)
    # Each round of the loop halves what is there, so the tiles of the contracted axis matter.
    acc = named["bias"].double().expand(37, 45)
    for start in range(0, 29, blocks["tile_k"]):
        stop = start + blocks["tile_k"]
        scaled_part = y[start:stop].double() * named["factor"]
        acc = acc * 0.5 + x[:, start:stop].double() @ scaled_part
    acc = acc * named["rows"][:, None]
    exact = acc - acc.amax(-1, keepdim=True)
    sizes = dict(zip((block.name for block in in_phases.blocks), blocks.values()))
    for run in (results_of, padded_results_of):
        found = run(in_phases, complete(in_phases, named), sizes)["out"]
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("form", THROUGH_MEMORY, ids=str)
def test_columns_keep_their_numbers(blocks: dict[str, int], form: Form) -> None:
    x, y = products(37, 29, 45)
    named = {"x": x, "y": y, "limit": 21, "best": torch.full((37,), -1)}
    in_phases = split(function_of(kernels.some_columns, (x, y, 21)), form)
    product = (x.double() @ y.double())[:, :21]
    for run in (results_of, padded_results_of):
        found = run(in_phases, complete(in_phases, named), blocks)
        exact = torch.logsumexp(product, -1)
        torch.testing.assert_close(found["out"].double(), exact, rtol=1e-5, atol=1e-5)
        assert torch.equal(found["best"], product.argmax(-1))


def test_a_block_of_rows_has_a_name_of_its_own() -> None:
    args = (normal(9, 5), normal(7, 5), normal(7), normal(7), normal(9))
    in_phases = split(function_of(kernels.surrounded, args))
    assert [block.name for block in in_phases.blocks][2:] == ["columns", "rows_"]


@pytest.mark.parametrize("form", THROUGH_MEMORY, ids=str)
def test_an_operand_may_be_overwritten_with_the_rows(form: Form) -> None:
    x, y = products(37, 45, 45)
    in_phases = split(function_of(kernels.in_place, (x, y)), form)
    found = results_of(in_phases, complete(in_phases, {"x": x, "y": y}), BLOCKS[0])["x"]
    product = x.double() @ y.double()
    exact = product - product.mean(-1, keepdim=True)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)


def test_rows_and_columns_are_counted_as_tiles_and_slices_were() -> None:
    x, y = products(37, 29, 45)
    in_phases = split(function_of(kernels.wide_indices, (x, y)))
    assert not any(isinstance(op, Cast) for op in walk_function(in_phases))
    grids = [op for op in in_phases.body.ops if isinstance(op, Grid)]
    assert [[arg.tile.dtype for arg in grid.body.args] for grid in grids] == [[I64, I32], [I64]]
    found = results_of(in_phases, complete(in_phases, {"x": x, "y": y}), BLOCKS[0])["out"]
    exact = (x.double() @ y.double()).sum(-1)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("form", OF_PRODUCTS, ids=str)
def test_a_contracted_slice_of_another_length_is_no_column(form: Form) -> None:
    x, y = normal(3, 37, 29), normal(3, 29, 45)
    in_phases = split(function_of(kernels.summed_products, (x, y)), form)
    found = results_of(in_phases, complete(in_phases, {"x": x, "y": y}), BLOCKS[0])["out"]
    exact = (x.double() @ y.double()).sum((0, 2))
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("form", THROUGH_MEMORY, ids=str)
def test_compiles_for_a_gpu(form: Form) -> None:
    args = [
        torch.empty(shape, dtype=torch.bfloat16, device="meta")
        for shape in ((512, 256), (256, 640), (640,), (640,))
    ]
    in_phases = split(function_of(matmul_layernorm, (*args, 1e-5)), form)
    spec = config_spec(in_phases, parse_target("cuda:90"))
    artifact = emit_triton(*schedule_function(in_phases, spec, spec.default_config()))
    scratch = next(p for p in artifact.parameters if p.name == "row_scratch")
    assert scratch.is_made_at_launch
    assert scratch.made_form == ("float32", 512 * 640)
    assert compile_artifact(artifact).binary


@pytest.mark.parametrize("form", THROUGH_MEMORY, ids=str)
def test_runs_as_native_code(form: Form) -> None:
    named = affine(37, 29, 45)
    in_phases = split(function_of(matmul_layernorm, tuple(named.values())), form)
    out = torch.full((37, 45), float("nan"))
    arguments = {**named, "out": out}
    run_native(in_phases, arguments, BLOCKS[0])
    exact = reference_layernorm(*named.values())
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-5)


XY = (normal(37, 29), normal(29, 45))
REFUSED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "product": (matmul, XY),
    "attention": (attention, (normal(2, 3, 64, 32),) * 3),
    "square_contraction": (kernels.summed_products, (normal(3, 37, 45), normal(3, 45, 45))),
    "batched": (kernels.batched, (normal(3, 37, 29), normal(3, 29, 45))),
    "one_column": (kernels.matmul_var, (normal(37, 29), normal(29, 1))),
    "overwrites_what_it_read": (kernels.overwrites_what_it_read, (*XY, normal(37))),
    **{
        kernel.name: (kernel, XY)
        for kernel in (
            kernels.dynamic_sizes,
            kernels.no_reduction,
            kernels.two_products,
            kernels.atomic_sum,
            kernels.stored_in_the_loop,
            kernels.with_barrier,
            kernels.carries_more,
            kernels.mixes_rows,
            kernels.one_result_per_tile,
            kernels.knows_its_tile,
            kernels.random_rows,
            kernels.printing,
            kernels.columns_reduced_on_the_way,
        )
    },
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("form", Form, ids=str)
def test_other_functions_are_left_alone(name: str, form: Form) -> None:
    kernel, args = REFUSED[name]
    assert split_function(function_of(kernel, args), form) is None
