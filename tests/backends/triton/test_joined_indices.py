"""Flattened tiles of contiguous tensors are addressed by the flat index, others by coordinates."""

from __future__ import annotations

import torch

from examples.add import add


def flattened_code(x: torch.Tensor, y: torch.Tensor) -> str:
    bound = add.bind((x, y))
    return bound.to_triton_code(bound.default_config().updated(flatten_loops=[True]))


def test_contiguous_tensors_need_no_coordinates():
    code = flattened_code(torch.empty(6, 10), torch.empty(6, 10))
    assert "//" not in code.split("def launch")[0]
    assert "%" not in code.split("def launch")[0]


def test_a_strided_tensor_keeps_its_coordinates():
    code = flattened_code(torch.empty(6, 10), torch.empty(10, 6).t())
    body = code.split("def launch")[0]
    assert "// 10" in body
    assert "% 10" in body


def test_three_axes_join_too():
    code = flattened_code(torch.empty(4, 6, 10), torch.empty(4, 6, 10))
    assert "//" not in code.split("def launch")[0]
