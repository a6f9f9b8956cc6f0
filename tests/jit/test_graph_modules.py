"""A GraphModule without state is an argument like a function: its calls become device code."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend


@helion.kernel
def apply_graph(x, graph):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = graph(x[tile])
    return out


def smooth(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x) * 2 + x.abs()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", [1, 7, 64])
def test_a_graph_computes_what_its_function_does(backend, n):
    x = torch.randn(n)
    graph = torch.fx.symbolic_trace(smooth)
    torch.testing.assert_close(on_backend(apply_graph, backend)(x, graph), smooth(x))


def test_another_graph_computes_something_else():
    x = torch.randn(5)
    graphs = [torch.fx.symbolic_trace(f) for f in (smooth, torch.nn.functional.relu)]
    for graph, function in zip(graphs, (smooth, torch.relu)):
        torch.testing.assert_close(apply_graph(x, graph), function(x))
