"""One tensor, or one storage, under several names."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel
def write_then_read(x, y, out):
    for t in hl.tile(x.size(0)):
        y[t] = x[t] * 2
        out[t] = x[t] + y[t]
    return out


def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return write_then_read(x, y, torch.empty_like(x))


def test_a_load_sees_a_store_through_another_name() -> None:
    write_then_read.reset()
    x, y = torch.arange(13.0), torch.zeros(13)
    # The first trace knows two tensors: x[t] may be loaded once.
    assert torch.equal(run(x, y), torch.arange(13.0) * 3)
    assert torch.equal(run(x, x), torch.arange(13.0) * 4)
    x = torch.arange(13.0)
    assert torch.equal(run(x, x.view(13)), torch.arange(13.0) * 4)
    assert torch.equal(run(torch.arange(13.0), y), torch.arange(13.0) * 3)


def test_the_same_with_aliases_first() -> None:
    write_then_read.reset()
    x = torch.arange(13.0)
    assert torch.equal(run(x, x), torch.arange(13.0) * 4)
    assert torch.equal(run(torch.arange(13.0), torch.zeros(13)), torch.arange(13.0) * 3)


@helion.kernel
def through_a_closure(y, out, read):
    for t in hl.tile(out.size(0)):
        y[t] = read(t) * 2
        out[t] = read(t) + y[t]
    return out


def test_a_closure_may_hold_the_written_tensor() -> None:
    def reading(x):
        return lambda t: x[t]

    x, y = torch.arange(13.0), torch.zeros(13)
    assert torch.equal(through_a_closure(y, torch.zeros(13), reading(x)), x * 3)
    result = through_a_closure(x, torch.zeros(13), reading(x))
    assert torch.equal(result, torch.arange(13.0) * 4)


@helion.kernel
def from_a_dict(tensors, out):
    for t in hl.tile(out.size(0)):
        tensors["y"][t] = tensors["x"][t] * 2
        out[t] = tensors["x"][t] + tensors["y"][t]
    return out


def test_a_container_may_hold_one_tensor_twice() -> None:
    x, y = torch.arange(13.0), torch.zeros(13)
    assert torch.equal(from_a_dict({"x": x, "y": y}, torch.zeros(13)), x * 3)
    result = from_a_dict({"x": x, "y": x}, torch.zeros(13))
    assert torch.equal(result, torch.arange(13.0) * 4)


@helion.kernel
def add_into(x, y):
    for t in hl.tile(x.size(0)):
        x[t] += y[t]


def test_in_place(traces: list[str]) -> None:
    x, y = torch.arange(13.0), torch.ones(13)
    assert add_into(x, y) is None
    assert torch.equal(x, torch.arange(13.0) + 1)
    add_into(x, x)
    assert torch.equal(x, (torch.arange(13.0) + 1) * 2)
    add_into(x, y)
    assert len(traces) == 2


def test_reading_one_tensor_twice_needs_no_other_kernel(traces: list[str]) -> None:
    @helion.kernel
    def product(x, y):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t] * y[t]
        return out

    x, y = torch.arange(13.0), torch.full((13,), 3.0)
    assert torch.equal(product(x, x), x * x)
    assert torch.equal(product(x, y), x * 3)
    assert torch.equal(product(y, x), x * 3)
    assert len(traces) == 1


def test_overlapping_views_of_host_code() -> None:
    @helion.kernel
    def shifted(x):
        left, right = x[:-1], x[1:]
        out = torch.empty_like(left)
        for t in hl.tile(left.size(0)):
            out[t] = left[t] + right[t]
        return out

    x = torch.arange(13.0)
    assert torch.equal(shifted(x), x[:-1] + x[1:])


@helion.kernel
def through_a_view(x, y):
    flat = x.view(-1)
    for t in hl.tile(flat.size(0)):
        flat[t] = y[t] + 1
        flat[t] = flat[t] + y[t]
    return x


def test_a_view_made_by_host_code_writes_its_argument() -> None:
    y = torch.arange(12.0)
    assert torch.equal(through_a_view(torch.zeros(3, 4), y).view(-1), 2 * y + 1)
    shared = torch.arange(12.0)
    assert torch.equal(through_a_view(shared.view(3, 4), shared).view(-1), 2 * (y + 1))


def test_halves_of_one_buffer_are_no_aliases() -> None:
    write_then_read.reset()
    expected = torch.arange(13.0) * 3
    assert torch.equal(run(torch.arange(13.0), torch.zeros(13)), expected)
    buffer = torch.cat([torch.arange(13.0), torch.zeros(13)])
    assert torch.equal(run(buffer[:13], buffer[13:]), expected)
    buffer = torch.arange(14.0)
    # Overlapping by all elements but one, each program reads what it has just written.
    assert torch.equal(run(buffer[:13], buffer[:13]), torch.arange(13.0) * 4)
