"""Calls of recognised arguments: host code is worked out once, and gives what it always gave."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tilesmith.jit.fixed_host.folding import HostFolder, NotFixedError

FACTOR = 2.0


@tilesmith.kernel
def scaled_sum(x: torch.Tensor, y: torch.Tensor, by: float) -> torch.Tensor:
    x, y = torch.broadcast_tensors(x, y)
    wide = torch.promote_types(x.dtype, y.dtype)
    out = torch.empty(x.shape, dtype=wide, device=x.device)
    flat_x, flat_y, flat_out = x.reshape(-1), y.reshape(-1), out.view(-1)
    factor = FACTOR / math.sqrt(4)
    for tile in hl.tile(out.numel()):
        flat_out[tile] = (flat_x[tile] + flat_y[tile]) * by * factor
    return out


@tilesmith.kernel
def partial_sums(x: torch.Tensor, with_max: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    m, n = x.size()
    assert m > 0, "no rows"
    block = hl.register_block_size(m)
    sums = torch.empty([tilesmith.cdiv(m, block), n], dtype=x.dtype, device=x.device)
    if with_max:
        other = torch.empty([1], dtype=torch.int32, device=x.device)
    else:
        other = torch.empty([2], dtype=torch.int64, device=x.device)
    for rows in hl.tile(m, block_size=block):
        sums[rows.id, :] = x[rows, :].sum(0)
    return sums, other


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of kernels whose host code was worked out."""
    names: list[str] = []
    fold = HostFolder.fold

    def noted(self: HostFolder) -> None:
        fold(self)
        names.append(self._source.name)

    monkeypatch.setattr(HostFolder, "fold", noted)
    return names


def test_results_are_those_of_every_form_in_turn(folded: list[str]) -> None:
    torch.manual_seed(0)
    shapes = [((3, 5), (3, 5)), ((3, 5), (5,)), ((4, 7), (4, 7)), ((16,), (16,))]
    made = [(torch.randn(a), torch.randn(b)) for a, b in shapes]
    made.append((torch.randn(6, 4).t(), torch.randn(4, 6)))
    for _ in range(4):
        for by, (x, y) in enumerate(made, 1):
            assert torch.equal(scaled_sum(x, y, float(by)), (x + y) * by)
    assert "scaled_sum" in folded


