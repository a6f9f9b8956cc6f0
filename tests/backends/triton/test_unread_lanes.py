"""Loads of one row for all rows of a tile, masked only where somebody could see the difference."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

CONFIG = helion.Config(block_sizes=[16, 32])


@helion.kernel(static_shapes=True, config=CONFIG)
def add_row(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile_m, tile_n in hl.tile(x.size()):
        out[tile_m, tile_n] = x[tile_m, tile_n] + row[tile_m, tile_n] * 2.0
    return out


@helion.kernel(static_shapes=True, config=CONFIG)
def sum_rows(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """Lanes past the last row would be added."""
    out = torch.zeros([x.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile(x.size()):
        hl.atomic_add(out, [tile_n], (x[tile_m, tile_n] + row[tile_m, tile_n]).sum(0))
    return out


@helion.kernel(static_shapes=True, config=CONFIG)
def gather_by_row(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """What is loaded is a position in memory."""
    out = torch.empty_like(x)
    for tile_m, tile_n in hl.tile(x.size()):
        out[tile_m, tile_n] = hl.load(x, [tile_m.index[:, None], row[tile_m, tile_n].long()])
    return out


def code_of(kernel: Any, x: torch.Tensor, row: torch.Tensor) -> str:
    return kernel.bind((x, row)).to_triton_code(CONFIG, target="cuda:90")


@pytest.mark.parametrize("shape", [(1, 1), (15, 31), (16, 32), (17, 33), (100, 70)])
def test_a_row_for_all_rows_is_loaded_once(run: Any, shape: tuple[int, int]) -> None:
    x, row = torch.randn(shape), torch.randn(shape[1])
    bound = add_row.bind((x, row.expand(shape)))
    artifact = bound.to_artifact(CONFIG, target="cuda:90")
    (line,) = [line for line in artifact.source.splitlines() if "row_tile = tl.load(" in line]
    assert "offs_m" not in line
    assert "mask_m" not in line
    given = {"x": x, "row": row.expand(shape), "out": torch.full(shape, -7.0)}
    results = run(artifact, *(given[parameter.name] for parameter in artifact.parameters))
    names = [parameter.name for parameter in artifact.parameters]
    check_against(results[names.index("out")], x.double() + 2.0 * row.double())


def test_lanes_that_a_sum_reads_stay_masked() -> None:
    x, row = torch.randn(17, 33), torch.randn(33).expand(17, 33)
    code = code_of(sum_rows, x, row)
    load = code[code.index("row_tile = tl.load(") :]
    assert "mask_m" in load[: load.index("x_tile") if "x_tile" in load else 200]


def test_a_tensor_that_has_rows_stays_masked() -> None:
    x = torch.randn(17, 33)
    code = code_of(add_row, x, torch.randn(17, 33))
    load = code[code.index("row_tile = tl.load(") :][:200]
    assert "mask_m" in load


def test_positions_stay_masked() -> None:
    x = torch.randn(17, 33)
    row = torch.arange(33, dtype=torch.int32).expand(17, 33)
    load = code_of(gather_by_row, x, row)
    assert "mask_m" in load[load.index("row_tile = tl.load(") :][:200]
