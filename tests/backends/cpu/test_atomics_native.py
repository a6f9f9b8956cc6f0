"""Atomics of native code: every kind and element type, places hit many times, several threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import OLDER_TARGETS, on_backend
from tilesmith.backends.cpu.emission import context
from tilesmith.numerics.compare import check_against

INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
BINS = 5
CONFIG = helion.Config(block_sizes=[16])

Reference = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
KINDS: dict[Any, tuple[Reference, tuple[torch.dtype, ...]]] = {
    hl.atomic_add: (torch.add, (*INTEGERS, *FLOATS)),
    hl.atomic_max: (torch.maximum, (*INTEGERS, *FLOATS)),
    hl.atomic_min: (torch.minimum, (*INTEGERS, *FLOATS)),
    hl.atomic_and: (torch.bitwise_and, INTEGERS),
    hl.atomic_or: (torch.bitwise_or, INTEGERS),
    hl.atomic_xor: (torch.bitwise_xor, INTEGERS),
}
CASES = [
    pytest.param(apply, fn, dtype, id=f"{apply.__name__}-{str(dtype).removeprefix('torch.')}")
    for apply, (fn, dtypes) in KINDS.items()
    for dtype in dtypes
]


@helion.kernel
def update(target, index, value, apply):
    for t in hl.tile(index.size(0)):
        apply(target, [index[t]], value[t])


@helion.kernel
def update_and_tell(target, index, value, apply):
    previous = torch.empty_like(value)
    for t in hl.tile(index.size(0)):
        previous[t] = apply(target, [index[t]], value[t], sem="acq_rel")
    return previous


@pytest.fixture
def many_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Four threads, however little there is to do."""
    monkeypatch.setattr(context, "MIN_PARALLEL_WORK", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def make(dtype: torch.dtype, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Small whole numbers, whose sums all types hold exactly."""
    generator = torch.Generator().manual_seed(count)
    index = torch.randint(0, BINS, (count,), generator=generator)
    low = 0 if dtype == torch.uint8 else -3
    value = torch.randint(low, 4, (count,), generator=generator).to(dtype)
    return torch.arange(BINS).to(dtype), index, value


def applied(fn: Reference, target: torch.Tensor, index, value) -> torch.Tensor:
    result = target.clone()
    for at, x in zip(index.tolist(), value):
        result[at] = fn(result[at], x)
    return result


@pytest.mark.parametrize(("apply", "fn", "dtype"), CASES)
def test_places_hit_many_times(apply, fn: Reference, dtype: torch.dtype) -> None:
    for count in (1, 15, 17, 61):
        target, index, value = make(dtype, count)
        expected = applied(fn, target, index, value)
        for kernel in (update, update_and_tell):
            found = target.clone()
            args = (found, index, value, apply)
            on_backend(kernel, "cpu").bind(args).compile_config(CONFIG)(*args)
            assert torch.equal(found, expected)


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize(("apply", "fn", "dtype"), CASES)
def test_several_threads_lose_nothing(apply, fn: Reference, dtype: torch.dtype) -> None:
    target, index, value = make(dtype, 900)
    kernel = helion.kernel(update.fn, backend="cpu")
    args = (target, index, value, apply)
    compiled = kernel.bind(args).compile_config(helion.Config(block_sizes=[4]))
    expected = applied(fn, target, index, value)
    compiled(*args)
    assert torch.equal(target, expected)


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.float64], ids=str)
def test_every_previous_value_is_told_once(dtype: torch.dtype) -> None:
    count = 40_000
    index = torch.randint(0, BINS, (count,), generator=torch.Generator().manual_seed(0))
    target = torch.zeros(BINS, dtype=dtype)
    args = (target, index, torch.ones(count, dtype=dtype), hl.atomic_add)
    bound = helion.kernel(update_and_tell.fn, backend="cpu").bind(args)
    previous = bound.compile_config(helion.Config(block_sizes=[64]))(*args)
    for place in range(BINS):
        told = previous[index == place].sort().values
        assert torch.equal(told, torch.arange(len(told)).to(dtype))
        assert target[place] == len(told)


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
def test_exchanged_values_are_neither_lost_nor_made_up(dtype: torch.dtype) -> None:
    count = 120
    index = torch.arange(count) % BINS
    value = torch.arange(1, count + 1).to(dtype)
    target = torch.zeros(BINS, dtype=dtype)
    args = (target, index, value, hl.atomic_xchg)
    bound = helion.kernel(update_and_tell.fn, backend="cpu").bind(args)
    previous = bound.compile_config(helion.Config(block_sizes=[4]))(*args)
    for place in range(BINS):
        seen = torch.cat([previous[index == place], target[place : place + 1]])
        put = torch.cat([torch.zeros(1, dtype=dtype), value[index == place]])
        assert torch.equal(seen.sort().values, put.sort().values)


@pytest.mark.parametrize("apply", [hl.atomic_max, hl.atomic_min])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_wins_and_infinities_count(apply, dtype: torch.dtype) -> None:
    fn = KINDS[apply][0]
    target = torch.tensor([0.0, math.nan, math.inf, -math.inf, 1.0], dtype=dtype)
    value = torch.tensor([math.nan, 1, -math.inf, 2, math.inf, -1, 0.5], dtype=dtype)
    index = torch.tensor([0, 1, 2, 3, 4, 4, 3])
    expected = applied(fn, target, index, value)
    args = (target, index, value, apply)
    on_backend(update, "cpu").bind(args).compile_config(CONFIG)(*args)
    torch.testing.assert_close(target, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sums_are_rounded_to_their_type(dtype: torch.dtype) -> None:
    # One program: the additions happen in order, each rounded.
    value = torch.randn(40, generator=torch.Generator().manual_seed(1)).to(dtype)
    index = torch.zeros(40, dtype=torch.int64)
    target = torch.zeros(BINS, dtype=dtype)
    args = (target, index, value, hl.atomic_add)
    on_backend(update, "cpu").bind(args).compile_config(helion.Config(block_sizes=[64]))(*args)
    expected = torch.zeros((), dtype=dtype)
    for x in value:
        expected = expected + x
    assert torch.equal(target[0], expected)


@helion.kernel
def of_sums(x, out, apply):
    for t, u in hl.tile(x.size()):
        apply(out, [t, 0], x[t, u].sum(1))
        apply(out, [0, u], x[t, u].sum(0), sem="release")
        apply(out, [x.size(0), x.size(1)], x[t, u].sum())


@pytest.mark.parametrize("blocks", [(1, 1), (4, 16), (64, 64)])
@pytest.mark.parametrize("shape", [(1, 1), (5, 15), (7, 17)])
def test_sums_of_rows_columns_and_all(shape: tuple[int, int], blocks: tuple[int, int]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    out = torch.zeros(shape[0] + 1, shape[1] + 1)
    args = (x, out, hl.atomic_add)
    on_backend(of_sums, "cpu").bind(args).compile_config(helion.Config(block_sizes=list(blocks)))(
        *args
    )
    wide, expected = x.double(), torch.zeros(out.shape, dtype=torch.float64)
    expected[:-1, 0] += wide.sum(1)
    expected[0, :-1] += wide.sum(0)
    expected[-1, -1] += wide.sum()
    check_against(out, expected, reduction_length=2 * x.numel())


@helion.kernel
def where_told(target, index, value, apply):
    previous = torch.empty_like(value)
    for t in hl.tile(index.size(0)):
        at = index[t]
        if (at >= 0).all():
            previous[t] = apply(target, [at], value[t])
        else:
            previous[t] = value[t] * 0 - 1
    return previous


def test_a_branch_around_an_update() -> None:
    index = torch.arange(-4, 12) % 5 - (torch.arange(-4, 12) < 0) * 9
    target, value = torch.zeros(5, dtype=torch.int64), torch.arange(16)
    args = (target, index, value, hl.atomic_add)
    previous = (
        on_backend(where_told, "cpu")
        .bind(args)
        .compile_config(helion.Config(block_sizes=[4]))(*args)
    )
    assert previous[:4].tolist() == [-1] * 4
    assert torch.equal(target, torch.zeros(5, dtype=torch.int64).index_add(0, index[4:], value[4:]))


@pytest.mark.parametrize("sem", ["relaxed", "acquire", "release", "acq_rel"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.bfloat16, torch.float64], ids=str)
def test_every_memory_order(sem: str, dtype: torch.dtype) -> None:
    target, index, value = make(dtype, 33)

    def apply(tensor: Any, at: Any, x: Any) -> Any:
        return hl.atomic_add(tensor, at, x, sem=sem)

    expected = applied(torch.add, target, index, value)
    on_backend(update, "cpu")(target, index, value, apply)
    assert torch.equal(target, expected)


@pytest.mark.parametrize("machine", OLDER_TARGETS)
@pytest.mark.parametrize(("apply", "fn", "dtype"), CASES)
def test_older_machines(apply, fn: Reference, dtype: torch.dtype, machine: str) -> None:
    target, index, value = make(dtype, 61)
    args = (target, index, value, apply)
    compiled = on_backend(update, "cpu").bind(args, target=machine).compile_config(CONFIG)
    expected = applied(fn, target, index, value)
    compiled(*args)
    assert torch.equal(target, expected)
