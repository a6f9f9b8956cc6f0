"""Kernels for functions of the language that no short kernel of the tests uses by itself.

Those that run on a CPU are run by tests; the others are compiled for a GPU that need not be here.
"""

from __future__ import annotations

from typing import Any

import torch

import tilesmith
import tilesmith.language as hl


@tilesmith.kernel
def smallest(values: torch.Tensor, bins: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """The smallest value of each bin."""
    for tile in hl.tile(values.size(0)):
        hl.atomic_min(out, [bins[tile]], values[tile])
    return out


@tilesmith.kernel
def cleared_bits(masks: torch.Tensor, words: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Bits of words that all of their masks have."""
    for tile in hl.tile(masks.size(0)):
        hl.atomic_and(out, [words[tile]], masks[tile])
    return out


@tilesmith.kernel
def toggled_bits(masks: torch.Tensor, words: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Bits of words, toggled by each mask."""
    for tile in hl.tile(masks.size(0)):
        hl.atomic_xor(out, [words[tile]], masks[tile])
    return out


@tilesmith.kernel
def told(x: torch.Tensor) -> torch.Tensor:
    """Prints where each program begins."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0), block_size=4):
        hl.device_print("tile begins at", tile.begin)
        out[tile] = x[tile]
    return out


@tilesmith.kernel(check=True)
def stopped(x: torch.Tensor) -> torch.Tensor:
    """Stops in Python's debugger, with tiles as tensors."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile] * 2
        hl.breakpoint()
        out[tile] = value
    return out


@tilesmith.kernel
def stacked(like: torch.Tensor, pointers: torch.Tensor) -> torch.Tensor:
    """The sum of several tensors of one shape, given by their addresses."""
    out = torch.empty_like(like)
    for tile in hl.tile(like.size(0)):
        stack = hl.stacktensor_like(like, pointers[:])
        out[tile] = stack[tile].sum(dim=0)
    return out


@tilesmith.kernel
def in_triton(x: torch.Tensor) -> torch.Tensor:
    """An expression in Triton's words."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile]
        out[tile] = hl.inline_triton("tl.sqrt({0}) + 1.0", args=(value,), output_like=value)
    return out


@tilesmith.kernel
def in_assembly(x: torch.Tensor) -> torch.Tensor:
    """An instruction of the GPU."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.inline_asm_elementwise(
            "sqrt.approx.f32 $0, $1;", "=f,f", [x[tile]], dtype=torch.float32, is_pure=True, pack=1
        )
    return out


@tilesmith.kernel
def with_a_triton_function(x: torch.Tensor) -> torch.Tensor:
    """A function of Triton's, given as text."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile]
        source = "@triton.jit\ndef root(v):\n    return tl.sqrt(v)"
        out[tile] = hl.triton_kernel(source, args=(value,), output_like=value)
    return out


KERNELS: dict[str, Any] = {
    "atomic_min": smallest,
    "atomic_and": cleared_bits,
    "atomic_xor": toggled_bits,
    "device_print": told,
    "breakpoint": stopped,
    "StackTensor": stacked,
    "stacktensor_like": stacked,
    "inline_triton": in_triton,
    "triton_kernel": with_a_triton_function,
    "inline_asm_elementwise": in_assembly,
}
"""By the name of the function that they show."""
