# pyright: strict, reportUnnecessaryTypeIgnoreComment=error
"""What users may write: type checkers find nothing here. Read by pyright and mypy, never run."""

from __future__ import annotations

from typing import Any

import torch
from typing_extensions import assert_type

import tilesmith as ts
import tilesmith.language as hl


@ts.kernel
def scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    """Each element times a factor."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * factor
    return out


@ts.kernel(
    config=ts.Config(block_sizes=[64], num_warps=8, indexing="pointer"),
    static_shapes=False,
    index_dtype=torch.int64,
    ignore_warnings=[ts.exc.WrongDevice],
    autotune_effort="quick",
)
def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    for tile in hl.tile(x.size(0)):
        x[tile] = y[tile]
    return x, y


def rank(x: torch.Tensor) -> int:
    return x.dim()


@ts.jit(configs=[ts.Config(block_sizes=[16]), {"block_sizes": [32]}], key=rank)
def listed(x: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        x[tile] = 0.0
    return x


@ts.aot_kernel(batched=[[0], None])
def ahead(x: torch.Tensor, *, bias: float) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        x[tile] = bias
    return x


@ts.kernel()
def empty_brackets(x: torch.Tensor) -> None:
    for tile in hl.tile(x.size(0)):
        x[tile] = 0.0


@ts.kernel
def power(x: torch.Tensor, n: hl.constexpr) -> torch.Tensor:
    out = torch.ones_like(x)
    for tile in hl.tile(x.size(0)):
        for _ in hl.static_range(n):
            out[tile] = out[tile] * x[tile]
    return out


class Layer:
    bias = 1.0

    @ts.kernel
    def shift(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] + self.bias
        return out


def calls(x: torch.Tensor, any_kernel: ts.Kernel) -> None:
    assert_type(scale(x), torch.Tensor)
    assert_type(scale(x, factor=3), torch.Tensor)
    assert_type(both(x, x), "tuple[torch.Tensor, torch.Tensor]")
    assert_type(listed(x), torch.Tensor)
    assert_type(ahead(x, bias=1.0), torch.Tensor)
    assert_type(Layer().shift(x), torch.Tensor)
    assert_type(power(x, 3), torch.Tensor)
    empty_brackets(x)
    any_kernel(x, 1, mode="any")


def of_any(function: Any, x: torch.Tensor) -> None:
    """What nobody knows may be anything: no mistake is seen where there may be none."""
    ts.kernel(function, static_shapes=False)(x)
    ts.kernel(function).bind((x,))


def uses(x: torch.Tensor) -> None:
    bound = scale.bind((x,))
    bound.set_config(ts.Config(block_size=64))
    bound.set_config({"block_sizes": [64]})
    config = scale.autotune((x,), budget=3, effort="quick", method="RandomSearch", count=5)
    assert_type(config, ts.Config)
    scale.autotune([x, 2.0], force=False, autotune_log_level="ERROR", deterministic=True)
    bound.autotune((x,), ignore_errors=True)
    both.config = ts.Config(block_sizes=[32]).updated(my_tunable=4)
    Layer().shift.bind((x,))
    assert_type(scale.backward_source((x,)) + bound.to_triton_code(target="cuda:90"), str)
    assert_type(bound.determinism, str)
    settings = ts.Settings(check=True, backend="cpu", missing_gradient="warn")
    ts.kernel(scale.fn, settings=settings)
    ts.Config(block_sizes=[[8, 16], 4], loop_orders=[[1, 0]], reduction_loops=[None], maxnreg=None)
    ts.Config.from_dict({"block_sizes": [8], "my_tunable": 3})
