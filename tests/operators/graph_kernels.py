"""Kernels that graphs are tested with, and what they compute."""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl


def scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.numel()):
        out[tile] = x[tile] * factor
    return out


def row_sums(
    x: torch.Tensor, bias: torch.Tensor | None, is_doubled: bool, dtype: torch.dtype
) -> dict[str, Any]:
    m, n = x.shape
    out = torch.empty([m, n], dtype=dtype, device=x.device)
    sums = x.new_empty(m)
    for tile in hl.tile(m):
        rows = x[tile, :]
        if bias is not None:
            rows = rows + bias[None, :]
        if is_doubled:
            rows = rows * 2
        out[tile, :] = rows.to(dtype)
        sums[tile] = rows.sum(-1)
    return {"out": out, "sums": sums, "x": x, "is_doubled": is_doubled}


def only_numbers(x: torch.Tensor, factor: int) -> tuple[int, float]:
    out = torch.empty_like(x)
    for tile in hl.tile(x.numel()):
        out[tile] = x[tile] * factor
    return factor * 2, 0.5


def with_numbers(x: torch.Tensor, number: int) -> tuple[torch.Tensor, int, float, bool]:
    out = torch.empty_like(x)
    for tile in hl.tile(x.numel()):
        out[tile] = x[tile] * 2
    return out, number + 1, x.size(0) * 0.5, x.size(0) > 8


def with_its_size(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    out = torch.empty_like(x)
    for tile in hl.tile(x.numel()):
        out[tile] = x[tile] * 2
    return out, x.size(0)


def one_or_two(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    for tile in hl.tile(x.numel()):
        out[tile] = x[tile] * 2
    return (out, out + 1) if x.size(0) > 8 else (out, None)


def add_in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.numel()):
        x[tile] = x[tile] + y[tile]
    return x


def view_of_argument(x: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.numel()):
        x[tile] = x[tile] + 1
    return x.view(2, -1)


def two_launches(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.numel()):
        out[tile] = x[tile] + 1
    total = out.sum()
    result = torch.empty_like(x)
    for tile in hl.tile(x.numel()):
        result[tile] = out[tile] / total[()]
    return result


def weighted_sum(tensors: dict[str, Any], weights: tuple[float, int]) -> torch.Tensor:
    x, y = tensors["x"], tensors["y"][0]
    out = torch.empty_like(x)
    for tile in hl.tile(x.numel()):
        out[tile] = x[tile] * weights[0] + y[tile] * weights[1]
    return out


def with_epilogue(x: torch.Tensor, epilogue: Any) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = epilogue(x[tile] * 2, tile)
    return out


def scale_some(x: torch.Tensor) -> torch.Tensor:
    if x.numel() == 0:
        return x.clone()
    out = torch.empty_like(x)
    for tile in hl.tile(x.numel()):
        out[tile] = x[tile] * 2
    return out


def relu_epilogue(acc: torch.Tensor) -> torch.Tensor:
    return torch.relu(acc)


def with_function(x: torch.Tensor, epilogue: Any = lambda acc: acc) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.numel()):
        out[tile] = epilogue(x[tile] * 3)
    return out


def sum_of_all(x: torch.Tensor, *others: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.numel()):
        total = x[tile]
        for other in others:
            total = total + other[tile]
        out[tile] = total * factor
    return out


def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.softmax(x[tile, :], dim=1)
    return out


def softmax_backward(grad: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(grad)
    for tile in hl.tile(grad.size(0)):
        product = grad[tile, :] * out[tile, :]
        result[tile, :] = product - out[tile, :] * product.sum(-1, keepdim=True)
    return result


def fresh(function: Any, **settings: Any) -> Any:
    """A kernel that was never called."""
    return helion.kernel(function, **settings)


def square_into(x: torch.Tensor, out: torch.Tensor) -> None:
    for tile in hl.tile(x.numel()):
        out[tile] = x[tile] * x[tile]


def two_views(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.empty_like(x)
    for tile in hl.tile(x.numel()):
        out[tile] = x[tile] + 1
    return out.view(2, -1), out.view(-1, 2)


def shifted_by_an_integer(x: torch.Tensor, n: int) -> dict[str, Any]:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + n
    return {"out": out, "n": n}
