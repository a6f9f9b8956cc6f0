# pyright: strict, reportUnnecessaryTypeIgnoreComment=error
"""What type checkers must find: a comment on each such line, which pyright calls superfluous where
the line is right. Read by pyright and mypy, never run."""

from __future__ import annotations

import torch

import tilesmith as ts
from tests.typed.right_uses import Layer, ahead, both, empty_brackets, listed, scale


def calls(x: torch.Tensor) -> None:
    scale("wrong")  # pyright: ignore[reportArgumentType]
    scale(x, "wrong")  # pyright: ignore[reportArgumentType]
    scale()  # pyright: ignore[reportCallIssue]
    scale(x, 1.0, 2.0)  # pyright: ignore[reportCallIssue]
    scale(x, facter=1.0)  # pyright: ignore[reportCallIssue]
    both(x)  # pyright: ignore[reportCallIssue]
    listed(3)  # pyright: ignore[reportArgumentType]
    ahead(x, 1.0)  # pyright: ignore[reportCallIssue]
    empty_brackets(None)  # pyright: ignore[reportArgumentType]
    Layer().shift("wrong")  # pyright: ignore[reportArgumentType]
    Layer().shift(x, x)  # pyright: ignore[reportCallIssue]
    both(scale(x).nothing, x)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]


def decorators() -> None:
    ts.kernel(static_shape=False)  # pyright: ignore[reportCallIssue]
    ts.kernel(static_shapes="no")  # pyright: ignore[reportArgumentType]
    ts.kernel(backend="gpu")  # pyright: ignore[reportArgumentType]
    ts.kernel(config=3)  # pyright: ignore[reportArgumentType]
    ts.kernel(configs=ts.Config(block_sizes=[3]))  # pyright: ignore[reportArgumentType]
    ts.jit(autotune_effort="much")  # pyright: ignore[reportArgumentType]
    ts.jit(num_threads=1.5)  # pyright: ignore[reportArgumentType]
    ts.aot_kernel(bached=None)  # pyright: ignore[reportCallIssue]
    ts.kernel(3)  # pyright: ignore[reportArgumentType]
    ts.Settings(statik=True)  # pyright: ignore[reportCallIssue]
    ts.Settings(check=1)  # pyright: ignore[reportArgumentType]


def configs() -> None:
    ts.Config(blok_sizes=[32])  # pyright: ignore[reportCallIssue]
    ts.Config(block_sizes=32)  # pyright: ignore[reportArgumentType]
    ts.Config(block_sizes=["32"])  # pyright: ignore[reportArgumentType]
    ts.Config(num_warps="four")  # pyright: ignore[reportArgumentType]
    ts.Config(l2_groupings=3)  # pyright: ignore[reportArgumentType]
    ts.Config(32)  # pyright: ignore[reportCallIssue]
    ts.Config.from_dict(3)  # pyright: ignore[reportArgumentType]
    ts.Config(block_sizes=[3]).updatd()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def binding_and_tuning(x: torch.Tensor) -> None:
    scale.bind(x)  # pyright: ignore[reportArgumentType]
    scale.bind((x,), device="cuda")  # pyright: ignore[reportCallIssue]
    scale.bnd((x,))  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    scale.autotune(x)  # pyright: ignore[reportArgumentType]
    scale.autotune((x,), budget="long")  # pyright: ignore[reportArgumentType]
    scale.autotune((x,), budgett=3.0)  # pyright: ignore[reportCallIssue]
    scale.autotune((x,), autotune_eff="full")  # pyright: ignore[reportCallIssue]
    scale.bind((x,)).set_config(64)  # pyright: ignore[reportArgumentType]
    scale.bind((x,)).to_triton_code(target=90)  # pyright: ignore[reportArgumentType]
    scale.config = 3  # pyright: ignore[reportAttributeAccessIssue]
