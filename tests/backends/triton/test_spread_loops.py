"""Loops over tiles of groups that become programs: interpreted, by Triton too, and for GPUs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.grouped_gemm import grouped_gemm
from examples.moe_matmul_ogs import moe_matmul_ogs, route
from tests.interpreted import run_function
from tilesmith.artifacts import Artifact
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.schedule.config import Config

FORM = "spread_loops"
GROUPS = [[5], [16, 0, 1, 17], [33, 15, 64, 0, 2]]


def bind(kernel: Any, *args: Any, target: str = "cuda:90") -> BoundKernel:
    return kernel.bind(kernel.normalize_args(*args), target=target)


def inputs(lengths: list[int], k: int, n: int, dtype: torch.dtype = torch.float16) -> list[Any]:
    make = torch.Generator().manual_seed(0)
    packed, b = (torch.randn(s, generator=make) / 4 for s in ((sum(lengths), k), (k, n)))
    offsets = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    return [packed.to(dtype), b.to(dtype), offsets]


def found_by(run: Any, artifact: Artifact, args: list[Any]) -> torch.Tensor:
    packed, b, offsets = args
    out = torch.full([len(packed), b.size(1)], float("nan"), dtype=packed.dtype)
    given = {"packed": packed, "b": b, "offsets": offsets, "out": out}
    given |= {"packed_size_0": len(packed), "groups": len(offsets) - 1, "out_stride_0": b.size(1)}
    given |= {"packed_size_1": packed.size(1), "out_size_0": len(packed)}
    names = [parameter.name for parameter in artifact.parameters]
    return dict(zip(names, run(artifact, *(given[name] for name in names))))["out"]


@pytest.mark.parametrize(
    ("shares", "indexing"),
    [(1, "tensor_descriptor"), (8, "tensor_descriptor"), (64, "pointer")],
)
def test_all_tiles_of_all_groups_are_computed(run: Any, shares: int, indexing: str) -> None:
    slots = ["pointer", "pointer", indexing, indexing, "pointer"]
    config = Config(structure=FORM, block_sizes=[16, 16, 16, shares], indexing=slots)
    for lengths in GROUPS:
        args = inputs(lengths, 48, 40)
        artifact = bind(grouped_gemm, *args).to_artifact(config)
        assert ("packed_desc.load" in artifact.source) == (indexing == "tensor_descriptor")
        exact = args[0].double() @ args[1].double()
        found = found_by(run, artifact, args).double()
        torch.testing.assert_close(found, exact, rtol=2e-3, atol=2e-3)


def test_rows_of_the_next_group_are_loaded_and_not_seen(run: Any) -> None:
    args = inputs([5, 16, 3], 48, 40)
    args[0][5:21] = float("nan")
    slots = ["pointer", "pointer", "tensor_descriptor", "tensor_descriptor", "pointer"]
    config = Config(structure=FORM, block_sizes=[16, 16, 16, 8], indexing=slots)
    artifact = bind(grouped_gemm, *args).to_artifact(config)
    assert "packed_desc.load" in artifact.source
    exact = args[0].double() @ args[1].double()
    found = found_by(run, artifact, args).double()
    torch.testing.assert_close(found, exact, rtol=2e-3, atol=2e-3, equal_nan=True)


@pytest.mark.parametrize("lengths", GROUPS, ids=str)
def test_programs_share_groups_by_definition(lengths: list[int]) -> None:
    packed, b, offsets = inputs(lengths, 20, 24, torch.float32)
    function = bind(grouped_gemm, packed, b, offsets).config_spec.forms()[FORM].function
    out = torch.full([len(packed), 24], float("nan"))
    tensors = {"packed": packed, "b": b, "offsets": offsets, "out": out}
    sizes = {"packed_size_0": len(packed), "packed_size_1": 20, "out_size_0": len(packed)}
    sizes |= {"offsets_size_0": len(offsets), "groups": len(offsets) - 1}
    sizes |= {"out_size_1": 24, "out_stride_0": 24}
    blocks = {"tile_m": 16, "tile_n": 16, "tile_k": 16, "shares": 16}
    run_function(function, {**tensors, **sizes}, blocks, races=True)
    exact = packed.double() @ b.double()
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-6)


def test_experts_share_out_columns_only() -> None:
    """Where tokens go is looked up: nobody knows that tiles of them are apart."""
    make = torch.Generator().manual_seed(0)
    x, weights = (torch.randn(s, generator=make) for s in ((37, 20), (4, 20, 24)))
    counts, starts, order = route(torch.randint(3, [37], generator=make), 4)
    args = (x, weights, counts, starts, order, int(counts.max()))
    bound = bind(moe_matmul_ogs, *args)
    function = bound.config_spec.forms()[FORM].function
    (grid,) = [op for op in function.body.ops if isinstance(op, Grid)]
    assert grid.blocks == ("", "tile_n")
    assert bound.config_spec.default_config()["structure"] == FORM


@tilesmith.kernel
def overwriting(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), x.size(1)], dtype=torch.float32, device=x.device)
    for i in hl.grid(x.size(0)):
        for tile in hl.tile(x.size(1)):
            out[i, :] = torch.mm(x[i, tile, :], y[:, :]).sum(0)
    return out


@tilesmith.kernel
def adding(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(1), x.size(1)], dtype=torch.float32, device=x.device)
    for i in hl.grid(x.size(0)):
        for tile in hl.tile(x.size(1)):
            hl.atomic_add(out, [tile, slice(None)], torch.mm(x[i, tile, :], y[:, :]).float())
    return out


@tilesmith.kernel
def following(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Each tile needs what the one before stored."""
    out = torch.zeros([x.size(0), x.size(1), x.size(2)], dtype=x.dtype, device=x.device)
    for i in hl.grid(x.size(0)):
        for tile in hl.tile(x.size(1)):
            out[i, tile, :] = torch.mm(x[i, tile, :], y[:, :]).to(x.dtype) + out[i, 0, :]
    return out


@tilesmith.kernel
def storing_before(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(0), x.size(1), x.size(2)], dtype=x.dtype, device=x.device)
    count = torch.zeros([x.size(0)], dtype=x.dtype, device=x.device)
    for i in hl.grid(x.size(0)):
        count[i] = 1
        for tile in hl.tile(x.size(1)):
            out[i, tile, :] = torch.mm(x[i, tile, :], y[:, :]).to(x.dtype)
    return out


@pytest.mark.parametrize("kernel", [overwriting, adding, following, storing_before], ids=str)
def test_tiles_that_depend_on_each_other_stay_in_order(kernel: Any) -> None:
    x, y = (torch.empty(s, dtype=torch.float16, device="meta") for s in ((4, 64, 64), (64, 64)))
    assert FORM not in bind(kernel, x, y).config_spec.forms()


def test_a_loop_of_known_length_is_an_axis_of_the_grid() -> None:
    """As a batch of products would be written."""

    x, y = (torch.empty(s, dtype=torch.float16, device="meta") for s in ((4, 64, 64), (64, 64)))
    function = bind(rowwise, x, y).config_spec.forms()[FORM].function
    (grid,) = [op for op in function.body.ops if isinstance(op, Grid)]
    assert grid.blocks == ("", "tile")


@tilesmith.kernel
def rowwise(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(0), x.size(1), x.size(2)], dtype=x.dtype, device=x.device)
    for i in hl.grid(x.size(0)):
        for tile in hl.tile(x.size(1)):
            out[i, tile, :] = torch.mm(x[i, tile, :], y[:, :]).to(x.dtype)
    return out
