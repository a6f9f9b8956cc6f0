"""Containers among the arguments: their structure is static, their tensors and numbers are not."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc

ONES = torch.ones(13)


@dataclasses.dataclass
class Affine:
    weight: torch.Tensor
    bias: torch.Tensor | None
    scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    weight: torch.Tensor
    times: int


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


class Point(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@helion.kernel
def total(xs):
    out = torch.empty_like(xs[0])
    for t in hl.tile(out.size(0)):
        value = hl.zeros([t])
        for x in xs:
            value = value + x[t]
        out[t] = value
    return out


def fill(*numbers: float) -> list[torch.Tensor]:
    return [torch.full((13,), float(number)) for number in numbers]


@pytest.fixture(autouse=True)
def fresh() -> None:
    for kernel in (total, affine, named, by_key, weighted):
        kernel.reset()


def test_lists_and_tuples(traces: list[str]) -> None:
    assert torch.equal(total(fill(1, 2, 3)), ONES * 6)
    assert torch.equal(total(fill(4, 5, 6)), ONES * 15)
    assert torch.equal(total(fill(4, 5)), ONES * 9)
    assert torch.equal(total(tuple(fill(4, 5))), ONES * 9)
    assert len(traces) == 3


@helion.kernel
def affine(x, parts):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        value = x[t] * parts.weight[t] * parts.scale
        if parts.bias is not None:
            value = value + parts.bias[t]
        out[t] = value
    return out


def test_dataclasses(traces: list[str]) -> None:
    weight, bias = fill(2, 3)
    assert torch.equal(affine(ONES, Affine(weight, bias)), ONES * 5)
    assert torch.equal(affine(ONES, Affine(bias, weight, 0.5)), ONES * 3.5)
    assert len(traces) == 1
    assert torch.equal(affine(ONES, Affine(weight, None, 0.25)), ONES * 0.5)
    assert len(traces) == 2


def test_frozen_dataclasses() -> None:
    @helion.kernel
    def times(x, frozen):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = frozen.weight[t] * frozen.times
        return out

    for number in (2, 5):
        assert torch.equal(times(ONES, Frozen(fill(3)[0], number)), ONES * 3 * number)


@helion.kernel
def named(pair):
    out = torch.empty_like(pair.left)
    for t in hl.tile(out.size(0)):
        out[t] = pair.left[t] - pair.right[t]
    return out


def test_named_tuples(traces: list[str]) -> None:
    left, right = fill(7, 3)
    assert torch.equal(named(Pair(left, right)), ONES * 4)
    assert torch.equal(named(Pair(right, left)), ONES * -4)
    assert len(traces) == 1


def test_a_named_tuple_of_another_class_is_another_kernel() -> None:
    @helion.kernel
    def difference(point):
        out = torch.empty_like(point[0])
        for t in hl.tile(out.size(0)):
            out[t] = point[0][t] - point[1][t]
        return out

    left, right = fill(7, 3)
    assert torch.equal(difference(Pair(left, right)), ONES * 4)
    assert torch.equal(difference(Point(left, right)), ONES * 4)


@helion.kernel
def by_key(parts):
    out = torch.empty_like(parts["first"])
    for t in hl.tile(out.size(0)):
        value = hl.zeros([t])
        position = 1
        for name in list(parts):
            value = value + parts[name][t] * position
            position = position + 1
        out[t] = value
    return out


def test_dicts_keep_their_order() -> None:
    one, two = fill(1, 2)
    assert torch.equal(by_key({"first": one, "second": two}), ONES * 5)
    assert torch.equal(by_key({"second": two, "first": one}), ONES * 4)
    assert torch.equal(by_key({"first": two}), ONES * 2)


@helion.kernel
def weighted(x, weights):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * weights["scale"][0] + weights["shift"]
    return out


def test_numbers_in_containers_are_runtime_values(traces: list[str]) -> None:
    for scale, shift in ((2.0, 3), (0.5, -1), (4.0, 0)):
        result = weighted(ONES, {"scale": [scale], "shift": shift})
        assert torch.equal(result, ONES * scale + shift)
    assert len(traces) == 1


def test_specialize_a_number_in_a_container(traces: list[str]) -> None:
    @helion.kernel
    def unrolled(x, sizes):
        n = hl.specialize(sizes[1])
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            value = x[t]
            for _ in hl.static_range(n):
                value = value * 2
            out[t] = value
        return out

    for n in (1, 3, 1):
        assert torch.equal(unrolled(ONES, [7, n]), ONES * 2**n)
    assert len(traces) == 2


def test_lists_of_the_host_cannot_be_changed_by_device_code() -> None:
    @helion.kernel
    def changes(xs):
        out = torch.empty_like(xs[0])
        for t in hl.tile(out.size(0)):
            xs.append(1)
            out[t] = xs[0][t]
        return out

    with pytest.raises(exc.CapturedListMutation):
        changes(fill(1, 2))


def test_tensors_of_containers_must_be_on_one_device() -> None:
    meta = torch.empty(13, device="meta")
    with pytest.raises(exc.TensorsOnDifferentDevices, match=r"parts\.bias"):
        affine(ONES, Affine(ONES, meta))
