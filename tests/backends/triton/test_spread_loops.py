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
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.schedule.config import Config

FORM = "spread_loops"
GROUPS = [[5], [0, 0], [16, 0, 1, 17], [33, 15, 64, 0, 2]]
SHARES = [1, 8, 64]
"""Of 64, that a program has."""


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


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("lengths", GROUPS, ids=str)
@pytest.mark.parametrize("indexing", ["pointer", "tensor_descriptor"])
def test_all_tiles_of_all_groups_are_computed(
    run: Any, lengths: list[int], shares: int, indexing: str
) -> None:
    args = inputs(lengths, 48, 40)
    slots = ["pointer", "pointer", indexing, indexing, "pointer"]
    config = Config(structure=FORM, block_sizes=[16, 16, 16, shares], indexing=slots)
    artifact = bind(grouped_gemm, *args).to_artifact(config)
    assert ("packed_desc.load" in artifact.source) == (indexing == "tensor_descriptor")
    if not len(args[0]):
        return  # an empty tensor has no descriptor: launches take the form without
    exact = args[0].double() @ args[1].double()
    torch.testing.assert_close(found_by(run, artifact, args).double(), exact, rtol=2e-3, atol=2e-3)


def test_rows_of_the_next_group_are_loaded_and_not_seen(run: Any) -> None:
    args = inputs([5, 16, 3], 32, 16)
    args[0][5:21] = float("nan")
    slots = ["pointer", "pointer", "tensor_descriptor", "tensor_descriptor", "pointer"]
    config = Config(structure=FORM, block_sizes=[16, 16, 16, 8], indexing=slots)
    artifact = bind(grouped_gemm, *args).to_artifact(config)
    assert "packed_desc.load" in artifact.source
    found = found_by(run, artifact, args)
    exact = args[0].double() @ args[1].double()
    torch.testing.assert_close(
        found.double(), exact, rtol=2e-3, atol=2e-3, equal_nan=True
    )


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
