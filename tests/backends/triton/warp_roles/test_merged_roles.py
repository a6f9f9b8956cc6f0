"""Merged groups by warps with roles, simulated with offsets of any kind."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from unittest import mock

import pytest
import torch

from examples.grouped_gemm import grouped_gemm
from examples.matmul import matmul
from tests.backends.triton.warp_roles.gluon_simulator import Simulation
from tests.backends.triton.warp_roles.warp_role_modules import emit
from tests.interpreted import run_function
from tilesmith.analysis.merged_groups.site import find_merged_groups
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.schedule.config import Config

FORM = "merged_roles"
ROWS, INNER, COLUMNS = 300, 48, 136
OFFSETS = {
    "one after the other": [0, 64, 64, 65, 130, 300],
    "gaps at the ends": [70, 130, 130, 250],
    "descending": [300, 200, 64, 0],
    "to and fro": [100, 5, 200, 200, 64, 280],
    "twice": [0, 300, 0, 300],
    "only between": [65, 70, 65, 70, 66],
    "empty ones": [64, 64, 64],
    "whole tiles": [64, 128, 192],
}
CONFIGS = {
    "one group": {"block_sizes": [64, 64, 16], "num_warps": 4, "pid_type": "flat"},
    "walked": {"block_sizes": [128, 32, 16], "num_warps": 8, "pid_type": "persistent_interleaved"},
    "columns in parts": {"block_sizes": [128, 96, 32], "num_warps": 8, "num_stages": 3},
    "three groups": {
        "block_sizes": [192, 64, 16],
        "num_warps": 12,
        "num_stages": 3,
        "pid_type": "persistent_interleaved",
    },
}


def inputs(offsets: list[int], kind: torch.dtype = torch.int32) -> tuple[torch.Tensor, ...]:
    make = torch.Generator().manual_seed(0)
    packed, b = (torch.randn(s, generator=make) / 4 for s in ((ROWS, INNER), (INNER, COLUMNS)))
    return packed.bfloat16(), b.bfloat16(), torch.tensor(offsets, dtype=kind)


def rows_of(offsets: list[int]) -> torch.Tensor:
    """Which rows some group has."""
    taken = torch.zeros(ROWS, dtype=torch.bool)
    for begin, end in pairwise(offsets):
        taken[begin : max(begin, end)] = True
    return taken


def unknown(*sizes: Any, **options: Any) -> torch.Tensor:
    """New memory, of which nothing is known."""
    return torch.full(sizes[0], float("nan"), **options)


def simulate(text: str, args: tuple[torch.Tensor, ...], seed: int = 0) -> torch.Tensor:
    with mock.patch.object(torch, "empty", unknown):
        return Simulation(text, seed=seed)["grouped_gemm"](*args)


def check(text: str, offsets: list[int], seed: int = 0, kind: torch.dtype = torch.int32) -> None:
    packed, b, places = inputs(offsets, kind)
    taken = rows_of(offsets)
    # Numbers of rows that no group has are seen by nobody.
    packed[~taken] = float("nan")
    exact = packed.double() @ b.double()
    found = simulate(text, (packed, b, places), seed).double()
    torch.testing.assert_close(found, exact, rtol=2e-2, atol=2e-2, equal_nan=True)


@pytest.mark.parametrize("options", CONFIGS.values(), ids=list(CONFIGS))
@pytest.mark.parametrize("offsets", OFFSETS.values(), ids=list(OFFSETS))
def test_rows_of_groups_are_stored_and_no_others(
    offsets: list[int], options: dict[str, Any]
) -> None:
    text = emit(grouped_gemm, inputs([0, 20, ROWS]), **options, structure=FORM)
    check(text, offsets, seed=len(offsets))


def test_offsets_of_64_bits() -> None:
    text = emit(
        grouped_gemm, inputs([0, 20, ROWS], torch.int64), **CONFIGS["walked"], structure=FORM
    )
    check(text, OFFSETS["to and fro"], kind=torch.int64)


def test_whole_tiles_leave_through_the_copy_engine_others_by_threads() -> None:
    text = emit(grouped_gemm, inputs([0, 20, ROWS]), **CONFIGS["walked"], structure=FORM)
    assert "tma.async_copy_shared_to_global" in text
    assert "gl.store(" in text
    plain = emit(matmul, inputs([0])[:2], **CONFIGS["walked"])
    assert "gl.store(" not in plain


@pytest.mark.parametrize(
    ("size", "tile"), [(4096, [128, 128, 64]), (1024, [192, 128, 64]), (512, [192, 128, 64])]
)
def test_roles_are_the_default_where_there_are_any(size: int, tile: list[int]) -> None:
    shapes = ((6752, size), (size, size))
    packed, b = (torch.empty(s, dtype=torch.bfloat16, device="meta") for s in shapes)
    args = grouped_gemm.normalize_args(packed, b, torch.zeros(17, dtype=torch.int32, device="meta"))
    config = grouped_gemm.bind(args, target="cuda:90").config_spec.default_config()
    assert (config["structure"], config.block_sizes) == (FORM, tile)
    older = grouped_gemm.bind(args, target="cuda:80").config_spec
    assert older.default_config()["structure"] == "merged_groups"
    assert FORM not in older.forms()


@pytest.mark.parametrize("rows", [0, 1])
def test_tensors_of_less_than_two_rows_have_no_roles(rows: int) -> None:
    """They were the default where the copy engine has nothing to load, and were replaced loudly."""
    packed, b = (torch.empty(s, dtype=torch.bfloat16) for s in ((rows, 512), (512, 512)))
    args = grouped_gemm.normalize_args(packed, b, torch.zeros(3, dtype=torch.int32))
    assert FORM not in grouped_gemm.bind(args, target="cuda:90").config_spec.forms()


def test_short_sums_are_as_they_were() -> None:
    """They were not timed."""
    bound = grouped_gemm.bind(tuple(inputs([0, 20, ROWS])), target="cuda:90")
    assert bound.config_spec.default_config()["structure"] == "spread_loops"


@pytest.mark.parametrize("offsets", [*OFFSETS.values(), [64]], ids=[*OFFSETS, "no group"])
def test_tiles_are_whole_or_stored_by_groups_by_definition(offsets: list[int]) -> None:
    packed, b, places = inputs(offsets)
    bound = grouped_gemm.bind(tuple(inputs([0, 20, ROWS])), target="cuda:90")
    function = bound.config_spec.forms()[FORM].function
    assert find_merged_groups(function) is None
    out = torch.full([ROWS, COLUMNS], float("nan"), dtype=torch.bfloat16)
    given: dict[str, Any] = {"packed": packed, "b": b, "offsets": places, "out": out}
    given |= {"packed_size_0": ROWS, "packed_size_1": INNER, "groups": len(places) - 1}
    given |= {"offsets_size_0": len(places), "out_size_0": ROWS, "out_size_1": COLUMNS}
    run_function(function, given, {"tile_m": 64, "tile_n": 32, "tile_k": 16}, checked=True)
    exact = packed.double() @ b.double()
    exact[~rows_of(offsets)] = float("nan")
    torch.testing.assert_close(out.double(), exact, rtol=2e-2, atol=2e-2, equal_nan=True)


@pytest.mark.parametrize("options", CONFIGS.values(), ids=list(CONFIGS))
def test_modules_compile(options: dict[str, Any]) -> None:
    bound = grouped_gemm.bind(tuple(inputs([0, 20, ROWS])), target="cuda:90")
    compile_artifact(bound.to_artifact(Config(structure=FORM, **options)))
