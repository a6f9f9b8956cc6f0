"""Which ops round, which of them are sums, and whose results they are."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.dot_compress import dot_compress_fwd
from tilesmith.passes.roundings import Rounding, find_roundings

BF16 = torch.bfloat16


def found_in(kernel: object, *args: object) -> list[Rounding]:
    return list(find_roundings(kernel.bind(args).function))  # type: ignore[attr-defined]


def summary(roundings: list[Rounding]) -> list[tuple[str, str, bool, list[str]]]:
    return [(r.name, r.dtype.name, r.is_sum, sorted(r.results)) for r in roundings]


@helion.kernel
def moved(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.where(x[tile] > 0, -x[tile], torch.maximum(x[tile], x[tile].abs()))
    return out


@helion.kernel
def chosen(x: torch.Tensor, flag: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        total = x[tile].to(torch.float32)
        if tile.begin == flag:
            result = (total + 1).to(x.dtype)
        else:
            total = total * 3
            result = (total + 2).to(x.dtype)
        out[tile] = result
    return out


@helion.kernel
def running(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile in hl.tile(x.size(0)):
        total = hl.zeros([tile], dtype=x.dtype)
        for part in hl.tile(x.size(1)):
            total = total + x[tile, part].amax(-1)
        out[tile] = total.to(torch.float32) * 2
    return out


def test_moving_and_choosing_is_exact() -> None:
    assert found_in(moved, torch.randn(50)) == []


def test_the_stored_intermediate_is_a_result_of_its_own_tensor_only() -> None:
    x, y = torch.randn(2, 40, 16, dtype=BF16), torch.randn(2, 40, 16, dtype=BF16)
    roundings = summary(found_in(dot_compress_fwd, x, y))
    assert ("xty", "bf16", False, ["xty"]) in roundings
    assert ("out", "bf16", False, ["out"]) in roundings
    assert ("acc", "f32", True, []) in roundings


def test_what_branches_yield_is_the_result() -> None:
    roundings = summary(found_in(chosen, torch.randn(50, dtype=BF16), 16))
    narrow = [r for r in roundings if r[1] == "bf16"]
    assert narrow
    assert all(results == ["out"] for _, _, _, results in narrow)


def test_what_a_loop_carries_on_is_a_sum_in_whatever_type() -> None:
    roundings = summary(found_in(running, torch.randn(20, 70, dtype=BF16)))
    assert roundings == [("total", "bf16", True, []), ("out", "f32", False, ["out"])]
