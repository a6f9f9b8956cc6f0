"""Gradients of attention, compiled by us with the default config, against torch's best.

``python -m benchmarks.attention_backward [errors | times] [plain | causal] [widths]`` on a GPU:
errors against fp64 at boundary lengths, then a line for each shape with the SDPA backend that won.
Times are those of all kernels of a backward together, in turns with a cold L2 (median, and the
middle half).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import Any

import torch
from torch.nn.attention import sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.attention_forward import BACKENDS, SHAPES, times
from benchmarks.product_cases import DEVICE
from examples.attention import attention_fwd
from examples.attention_backward import attention_backward, key_value_gradients, query_gradients
from examples.causal_attention import causal_fwd

LENGTHS = (1, 63, 64, 65, 127, 577, 1021)
WIDTHS = (64, 128, 256)
CHECKED_HEADS = 2
REPEATS = 50
Tensors = list[torch.Tensor]


def inputs(shape: tuple[int, ...], *, is_causal: bool) -> Tensors:
    """The gradient of the output, queries, keys, values, the output, and the log-sum-exp."""
    torch.manual_seed(0)
    grads, q, k, v = (torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) for _ in range(4))
    return [grads, q, k, v, *(causal_fwd if is_causal else attention_fwd)(q, k, v)]


def expected(tensors: Tensors, *, is_causal: bool) -> Tensors:
    """Gradients of the first heads, in fp64."""
    heads = [tensor[:CHECKED_HEADS].double() for tensor in tensors[:4]]
    grads, q, k, v = heads[0], *(tensor.requires_grad_() for tensor in heads[1:])
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], device=DEVICE, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return list(torch.autograd.grad(torch.softmax(scores, -1) @ v, (q, k, v), grads))


def error(tensors: Tensors, *, is_causal: bool) -> float:
    """Of our gradients, as ``error_of``."""
    return error_of(attention_backward(*tensors, is_causal=is_causal), tensors, is_causal=is_causal)


def error_of(results: Sequence[torch.Tensor], tensors: Tensors, *, is_causal: bool) -> float:
    """Of the worst gradient: the norm of what is wrong, over that of what is right.

    Gradients of a single key are nothing but rounding; they are measured by the output's gradient.
    """
    wanted = expected(tensors, is_causal=is_causal)
    found = [tensor[:CHECKED_HEADS] for tensor in results]
    least = tensors[0][:CHECKED_HEADS].double().norm() / 100
    return max(float((f - w).norm() / max(w.norm(), least)) for f, w in zip(found, wanted))


def rivals(shape: tuple[int, ...], tensors: Tensors, *, is_causal: bool) -> dict[str, Any]:
    """The backward of torch's own attention, by each backend that takes these tensors."""
    grads, *leaves = (tensor.view(shape).detach() for tensor in tensors[:4])
    q, k, v = (leaf.requires_grad_() for leaf in leaves)

    def run(out: torch.Tensor) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(out, (q, k, v), grads, retain_graph=True)

    found: dict[str, Callable[[], Any]] = {}
    for backend in BACKENDS:
        try:
            with sdpa_kernel(backend):
                call = run(scaled_dot_product_attention(q, k, v, is_causal=is_causal))
                call()
        except RuntimeError:
            continue
        found[backend.name.lower().removesuffix("_attention")] = call
    return found


def row(shape: tuple[int, ...], *, is_causal: bool) -> str:
    """One line of the table."""
    batch, heads, length, width = shape
    tensors = inputs((batch * heads, length, width), is_causal=is_causal)
    found = error(tensors, is_causal=is_causal)
    calls = rivals(shape, tensors, is_causal=is_causal)
    samples = times({"ours": lambda: attention_backward(*tensors, is_causal=is_causal), **calls})
    best = min(calls, key=lambda name: median(samples[name]))
    ours, theirs = median(samples["ours"]), median(samples[best])
    low, _, high = quantiles(samples["ours"], n=4)
    flops = 10 * batch * heads * length**2 * width / (2 if is_causal else 1)
    return (
        f"| {'x'.join(map(str, shape))} | {'causal' if is_causal else 'plain'} "
        f"| {ours:.3f} ({low:.3f} to {high:.3f}) | {theirs:.3f} {best} | {theirs / ours:.3f} "
        f"| {flops / ours / 1e9:.0f} | {found:.1e} |"
    )


def count_changes(width: int, *, is_causal: bool) -> int:
    """Of many repeats, those whose bits differ from the first one's."""
    tensors = inputs((24, 1021, width), is_causal=is_causal)
    first = attention_backward(*tensors, is_causal=is_causal)
    others = (attention_backward(*tensors, is_causal=is_causal) for _ in range(REPEATS))
    return sum(not all(map(torch.equal, first, other)) for other in others)


def forms(width: int, *, is_causal: bool) -> str:
    """The structures that defaults have at a common length."""
    tile, line = torch.empty(8, 4096, width, device="cuda").bfloat16(), torch.empty(8, 4096).cuda()
    args = (tile, tile, tile, tile, line, line, is_causal)
    kernels = (query_gradients, key_value_gradients)
    configs = [kernel.bind(args).default_config() for kernel in kernels]
    return ", ".join(str(config.get("structure") or "-") for config in configs)


def print_errors(widths: list[int], ways: list[bool]) -> None:
    """Errors at boundary lengths, and whether results are the same bits each time."""
    for width in widths:
        for is_causal in ways:
            cases = [inputs((3, length, width), is_causal=is_causal) for length in LENGTHS]
            worst = max(error(case, is_causal=is_causal) for case in cases)
            name = f"head {width} {'causal' if is_causal else 'plain'}"
            changed = count_changes(width, is_causal=is_causal)
            print(
                f"{name}: {forms(width, is_causal=is_causal)}; worst error {worst:.1e}; "
                f"{changed} of {REPEATS} repeats differ",
                flush=True,
            )


def print_times(widths: list[int], ways: list[bool]) -> None:
    """The table of times."""
    print("| shape | | ours ms (middle half) | torch's best | ratio | TFLOP/s | error |")
    print("|---|---|---|---|---:|---:|---:|")
    for shape in SHAPES:
        for is_causal in ways if shape[-1] in widths else ():
            print(row(shape, is_causal=is_causal), flush=True)


def main() -> None:
    """Print errors, then times; the command line may say which, and for which heads."""
    ways = [word == "causal" for word in sys.argv if word in ("plain", "causal")] or [False, True]
    widths = [int(word) for word in sys.argv[1:] if word.isdigit()] or list(WIDTHS)
    if "times" not in sys.argv:
        print_errors(widths, ways)
    if "errors" not in sys.argv:
        print_times(widths, ways)


if __name__ == "__main__":
    main()
