"""Running sums of loops by lanes: one reduction after the loop, with the same result."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def sums_of_exponentials(x: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """Lanes that are no data would be one, and there is something to begin with."""
    out = torch.empty_like(start)
    for rows in hl.tile(x.size(0)):
        total = start[rows]
        for columns in hl.tile(x.size(1)):
            total = total + torch.exp(x[rows, columns]).sum(-1)
        out[rows] = total
    return out


@helion.kernel
def sums_of_both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two totals of one loop; the second is looked at in every turn, and stays."""
    plain, seen = torch.empty_like(x[:, 0]), torch.empty_like(x[:, 0])
    for rows in hl.tile(x.size(0)):
        total, other = hl.zeros([rows]), hl.zeros([rows])
        for columns in hl.tile(x.size(1)):
            total = x[rows, columns].sum(-1) + total
            other = other + (x[rows, columns] - other[:, None]).sum(-1)
        plain[rows] = total
        seen[rows] = other
    return plain, seen


@helion.kernel
def sums_of_columns(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x[0])
    for columns in hl.tile(x.size(1)):
        total = hl.zeros([columns])
        for rows in hl.tile(x.size(0)):
            total = total + x[rows, columns].sum(0)
        out[columns] = total
    return out


def artifact_of(kernel: Any, *given: torch.Tensor, sizes: list[int], warps: int = 4) -> Any:
    config = helion.Config(block_sizes=sizes, num_warps=warps)
    return kernel.bind(given).to_artifact(config, target="cuda:90")


def called(run: Any, artifact: Any, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors after a launch, by name; sizes and strides are those of ``x``."""
    x = values["x"]
    sizes = {f"x_size_{axis}": x.size(axis) for axis in range(2)}
    sizes |= {f"x_stride_{axis}": x.stride(axis) for axis in range(2)}
    names = [parameter.name for parameter in artifact.parameters]
    return dict(zip(names, run(artifact, *({**sizes, **values}[name] for name in names))))


def in_loop(source: str) -> str:
    """What is done in every turn: lines below the first loop that are as deep as its body."""
    before, _, after = source.partition("    for offset")
    assert before != source
    lines = after.splitlines()[1:]
    return "\n".join(line for line in lines if line.startswith("        "))


@pytest.mark.parametrize("length", [64, 100])
def test_lanes_are_added_up_once_after_the_loop(run: Any, length: int) -> None:
    x, start = torch.randn(5, length), torch.randn(5)
    artifact = artifact_of(sums_of_exponentials, x, start, sizes=[2, 32])
    assert "tl.sum(" not in in_loop(artifact.source)
    assert artifact.source.count("tl.sum(") == 1
    found = called(run, artifact, {"x": x, "start": start, "out": torch.full([5], -7.0)})
    exact = start.double() + x.double().exp().sum(-1)
    check_against(found["out"], exact, reduction_length=length)


def test_a_total_that_is_looked_at_in_every_turn_stays(run: Any) -> None:
    x = torch.randn(3, 70)
    artifact = artifact_of(sums_of_both, x, sizes=[1, 16])
    assert in_loop(artifact.source).count("tl.sum(") == 1
    zeros = {"plain": torch.full([3], -7.0), "seen": torch.full([3], -7.0)}
    found = called(run, artifact, {"x": x, **zeros})
    check_against(found["plain"], x.double().sum(-1), reduction_length=70)
    seen = torch.zeros(3, dtype=torch.float64)
    for part in x.double().split(16, 1):
        seen = seen + (part - seen[:, None]).sum(-1)
    # Each turn takes its total times the columns of a part away: errors grow by as much.
    assert torch.allclose(found["seen"].double(), seen, rtol=1e-3)


def test_columns_are_kept_where_a_thread_has_few_of_them(run: Any) -> None:
    x = torch.randn(50, 40)
    for rows, warps, in_turns in ((32, 4, 0), (64, 1, 1)):
        artifact = artifact_of(sums_of_columns, x, sizes=[64, rows], warps=warps)
        assert in_loop(artifact.source).count("tl.sum(") == in_turns
        found = called(run, artifact, {"x": x, "out": torch.full([40], -7.0)})
        check_against(found["out"], x.double().sum(0), reduction_length=50)
