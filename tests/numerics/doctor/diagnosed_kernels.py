"""Kernels for tests of the doctor, and other implementations of them with known errors."""

from __future__ import annotations

from collections.abc import Callable

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.doctor.diagnose import diagnose
from tilesmith.numerics.doctor.findings import DiagnoseOptions

# What causes are found is tested elsewhere; without looking for them tests are quick.
QUICK = DiagnoseOptions(repeats=3, num_configs=1, explain=False, inputs_time_limit_s=0.0)


@helion.kernel(backend="reference")
def tripled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 3
    return out


@helion.kernel(backend="reference")
def tripled_rows(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0), block_size=1):
        out[tile, :] = x[tile, :] * 3
    return out


@helion.kernel(backend="reference")
def wide_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float64, device=x.device)
    for tile_m, tile_n in hl.tile(out.size()):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float64)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc
    return out


@helion.kernel(backend="reference")
def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile(out.size()):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc.to(x.dtype)
    return out


@helion.kernel(backend="reference")
def sized(x: torch.Tensor) -> torch.Tensor:
    """Depends on its config."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + tile.block_size
    return out


@helion.kernel(backend="reference")
def column_sums(x: torch.Tensor) -> torch.Tensor:
    """Host code adds up what programs leave."""
    partial = torch.empty([x.size(0), x.size(1)], dtype=torch.float32, device=x.device)
    for tile in hl.tile(x.size(0)):
        partial[tile, :] = x[tile, :].to(torch.float32) * 2
    return partial.sum(0).to(x.dtype)


@helion.kernel(backend="reference")
def centred(x: torch.Tensor) -> torch.Tensor:
    """Each row depends on all."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(1)):
        out[:, tile] = x[:, tile] - x[:, tile].mean(0, keepdim=True)
    return out


@helion.kernel(backend="reference")
def increment(x: torch.Tensor) -> None:
    for tile in hl.tile(x.size(0)):
        x[tile] = x[tile] + 1


def rounded(x: torch.Tensor) -> torch.Tensor:
    """The correctly rounded result of ``tripled``."""
    return (x.double() * 3).to(x.dtype)


def moved(tensor: torch.Tensor, steps: int = 1) -> torch.Tensor:
    """Positive values moved up by representable steps."""
    views = {2: torch.int16, 4: torch.int32}
    return (tensor.view(views[tensor.itemsize]) + steps).view(tensor.dtype)


def with_error_at(
    function: Callable[[torch.Tensor], torch.Tensor], index: tuple[int, ...], steps: int
) -> Callable[[torch.Tensor], torch.Tensor]:
    """The function with one element some representable steps too high."""

    def run(x: torch.Tensor) -> torch.Tensor:
        out = function(x)
        out[index] = moved(out[index].reshape(1), steps)[0]
        return out

    return run


def positive(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(shape, generator=generator) + 0.5).to(dtype)


def quick(kernel, args, against=None, **options):
    chosen = DiagnoseOptions(**{**vars(QUICK), **options})
    return diagnose(kernel, args, against, chosen)
