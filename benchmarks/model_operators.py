"""Times of the operators of ``examples.models``, forward and backward, torch's beside ours.

``python -m benchmarks.model_operators`` prints one line for each operator at the sizes of the large
model: milliseconds of the forward and of the backward, the median of CUDA events, and how often
a step has it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from examples.models.operators import EAGER, KERNELS
from examples.models.transformer import LARGE, SMALL, Shape
from examples.rope import angles

Cases = Iterator[tuple[str, int, Callable[..., Any], Callable[..., Any], tuple[torch.Tensor, ...]]]


def cases(shape: Shape, kind: torch.dtype, device: str) -> Cases:
    """A name, how often it is called in a step, both operators, and arguments."""

    def values(*sizes: int, dtype: torch.dtype = kind) -> torch.Tensor:
        return torch.randn(sizes, dtype=dtype, device=device).requires_grad_()

    rows, width, inner, words = shape.tokens, shape.width, shape.inner, shape.vocabulary
    layers, dim = shape.layers, width // shape.heads
    x, numbers = values(rows, width), torch.randint(words, (rows,), device=device)
    yield "norm", 2 * layers + 1, EAGER.norm, KERNELS.norm, (x, values(width))
    for name, count, args in (
        ("product qkv", layers, (x, values(width, 3 * width))),
        ("product out", layers, (x, values(width, width))),
        ("product up", 2 * layers, (x, values(width, inner))),
        ("product down", layers, (values(rows, inner), values(inner, width))),
        ("product head", 1, (x, values(width, words))),
    ):
        yield name, count, EAGER.product, KERNELS.product, args
    heads = values(shape.batch, shape.length, 3, shape.heads, dim)
    cos, sin = angles(shape.length, dim, device, torch.float32)
    yield "attend", layers, EAGER.attend, KERNELS.attend, (heads, cos, sin)
    gates = (values(rows, inner), values(rows, inner))
    yield "gate", layers, EAGER.gate, KERNELS.gate, gates
    yield "loss", 1, EAGER.loss, KERNELS.loss, (values(rows, words), numbers)
    table = values(words, width, dtype=torch.float32)
    yield "embed", 1, EAGER.embed, KERNELS.embed, (numbers, table)


def measure(run: Callable[[], Any], device: str, repeats: int = 20) -> float:
    """The median time of a call in ms."""
    for _ in range(3):
        run()
    times: list[float] = []
    for _ in range(repeats):
        if device == "cpu":
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1e3)
            continue
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000)  # the host runs ahead, so that launches do not count
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def both_ways(
    operator: Callable[..., Any], args: tuple[torch.Tensor, ...], device: str
) -> tuple[float, float]:
    """Times of the forward and of the backward."""
    forward = measure(lambda: operator(*args), device)
    results = operator(*args)
    outputs = results if isinstance(results, tuple) else (results,)
    grads = [torch.randn_like(output) for output in outputs]
    wanted = [arg for arg in args if arg.requires_grad]
    backward = measure(
        lambda: torch.autograd.grad(outputs, wanted, grads, retain_graph=True), device
    )
    return forward, backward


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape, kind = (LARGE, torch.bfloat16) if device == "cuda" else (SMALL, torch.float32)
    print("| operator | in a step | eager | ours | eager backward | ours backward |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, count, eager, ours, args in cases(shape, kind, device):
        (forward, backward), (our_forward, our_backward) = (
            both_ways(operator, args, device) for operator in (eager, ours)
        )
        print(
            f"| {name} | {count} | {forward:.4f} | {our_forward:.4f} | {backward:.4f} | "
            f"{our_backward:.4f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
