"""Emitted modules with warp roles, for tests that run them without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import torch

import tilesmith
from examples.attention import attention, causal_attention
from examples.attention_backward import key_value_gradients, query_gradients
from examples.matmul import matmul
from tilesmith.backends.triton.warp_roles import copies, rules
from tilesmith.backends.triton.warp_roles.columns import stores
from tilesmith.backends.triton.warp_roles.edges import operands

SMALL = 16
"""The smallest side of a product, where its size does not matter."""


def emit(kernel: Any, args: Sequence[Any], **config: Any) -> str:
    """The module of a kernel in this form, for a Hopper GPU."""
    values = {"structure": "warp_roles", "num_stages": 2, "pid_type": "flat", **config}
    given = tilesmith.Config.from_dict(values)
    return kernel.bind(tuple(args)).to_triton_code(given, target="cuda:90")


@contextmanager
def any_stages(*, has_room: bool = True) -> Iterator[None]:
    """Configs that ptxas gets wrong too; ``has_room``: whether kept tiles may lie there twice."""
    room = copies.SHARED_BYTES if has_room else 0
    with (
        mock.patch.object(rules, "is_compiled_rightly", return_value=True),
        mock.patch.object(copies, "SHARED_BYTES", room),
        mock.patch.object(stores, "SHARED_BYTES", room),
    ):
        yield


GRADIENTS = {
    "query_gradients": query_gradients,
    "key_value_gradients": key_value_gradients,
    "causal_key_value_gradients": key_value_gradients,
}


def model_args(name: str, groups: int) -> tuple[Any, ...]:
    """Arguments for which one program has two tiles."""
    if name in GRADIENTS:
        tile, row = torch.zeros(2, 64 * groups, SMALL).bfloat16(), torch.zeros(2, 64 * groups)
        return tile, tile, tile, tile, row, row, name.startswith("causal")
    if name == "matmul":
        return torch.zeros(64 * groups, 32).bfloat16(), torch.zeros(32, 2 * SMALL).bfloat16()
    return (torch.zeros(2, 64 * groups, SMALL).bfloat16(),) * 3


@cache
def model_text(name: str, groups: int, stages: int, kept: int) -> str:
    """A module for the model; ``kept``: how many pieces' tiles are kept, 0 for a single piece."""
    written = {
        **{"attention": attention, "causal_attention": causal_attention, "matmul": matmul},
        **GRADIENTS,
    }
    # A kernel of its own: others must not find what was emitted under changed rules.
    kernel = tilesmith.kernel(written[name].fn, static_shapes=True)
    rows = 64 * groups
    blocks = [rows, SMALL, SMALL] if name == "matmul" else [1, rows, SMALL]
    # As if it were wide: with masks, such kernels read kept tiles in every turn.
    widest = 0 if name == "causal_key_value_gradients" else operands.WIDEST_IN_PARTS
    with (
        any_stages(has_room=kept != 1),
        mock.patch.object(operands, "WIDEST_IN_PARTS", widest),
    ):
        return emit(
            kernel,
            model_args(name, groups),
            block_sizes=blocks,
            num_warps=4 * groups,
            num_stages=stages,
            pid_type="persistent_interleaved" if kept else "flat",
        )
