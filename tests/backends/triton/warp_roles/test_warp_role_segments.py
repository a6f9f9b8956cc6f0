"""Turns without masks: the emitted bounds against a count over all lanes."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from examples.attention import attention, causal_attention
from tests.backends.triton.warp_roles.test_warp_role_simulation import windowed
from tests.backends.triton.warp_roles.warp_role_modules import emit

GL = SimpleNamespace(minimum=min, maximum=max, cdiv=lambda a, b: -(-a // b))


class _Rounded(ast.NodeTransformer):
    """Division as the device does it, towards zero."""

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if not isinstance(node.op, ast.FloorDiv):
            return node
        return ast.Call(ast.Name("quotient", ast.Load()), [node.left, node.right], [])


def bounds(text: str, **names: int) -> tuple[int, int, int, int]:
    """Turns, the first part, and the turns without masks, as the role that computes has them."""
    tree = ast.parse(text)
    (role,) = (
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_compute")
    )
    wanted = ("end_n", "turns", "full_from", "full_to")
    known: dict[str, Any] = {**names, "gl": GL, "quotient": lambda a, b: int(a / b)}
    first = 0
    for node in ast.walk(role):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in wanted:
            value = ast.Expression(_Rounded().visit(node.value))
            code = compile(ast.fix_missing_locations(value), "<emitted>", "eval")
            known[ast.unparse(node.targets[0])] = eval(code, known)
        elif isinstance(node, ast.For) and ast.unparse(node.target) == "part":
            assert isinstance(node.iter, ast.Call)
            first = int(ast.literal_eval(node.iter.args[0]))
    return known["turns"], first, known["full_from"], known["full_to"]


def check(text, length, rows, columns, groups, sees):
    """No turn without masks needs one; few turns with masks do not."""
    own, needless = rows // groups, 0
    for offset in range(0, length, rows):
        for group in range(groups):
            names = {"TILE_M": rows, "TILE_N": columns, "ROWS": own, "group": group}
            turns, first, begin, end = bounds(text, offset_m=offset, **names)
            assert 0 <= begin <= end <= turns or turns == 0
            assert first == 0 or begin <= 1
            for turn in range(turns):
                row = torch.arange(offset + group * own, offset + (group + 1) * own)[:, None]
                column = torch.arange(turn * columns, (turn + 1) * columns)[None, :]
                is_whole = bool(sees(row, column).all())
                is_masked = not begin <= turn < end
                assert is_whole or is_masked, (offset, group, turn)
                needless += is_whole and is_masked and turn > 0
    assert needless == 0


@pytest.mark.parametrize("length", [64, 129, 257, 400])
@pytest.mark.parametrize(("rows", "columns", "groups"), [(64, 16, 1), (128, 64, 2), (192, 32, 3)])
def test_causal(length, rows, columns, groups):
    args = (torch.empty(2, length, 16, dtype=torch.bfloat16),) * 3
    text = emit(
        causal_attention,
        args,
        block_sizes=[1, rows, columns],
        num_warps=4 * groups,
        num_stages=3,
    )

    def sees(row, column):
        return (row >= column) & (column < length)

    check(text, length, rows, columns, groups, sees)


@pytest.mark.parametrize("window", [1, 17, 100, 300])
@pytest.mark.parametrize(("rows", "columns", "groups"), [(64, 16, 1), (128, 32, 2)])
def test_sliding_window(window, rows, columns, groups):
    length = 330
    args = (torch.empty(2, length, 16, dtype=torch.bfloat16),) * 3
    options = {"block_sizes": [1, rows, columns], "num_warps": 4 * groups}
    text = emit(windowed, (*args, window), **options)

    def sees(row, column):
        return (row >= column) & (row - column < window) & (column < length)

    check(text, length, rows, columns, groups, sees)


@pytest.mark.parametrize("length", [63, 65, 127, 129, 257])
def test_the_last_tile_is_partial(length):
    args = (torch.empty(2, length, 16, dtype=torch.bfloat16),) * 3
    text = emit(attention, args, block_sizes=[1, 64, 64], num_warps=4)
    check(text, length, 64, 64, 1, lambda row, column: (column < length) & (row >= 0))


def test_whole_tiles_have_no_masks():
    args = (torch.empty(2, 128, 16, dtype=torch.bfloat16),) * 3
    text = emit(attention, args, block_sizes=[1, 64, 64], num_warps=4)
    assert "IS_MASKED" not in text
    assert "full_from" not in text
