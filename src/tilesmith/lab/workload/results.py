"""Whether the results of two functions agree, for tuning what is no kernel of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilesmith.frontend.containers import tensors_in
from tilesmith.measure.timer import Timing, time_on_cpu, time_on_device

TOLERANCE = 1e-2


def find_difference(actual: Any, expected: Any, atol: float | None, rtol: float | None) -> str:
    """In words how the tensors of two results differ; empty when they agree."""
    found, wanted = list(tensors_in(actual)), list(tensors_in(expected))
    if len(found) != len(wanted):
        return f"{len(found)} tensors instead of {len(wanted)}"
    limits = (TOLERANCE if atol is None else atol, TOLERANCE if rtol is None else rtol)
    pairs = enumerate(zip(found, wanted))
    differences = ((n, _difference(a, b, *limits)) for n, (a, b) in pairs)
    return next((f"result {n}: {text}" for n, text in differences if text), "")


def _difference(actual: torch.Tensor, expected: torch.Tensor, atol: float, rtol: float) -> str:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        kinds = [f"{tuple(t.shape)} {t.dtype}" for t in (actual, expected)]
        return f"{kinds[0]} instead of {kinds[1]}"
    a, b = actual.double(), expected.double()
    is_bad = ~torch.isclose(a, b, rtol, atol, equal_nan=True)
    if not is_bad.any():
        return ""
    worst = (a - b).abs()[is_bad].max().item()
    return f"{int(is_bad.sum())} of {is_bad.numel()} elements differ, by up to {worst:.3g}"


def copy_arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with tensors of their own, strides kept."""
    return tuple(_copied(argument) for argument in args)


def _copied(argument: Any) -> Any:
    if not isinstance(argument, torch.Tensor):
        return argument
    like = argument.detach()
    fresh = torch.empty_strided(like.size(), like.stride(), dtype=like.dtype, device=like.device)
    return fresh.copy_(like)


def find_device(args: tuple[Any, ...]) -> str:
    """The device of the first tensor."""
    return next((str(tensor.device) for tensor in tensors_in(args)), "cpu")


def time_calls(
    works: Mapping[str, Callable[[], Any]], repeats: int, device: str
) -> dict[str, Timing]:
    """Times of callables in this process, interleaved."""
    if torch.device(device).type == "cpu":
        return time_on_cpu(works, repeats=repeats, warmup=1)
    return time_on_device(works, device=device, repeats=repeats, warmup=1)


def time_function(function: Callable[..., Any], args: tuple[Any, ...], device: str) -> float:
    """Median milliseconds of one function in this process."""
    return time_calls({"function": lambda: function(*args)}, 10, device)["function"].median_ms


def synchronize(device: str) -> None:
    """Wait for the device, so that its errors show now."""
    if torch.device(device).type != "cpu":
        torch.cuda.synchronize(device)
