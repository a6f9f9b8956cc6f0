"""Attention with warp roles, written by hand, against cuDNN: what a compiled form has to reach.

``python -m benchmarks.warp_roles`` on a Hopper GPU: first errors against fp64 at boundary lengths,
then times in turns with cuDNN, with a cold L2, forward and backward, plain and causal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.hand_written.warp_roles.attention import attention_with_lse
from benchmarks.hand_written.warp_roles.attention_gradients import (
    attention_backward,
    repeatable_attention_backward,
)

LENGTHS = (1, 63, 64, 65, 127, 577, 1024)
SHAPES = ((4, 32, 4096, 128), (1, 32, 16384, 128), (8, 32, 4096, 64), (4, 16, 4096, 256))
ROUNDS, RUNS = 8, 4
FLUSHED_BYTES = 3 << 30
"""More than the L2, so that the host prepares the launch while the device is still flushing."""
Tensors = tuple[torch.Tensor, ...]


def inputs(shape: Sequence[int]) -> Tensors:
    """Queries, keys, values and the gradient of the output."""
    torch.manual_seed(0)
    return tuple(torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))


def expected(tensors: Tensors, *, is_causal: bool) -> list[torch.Tensor]:
    """Output and gradients in fp64."""
    q, k, v = (tensor.double().requires_grad_() for tensor in tensors[:3])
    scores = q @ k.mT / q.size(-1) ** 0.5
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], device="cuda", dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    out = torch.softmax(scores, -1) @ v
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), tensors[3].double())]


def errors(length: int, width: int, *, is_causal: bool) -> list[float]:
    """Of output, gradients and the repeatable gradients: norm of the error over that of v or dO."""
    tensors = inputs((2, 3, length, width))
    q, k, v, d_out = tensors
    out, lse = attention_with_lse(q, k, v, is_causal=is_causal)
    whole = (q, k, v, out, d_out)
    found = [out, *attention_backward(whole, lse, is_causal=is_causal)]
    wanted = expected(tensors, is_causal=is_causal)
    found += repeatable_attention_backward(whole, lse, is_causal=is_causal)
    scale = d_out.double().norm()
    return [float((f - w).norm() / scale) for f, w in zip(found, [*wanted, *wanted[1:]])]


def times(functions: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Milliseconds of single runs, all functions in turns, each after a flush of the L2."""
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    found: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(ROUNDS):
        # Whoever runs first meets a cooler device, so the order changes.
        for name in sorted(functions, reverse=bool(turn % 2)):
            for _ in range(RUNS):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                flushed.zero_()
                begin.record()
                functions[name]()
                end.record()
                end.synchronize()
                found[name].append(begin.elapsed_time(end))
    return {name: sorted(values) for name, values in found.items()}


def time_shape(shape: tuple[int, ...], *, is_causal: bool) -> None:
    """Print a line for the forward and one for each backward."""
    q, k, v, d_out = inputs(shape)
    leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
    out, lse = attention_with_lse(q, k, v, is_causal=is_causal)
    whole = (q, k, v, out, d_out)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        theirs = scaled_dot_product_attention(*leaves, is_causal=is_causal)
        measured = times({
            "a cudnn": lambda: scaled_dot_product_attention(q, k, v, is_causal=is_causal),
            "a roles": lambda: attention_with_lse(q, k, v, is_causal=is_causal),
            "b cudnn": lambda: torch.autograd.grad(theirs, leaves, d_out, retain_graph=True),
            "b roles": lambda: attention_backward(whole, lse, is_causal=is_causal),
            "b repeatable": lambda: repeatable_attention_backward(whole, lse, is_causal=is_causal),
        })  # fmt: skip
    batch, heads, length, width = shape
    flops = 4 * batch * heads * length**2 * width / (2 if is_causal else 1)
    for name, values in measured.items():
        way = flops * (2.5 if name[0] == "b" else 1)
        rival = measured[f"{name[0]} cudnn"]
        tenth = len(values) // 10
        print(
            f"{'x'.join(map(str, shape)):16} {'causal' if is_causal else 'plain':7}"
            f"{'backward' if name[0] == 'b' else 'forward':9} {name[2:]:11}"
            f"{median(values):8.3f} ms {way / median(values) / 1e9:6.0f} TFLOP/s  of cuDNN "
            f"{median(rival) / median(values):.3f} (tenths {rival[tenth] / values[tenth]:.3f})",
            flush=True,
        )


def main() -> None:
    """Print errors, then times."""
    for width in (64, 128, 256):
        for is_causal in (False, True):
            worst = max(max(errors(n, width, is_causal=is_causal)) for n in LENGTHS)
            print(f"head {width} {'causal' if is_causal else 'plain'}: worst error {worst:.1e}")
    for shape in SHAPES:
        for is_causal in (False, True):
            time_shape(shape, is_causal=is_causal)


if __name__ == "__main__":
    main()
