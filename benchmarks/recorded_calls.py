"""What calls cost the host when there is next to nothing to compute, with gradients and without.

``python -m benchmarks.recorded_calls`` prints microseconds of CPU time, the best of many rounds, of
a forward call and of a call with its way back: eager torch, an ``autograd.Function`` written by
hand around the same two kernels, our ways, and the same kernel as an operator of a compiled graph.
Then calls with tuples and lists among their arguments.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it

import tilesmith as helion
import tilesmith.language as hl
from examples.ports.adamw import adamw
from examples.swiglu import SwiGLU, swiglu, swiglu_bwd

SHAPE = (4, 16)
ROUNDS, CALLS = 20, 200
CHAIN = 20
"""Operators in one compiled graph, whose own cost they share."""

Work = Callable[[], Any]


@helion.kernel
def scaled_sum(tensors: list[torch.Tensor], factor: float) -> torch.Tensor:
    out = torch.empty_like(tensors[0])
    for tile in hl.tile(out.size()):
        out[tile] = (tensors[0][tile] + tensors[1][tile]) * factor
    return out


def microseconds(work: Work, calls: int = CALLS) -> float:
    """Of CPU time of this thread: others on the machine do not count."""
    for _ in range(calls // 4):
        work()
    times: list[float] = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        for _ in range(calls):
            work()
        times.append((time.thread_time() - start) / calls * 1e6)
    return min(times)


def registered_swiglu() -> Any:
    """The kernel joined to its backward."""
    kernel = copy.copy(swiglu)

    def save(ctx: Any, args: tuple[Any, ...], result: torch.Tensor) -> None:
        ctx.save_for_backward(*args)

    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return swiglu_bwd(grad, *ctx.saved_tensors)

    kernel.register_backward(backward, setup_context=save)
    return kernel


def forward_and_back(call: Callable[..., torch.Tensor], *args: torch.Tensor) -> Work:
    grad = torch.ones(SHAPE, device=args[0].device)
    leaves = [arg for arg in args if arg.requires_grad]

    def work() -> None:
        torch.autograd.grad(call(*args), leaves, grad)

    return work


def rows_of_gradients(device: str) -> Iterator[tuple[str, float, float]]:
    """Name, forward, forward and back."""
    gate, up = (torch.randn(SHAPE, device=device) for _ in range(2))
    recorded = gate.clone().requires_grad_(), up.clone().requires_grad_()
    yield (
        "kernels alone",
        microseconds(lambda: swiglu(gate, up)),
        microseconds(lambda: (swiglu(gate, up), swiglu_bwd(gate, gate, up))),
    )
    ways: dict[str, Callable[..., torch.Tensor]] = {
        "eager": lambda gate, up: F.silu(gate) * up,
        "autograd.Function by hand": SwiGLU.apply,
        "register_backward": registered_swiglu(),
        "derived gradient": copy.copy(swiglu),
    }
    for name, call in ways.items():
        forward = microseconds(lambda call=call: call(*recorded))
        yield name, forward, microseconds(forward_and_back(call, *recorded))
    yield "operator in a graph", *_in_graph(*recorded)


def _in_graph(gate: torch.Tensor, up: torch.Tensor) -> tuple[float, float]:
    kernel = registered_swiglu()

    def chain(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        for _ in range(CHAIN):
            gate = kernel(gate, up)
        return gate

    compiled = torch.compile(chain, fullgraph=True)
    work = forward_and_back(compiled, gate, up)
    forward = microseconds(lambda: compiled(gate, up), CALLS // CHAIN)
    return forward / CHAIN, microseconds(work, CALLS // CHAIN) / CHAIN


def rows_of_containers(device: str) -> Iterator[tuple[str, float]]:
    tensors = [torch.rand(SHAPE, device=device) for _ in range(4)]
    numbers = (3, 1e-3, (0.9, 0.95), 1e-8, 0.1)
    yield "adamw, a tuple of numbers", microseconds(lambda: adamw(*tensors, *numbers))
    yield "a list of two tensors", microseconds(lambda: scaled_sum(tensors[:2], 2.0))
    recorded = [tensors[0].clone().requires_grad_(), tensors[1]]
    yield "the same with a gradient", microseconds(lambda: scaled_sum(recorded, 2.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    torch.set_num_threads(1)
    print("| us of CPU time | forward | and back |\n|---|---:|---:|")
    for name, forward, both in rows_of_gradients(device):
        print(f"| {name} | {forward:.1f} | {both:.1f} |", flush=True)
    for name, found in rows_of_containers(device):
        print(f"| {name} | {found:.1f} | |", flush=True)


if __name__ == "__main__":
    main()
