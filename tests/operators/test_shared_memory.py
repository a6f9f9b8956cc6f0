"""Arguments that share memory, in graphs."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel
def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for t in hl.tile(x.size()):
        x[t] = x[t] + y[t]
    return x


@helion.kernel
def both_changed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for t in hl.tile(x.size()):
        x[t] = x[t] + 1
        y[t] = y[t] + 2
    return x


def add_a_view(x: torch.Tensor) -> torch.Tensor:
    doubled = x * 2
    return added(doubled, doubled.view(-1).view(8, 8)) + 1


def change_a_view(x: torch.Tensor) -> torch.Tensor:
    doubled = x * 2
    return both_changed(doubled, doubled.view(-1).view(8, 8)) + 1


def test_a_view_that_is_only_read_is_not_written() -> None:
    # Inductor took the unchanged copy of the view for the result.
    x = torch.randn(8, 8)
    compiled = torch.compile(add_a_view, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), x * 4 + 1)
    schema = str(torch.ops.tilesmith.added.default._schema)
    assert schema == "tilesmith::added(Tensor(a0!) x, Tensor y) -> ()"


def test_two_written_arguments_that_share_memory_end_the_graph() -> None:
    x = torch.randn(8, 8)
    compiled = torch.compile(change_a_view, backend="aot_eager")
    torch.testing.assert_close(compiled(x), x * 2 + 4)
