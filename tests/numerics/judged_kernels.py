"""Kernels for tests of references and judges, and the reference of a call of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.oracle import OracleOptions, Reference, work_out_reference


@helion.kernel(backend="reference")
def matmul(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc.to(out.dtype)
    return out


@helion.kernel(backend="reference")
def softmax(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.softmax(x[tile, :].to(torch.float32), -1).to(out.dtype)
    return out


@helion.kernel(backend="reference")
def weighted(x: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Half an attention: probabilities are rounded to the type of the values."""
    for tile in hl.tile(x.size(0)):
        p = torch.exp(x[tile, :].to(torch.float32))
        total = p.sum(-1)
        out[tile, :] = ((p.to(v.dtype) @ v[:, :]) / total[:, None]).to(out.dtype)
    return out


@helion.kernel(backend="reference")
def row_sums(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, :].to(torch.float32).sum(-1).to(out.dtype)
    return out


@helion.kernel(backend="reference")
def evens(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Writes every second element."""
    for tile in hl.tile(x.size(0)):
        out[tile.index * 2] = x[tile] * 3
    return out


@helion.kernel(backend="reference")
def quantized(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        out[tile] = (x[tile] * 0.3 + 0.5).to(torch.int8)
    return out


@helion.kernel(backend="reference")
def histogram(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(out, [tile.index % out.size(0)], x[tile])
    return out


@helion.kernel(backend="reference")
def increment(x: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        x[tile] = x[tile] + 1
    return x


def reference_of(
    kernel: Any, *args: Any, blocks: Sequence[int], **options: Any
) -> tuple[Reference, dict[str, Any]]:
    """The reference of a call, and the launch arguments."""
    bound = kernel.bind(args)
    captured = bound.capture_launch(args, helion.Config(block_sizes=list(blocks)))
    function = captured.variant.function
    names = [parameter.value.name for parameter in function.parameters]
    launch = dict(zip(names, captured.read([p.source for p in function.parameters])))
    sizes = {b.name: blocks[b.slot] for b in function.blocks if b.slot is not None}
    return work_out_reference(function, launch, sizes, OracleOptions(**options)), launch