def test_a_number_of_the_module_may_change(
    folded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(8, 8)
    for factor in (2.0, 2.0, 2.0, 6.0, 2.0, 6.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        assert torch.equal(scaled_sum(x, x, 1.0), (x + x) * (factor / 2))


def test_results_are_new_tensors_in_every_call() -> None:
    x = torch.randn(32)
    results = [scaled_sum(x, x, float(by)) for by in range(1, 6)]
    assert len({result.data_ptr() for result in results}) == 5
    for by, result in enumerate(results, 1):
        assert torch.equal(result, (x + x) * by)


def test_flags_and_block_sizes_are_part_of_it(folded: list[str]) -> None:
    x = torch.arange(48.0).view(12, 4)
    for _ in range(3):
        for with_max, dtype in ((False, torch.int64), (True, torch.int32)):
            sums, other = partial_sums(x, with_max)
            assert other.dtype is dtype
            assert torch.equal(sums.sum(0), x.sum(0))
    assert folded.count("partial_sums") == 2


def test_a_bound_kernel_takes_other_forms_than_its_own() -> None:
    x, longer = torch.randn(10), torch.randn(20)
    bound = scaled_sum.bind((x, x, 1.0))
    for _ in range(3):
        assert torch.equal(scaled_sum(x, x, 1.0), x + x)
    assert torch.equal(bound(longer, longer, 1.0), longer + longer)
    assert torch.equal(scaled_sum(x, x, 1.0), x + x)


def test_what_a_view_shows_later_is_a_view() -> None:
    @tilesmith.kernel
    def doubled(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = torch.empty_like(x)
        flat, lines = out.view(-1), x.reshape(-1)
        for tile in hl.tile(flat.size(0)):
            flat[tile] = lines[tile] * 2
        return out, flat

    x = torch.randn(4, 6)
    for _ in range(3):
        out, flat = doubled(x)
        assert out.shape == (4, 6)
        assert flat.shape == (24,)
        assert flat.data_ptr() == out.data_ptr()
        assert torch.equal(out, x * 2)


def _calls_something(x: torch.Tensor, helper: Callable[[], Any] = dict) -> torch.Tensor:
    out = torch.empty_like(x)
    helper()
    for tile in hl.tile(x.size()):
        out[tile] = x[tile]
    return out


def _default_type(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
    return out


@pytest.mark.parametrize("function", [_calls_something, _default_type])
def test_what_may_be_another_each_time_is_left_as_it_is(function: Callable[..., Any]) -> None:
    kernel: Any = tilesmith.kernel(function)
    x = torch.randn(5)
    source = kernel.definition.split.source.fresh()
    with pytest.raises(NotFixedError):
        HostFolder(source, {"x": x}).fold()
    if function is _default_type:
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            try:
                results = [kernel(x) for _ in range(3)]
            finally:
                torch.set_default_dtype(torch.float32)
            assert all(result.dtype is dtype for result in results)


def _optional_bias(x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x)
    if bias is not None:
        row = bias.view(1, -1).reshape(-1)
    for tile in hl.tile(x.size(0)):
        value = x[tile, :]
        if bias is not None:
            value = value + row[:]  # pyright: ignore[reportPossiblyUnboundVariable]
        out[tile, :] = value
    return out


def test_names_of_a_branch_that_is_not_taken_stay_local() -> None:
    kernel: Any = tilesmith.kernel(_optional_bias)
    x, bias = torch.randn(4, 6), torch.randn(6)
    for _ in range(4):
        assert torch.equal(kernel(x), x)
        assert torch.equal(kernel(x, bias), x + bias)


def _view_then_number(x: torch.Tensor, scale: float) -> torch.Tensor:
    y: Any = x.view(-1)
    y = scale * 2
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * y
    return out


def test_a_name_of_a_view_may_become_a_number() -> None:
    kernel: Any = tilesmith.kernel(_view_then_number)
    x = torch.randn(8)
    for scale in (1.0, 2.0, 3.0, 4.0):
        assert torch.equal(kernel(x, scale), x * (scale * 2))


def _row_sums(x: torch.Tensor) -> torch.Tensor:
    n = x.size(0)
    out = torch.zeros([n], dtype=x.dtype)
    for tile, inner in hl.tile([n, x.size(1)]):
        hl.atomic_add(out, [tile], x[tile, inner].sum(-1))
    return out


def test_a_bound_kernel_takes_other_sizes_where_torch_asks_for_an_order() -> None:
    kernel: Any = tilesmith.kernel(_row_sums, static_shapes=True)
    bound = kernel.bind((torch.ones(4, 8),))
    bound.set_config(tilesmith.Config(block_sizes=[2, 2]))
    torch.use_deterministic_algorithms(True)
    try:
        for n in (4, 4, 4, 6, 3):
            assert bound(torch.ones(n, 8)).tolist() == [8.0] * n
    finally:
        torch.use_deterministic_algorithms(False)


def _resized(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    _root = torch.sqrt(x, out=y)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = y[tile] + 1
    return out


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_arguments_that_host_code_resizes_are_read_again() -> None:
    kernel: Any = tilesmith.kernel(_resized, static_shapes=True)
    for number in range(4):
        x = torch.full([8], 4.0 * number * number)
        assert kernel(x, torch.empty(4)).tolist() == [2.0 * number + 1] * 8


def _flattened(x: torch.Tensor, y: torch.Tensor, mode: hl.constexpr = 1.0) -> torch.Tensor:
    a, b = (t.reshape([-1, 4]) for t in (x, y))
    rows, _columns = [n // 2 * 2 for n in (a.size(0), 4)]
    out = torch.empty([rows, 4], dtype=a.dtype, device=a.device)
    for tile in hl.tile(rows):
        out[tile, :] = a[tile, :] + b[tile, :] * mode
    return out


def test_comprehensions_over_tuples_of_the_source_are_written_out(folded: list[str]) -> None:
    kernel: Any = tilesmith.kernel(_flattened)
    x, y = torch.randn(3, 2, 4), torch.randn(6, 4)
    for mode in (1.0, 1.0, 1.0, 2.0, 1.0, -0.0, 0.0, 2.0):
        assert torch.equal(kernel(x, y, mode), x.view(6, 4) + y * mode)
    assert folded.count("_flattened") == 0, "sizes in a comprehension are no names"


def _flattened_by_name(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a, b = (t.reshape([-1, 4]) for t in (x, y))
    out = torch.empty_like(a)
    for tile in hl.tile(a.size(0)):
        out[tile, :] = a[tile, :] - b[tile, :]
    return out


def test_names_in_comprehensions_are_put_in_place(folded: list[str]) -> None:
    kernel: Any = tilesmith.kernel(_flattened_by_name)
    for shape in ((3, 2, 4), (6, 4), (2, 4)):
        x, y = torch.randn(shape), torch.randn(shape)
        for _ in range(3):
            assert torch.equal(kernel(x, y), (x - y).view(-1, 4))
    assert folded.count("_flattened_by_name") == 3
