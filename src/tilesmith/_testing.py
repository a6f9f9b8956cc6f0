"""What example scripts use to check themselves: a device, a half type, ``run_example``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tilesmith.measure.timer import Timing, time_on_cpu, time_on_device

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
HALF_DTYPE = torch.float16
LONG_INT_TYPE = torch.int64

Function = Callable[..., Any]
_REPEATS = 10


@dataclass(frozen=True)
class _Options:
    rtol: float | None = 1e-2
    atol: float | None = 1e-1
    bwd: bool = False
    trace_path: str | None = None


def run_example(
    kernel_fn: Function | Mapping[str, Function],
    baseline_fn: Function | Mapping[str, Function],
    args: Sequence[Any],
    kernel_name: str = "helion",
    baseline_name: str = "torch",
    **options: Any,
) -> None:
    """Check kernels against the first baseline, then print how long each function takes.

    Several kernels or baselines come as a dict of names and functions. Options are ``rtol`` and
    ``atol``; ``bwd=True`` to compare gradients of the inputs too; ``trace_path``, where a profile
    of all functions goes.
    """
    chosen = _Options(**options)
    kernels = kernel_fn if isinstance(kernel_fn, Mapping) else {kernel_name: kernel_fn}
    baselines = baseline_fn if isinstance(baseline_fn, Mapping) else {baseline_name: baseline_fn}
    functions = {**kernels, **baselines}
    reference, *_ = baselines.values()
    expected = _outputs(reference, args, bwd=chosen.bwd)
    for name, function in functions.items():
        if function is not reference:
            found = _outputs(function, args, bwd=chosen.bwd)
            assert_close(found, expected, name, rtol=chosen.rtol, atol=chosen.atol)
    _print_times(_measure(functions, args, bwd=chosen.bwd), next(iter(baselines)))
    if chosen.trace_path is not None:
        with torch.profiler.profile() as profile:
            for function in functions.values():
                _outputs(function, args, bwd=chosen.bwd)
        profile.export_chrome_trace(chosen.trace_path)


def assert_close(
    actual: Sequence[Any],
    expected: Sequence[Any],
    name: str,
    *,
    rtol: float | None,
    atol: float | None,
) -> None:
    """Raise, naming the function, unless all tensors agree in value (half types may differ)."""
    if len(actual) != len(expected):
        raise AssertionError(f"{name} gives {len(actual)} results, expected {len(expected)}")
    for number, (mine, theirs) in enumerate(zip(actual, expected)):
        place = f"{name}, result {number}" if len(actual) > 1 else name
        if not isinstance(theirs, torch.Tensor):
            if mine != theirs:
                raise AssertionError(f"{place}: {mine!r} is not {theirs!r}")
            continue
        torch.testing.assert_close(
            mine.to(torch.float32),
            theirs.to(torch.float32),
            rtol=rtol,
            atol=atol,
            msg=lambda text, place=place: f"{place}: {text}",
        )


def _outputs(function: Function, args: Sequence[Any], *, bwd: bool) -> tuple[Any, ...]:
    """Results of a call on copies of the arguments; with ``bwd`` gradients of the inputs too."""
    given = [_fresh(arg) for arg in args]
    result = function(*given)
    results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if not bwd:
        return results
    leaves = [arg for arg in given if isinstance(arg, torch.Tensor) and arg.requires_grad]
    made = [item for item in results if isinstance(item, torch.Tensor) and item.requires_grad]
    torch.autograd.backward(made, [torch.ones_like(item) for item in made])
    return (*results, *(leaf.grad for leaf in leaves))


def _fresh(arg: Any) -> Any:
    if not isinstance(arg, torch.Tensor):
        return arg
    return arg.detach().clone().requires_grad_(arg.requires_grad)


def _measure(
    functions: Mapping[str, Function], args: Sequence[Any], *, bwd: bool
) -> dict[str, Timing]:
    def work(function: Function) -> Callable[[], Any]:
        return (lambda: _outputs(function, args, bwd=True)) if bwd else (lambda: function(*args))

    works = {name: work(function) for name, function in functions.items()}
    if DEVICE.type == "cpu":
        return time_on_cpu(works, repeats=_REPEATS)
    return time_on_device(works, repeats=_REPEATS)


def _print_times(times: Mapping[str, Timing], baseline: str) -> None:
    whole = times[baseline].median_ms
    width = max(len("implementation"), *map(len, times))
    lines = [f"{'implementation':<{width}}  {'time (ms)':>10}  speedup"]
    for name, timing in times.items():
        speedup = f"{whole / timing.median_ms:.2f}x" if name != baseline else "1.00x (reference)"
        lines.append(f"{name:<{width}}  {timing.median_ms:>10.4f}  {speedup}")
    sys.stdout.write("\n".join(lines) + "\n")
