"""Runs IR given as text on real tensors: declares parameters, verifies, interprets, compiles."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tests.interpreted import run_function
from tests.ir_parser import parse_function
from tests.native_text import assert_same, copy_arguments, run_native
from tilesmith.interpreter.run import Argument
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.function import Function
from tilesmith.ir.verifier import verify_function


def tensor_type(tensor: torch.Tensor, alias: int = 0) -> str:
    shape, strides = list(tensor.shape), list(tensor.stride())
    return f"tensor<{from_torch(tensor.dtype)}{shape}, strides={strides}, alias={alias}>"


def _declare(name: str, argument: Argument) -> str:
    if isinstance(argument, torch.Tensor):
        return f'  param %{name}: {tensor_type(argument)} from "{name}"'
    dtype = {bool: "bool", int: "i64", float: "f32"}[type(argument)]
    return f'  param %{name}: {dtype}[] from "{name}"'


def build(body: str, arguments: Mapping[str, Argument], blocks: Mapping[str, int]) -> Function:
    """A verified function of that body, with a parameter for each argument."""
    lines = [_declare(name, argument) for name, argument in arguments.items()]
    lines += [f"  block {name}" for name in blocks]
    lines += ["  %zero = full() {value=0} : i64[]", "  %one = full() {value=1} : i64[]"]
    function = parse_function("\n".join(["func @f {", *lines, body, "}"]))
    verify_function(function)
    return function


def run_text(
    body: str,
    arguments: Mapping[str, Argument],
    blocks: Mapping[str, int],
    *,
    checked: bool = True,
    races: bool = False,
    reduction_length: int = 1,
) -> None:
    """Run top-level ops given as text. ``%zero`` and ``%one`` are there to use.

    Native code must give the same; it may add the terms of a sum in another order.
    """
    function = build(body, arguments, blocks)
    copies = copy_arguments(arguments)
    run_function(function, arguments, blocks, checked=checked, races=races)
    run_native(function, copies, blocks)
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            assert_same(copies[name], value, reduction_length)


def in_program(body: str) -> str:
    """A grid of one program around the ops."""
    return f'grid([%zero], [%one]) {{blocks=[""]}} (%pid: i64[]) {{\n{body}\n}}'


def over_tiles(body: str, end: int, block: str = "m") -> str:
    """A grid over ``[0, end)`` in tiles of ``block``, with ``%i`` the indices of the tile."""
    return f"""
  %end = full() {{value={end}}} : i64[]
  grid([%zero], [%end]) {{blocks=["{block}"]}} (%begin: i64[]) {{
    %i = tile_index(%begin) {{block="{block}"}} : i64[{block}]
{body}
  }}"""
