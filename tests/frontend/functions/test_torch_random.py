"""torch's random functions in device code: repeatable, fresh at each launch, well distributed."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend
from tilesmith import exc

COUNT = 40_000
backends = pytest.mark.parametrize("backend", BACKENDS)


@helion.kernel
def uniform_twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.empty_like(x), torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        first[t] = torch.rand_like(x[t])
        second[t] = torch.rand([t])
    return first, second


@helion.kernel
def normal(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = torch.randn_like(x[t])
    return out


@helion.kernel
def dropped(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = functional.dropout(x[t], p=0.3)
    return out


@helion.kernel
def whole(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.size(), dtype=torch.int64, device=x.device)
    for t in hl.tile(x.size(0)):
        out[t] = torch.randint(-2, 5, [t])
    return out


@helion.kernel
def coins(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = torch.bernoulli(x[t])
    return out


@helion.kernel
def half_precision(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = torch.rand_like(x[t], dtype=torch.float64).to(torch.float32)
    return out


@helion.kernel
def whole_like(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = torch.rand_like(x[t])
    return out


@helion.kernel
def not_training(x: torch.Tensor, p: hl.constexpr) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = functional.dropout(x[t], p, training=False) + functional.dropout(x[t], 1.0)
    return out


@backends
@pytest.mark.parametrize("static_shapes", [True, False])
def test_a_seed_repeats_the_numbers_and_launches_differ(backend: str, static_shapes: bool) -> None:
    kernel = on_backend(uniform_twice, backend, static_shapes=static_shapes)
    x = torch.zeros(77)
    torch.manual_seed(3)
    first, again = kernel(x), kernel(x)
    torch.manual_seed(3)
    repeated = kernel(x)
    assert torch.equal(first[0], repeated[0])
    assert torch.equal(first[1], repeated[1])
    assert not torch.equal(first[0], again[0])
    assert not torch.equal(first[0], first[1])


def test_backends_and_configs_give_the_same_numbers() -> None:
    x, found = torch.zeros(77), []
    for backend in BACKENDS:
        for block in (8, 32):
            bound = on_backend(uniform_twice, backend).bind((x,))
            torch.manual_seed(5)
            found.append(bound.compile_config(helion.Config(block_sizes=[block]))(x)[1])
    assert all(torch.equal(found[0], other) for other in found)


def test_compiling_draws_nothing() -> None:
    x = torch.zeros(77)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    on_backend(normal, "cpu", index_dtype=torch.int64).bind((x,))
    assert torch.equal(torch.rand(3), expected)


def test_normal_numbers_have_their_moments() -> None:
    torch.manual_seed(1)
    values = on_backend(normal, "cpu")(torch.zeros(COUNT)).double()
    assert values.isfinite().all()
    assert abs(values.mean()) < 5 / math.sqrt(COUNT)
    assert abs(values.var() - 1) < 5 * math.sqrt(2 / COUNT)
    assert abs((values > 1.959964).double().mean() - 0.025) < 5 * math.sqrt(0.025 / COUNT)
    assert abs((values[1:] * values[:-1]).mean()) < 5 / math.sqrt(COUNT)


def test_uniform_numbers_fill_the_interval() -> None:
    torch.manual_seed(1)
    values, _ = on_backend(uniform_twice, "cpu")(torch.zeros(COUNT))
    assert values.min() >= 0
    assert values.max() < 1
    counts = torch.histc(values, 10, 0, 1)
    assert (counts - COUNT / 10).abs().max() < 5 * math.sqrt(COUNT / 10)


def test_dropout_keeps_the_mean() -> None:
    torch.manual_seed(1)
    values = on_backend(dropped, "cpu")(torch.full([COUNT], 2.0))
    kept = values != 0
    assert torch.equal(values[kept], torch.full_like(values[kept], 2 / 0.7))
    assert abs(kept.double().mean() - 0.7) < 5 * math.sqrt(0.21 / COUNT)


def test_dropout_that_drops_nothing_or_everything() -> None:
    x = torch.randn(13)
    assert torch.equal(on_backend(not_training, "reference")(x, 0.5), x)


def test_whole_numbers_are_in_their_range() -> None:
    values = on_backend(whole, "cpu")(torch.zeros(COUNT))
    counts = torch.bincount(values + 2, minlength=7)
    assert values.dtype == torch.int64
    assert len(counts) == 7
    assert (counts - COUNT / 7).abs().max() < 5 * math.sqrt(COUNT / 7)


def test_bernoulli_follows_each_probability() -> None:
    chances = torch.cat([torch.zeros(99), torch.ones(99), torch.full([COUNT], 0.2)])
    values = on_backend(coins, "cpu")(chances)
    assert not values[:99].any()
    assert values[99:198].all()
    assert abs(values[198:].double().mean() - 0.2) < 5 * math.sqrt(0.16 / COUNT)


def test_a_saved_module_draws_its_seed_too() -> None:
    bound = uniform_twice.bind((torch.zeros(8),), target="cuda:90")
    source = bound.to_triton_code(helion.Config(block_sizes=[8]))
    assert source.count("torch.randint(") == 1


def test_whole_numbers_are_no_uniform_numbers() -> None:
    with pytest.raises(exc.InvalidAPIUsage, match="i32 has no fractions"):
        whole_like(torch.zeros(8, dtype=torch.int32))
