"""``deterministic=True``: no schedule whose last bits depend on the order of programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.matmul_split_k import matmul_split_k
from tilesmith import exc
from tilesmith.autotuner import PowerOfTwoFragment
from tilesmith.numerics.compare import check_against
from tilesmith.numerics.inputs import random_tensor


def row_sums(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(0)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile(x.size()):
        hl.atomic_add(out, [tile_m], x[tile_m, tile_n].sum(-1))
    return out


def histogram(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(out, [tile.index % out.size(0)], x[tile])
    return out


def extremes(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        hl.atomic_max(out, [tile.index % out.size(0)], x[tile])
    return out


def own_elements(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile_m, tile_n in hl.tile(x.size()):
        hl.atomic_add(out, [tile_m, tile_n], x[tile_m, tile_n])
    return out


def batches(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(1)], dtype=x.dtype, device=x.device)
    for b in hl.grid(x.size(0)):
        for tile in hl.tile(x.size(1)):
            hl.atomic_add(out, [tile], x[b, tile])
    return out


def split_rows(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(0)], dtype=x.dtype, device=x.device)
    parts = hl.register_tunable("parts", PowerOfTwoFragment(1, 16, 8))
    block = helion.next_power_of_2(helion.cdiv(x.size(1), parts))
    for tile_m, tile_n in hl.tile(x.size(), block_size=[None, block]):
        hl.atomic_add(out, [tile_m], x[tile_m, tile_n].sum(-1))
    return out


def flat_rows(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for row in hl.grid(x.size(0)):
        for tile in hl.tile(x.size(1)):
            hl.atomic_add(out, [row * x.size(1) + tile.index], x[row, tile])
    return out


def ranks(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x, dtype=torch.int32)
    for i in hl.grid(x.size(0)):
        out[i] = hl.atomic_add(count, [0], 1)
    return out


def deterministic(function: Any, **settings: Any) -> Any:
    return helion.kernel(function, deterministic=True, **settings)


@pytest.mark.parametrize("columns", [1, 64, 700, 1024])
def test_tiles_grow_until_one_program_has_all_terms(columns: int) -> None:
    x = random_tensor((37, columns), torch.float32)
    kernel = deterministic(row_sums)
    bound = kernel.bind((x,))
    assert bound.default_config().block_sizes[1] >= columns
    assert bound.order_dependence(bound.default_config()) == ""
    check_against(kernel(x), x.double().sum(1), reduction_length=columns)


@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
def test_a_search_is_offered_no_tile_that_splits_a_sum(target: str) -> None:
    x = random_tensor((100, 700), torch.float32)
    spec = deterministic(row_sums).bind((x,), target=target).config_spec
    free = helion.kernel(row_sums).bind((x,), target=target).config_spec
    drawn = [
        {one.random_config(Random(seed)).block_sizes[1] for seed in range(20)}
        for one in (spec, free)
    ]
    assert drawn[0] == {1024}
    assert len(drawn[1]) > 2
    assert all(config.block_sizes[1] == 1024 for config in spec.seed_configs())


def test_sums_that_no_tile_holds_are_refused_with_their_line() -> None:
    x = random_tensor((2, 1 << 15), torch.float32)
    with pytest.raises(exc.NondeterministicKernel) as caught:
        deterministic(row_sums)(x)
    text = str(caught.value)
    assert "floats are added to `out` in any order" in text
    assert "hl.atomic_add(out, [tile_m], x[tile_m, tile_n].sum(-1))" in text
    assert "programs that differ along tile_n" in text
    assert "add them up in a second loop" in text


@pytest.mark.parametrize("function", [histogram, batches])
def test_sources_that_need_atomics_of_several_programs_are_refused(function: Any) -> None:
    args = (torch.randn(100), torch.zeros(10)) if function is histogram else (torch.randn(5, 20),)
    with pytest.raises(exc.NondeterministicKernel):
        deterministic(function)(*args)
    with pytest.raises(exc.NondeterministicKernel):
        deterministic(function).bind(args).to_triton_code()
    helion.kernel(function)(*args)


def test_runtime_sizes_cannot_be_shown_to_fit() -> None:
    x = random_tensor((37, 64), torch.float32)
    with pytest.raises(exc.NondeterministicKernel):
        deterministic(row_sums, static_shapes=False)(x)


def test_exact_atomics_and_elements_of_ones_own_are_fine() -> None:
    x, out = torch.randn(100), torch.full((10,), -100.0)
    assert torch.equal(deterministic(extremes)(x, out), x.view(10, 10).amax(0))
    counts = torch.randint(0, 5, (100,))
    found = deterministic(histogram)(counts, torch.zeros(10, dtype=torch.int64))
    assert torch.equal(found, counts.view(10, 10).sum(0))
    y = torch.randn(33, 65)
    assert torch.equal(deterministic(own_elements)(y, torch.zeros(33, 65)), y)

    flat = deterministic(flat_rows)(y, torch.zeros(33 * 65))
    assert torch.equal(flat.view(33, 65), y)


def test_integers_that_come_out_in_any_order_are_refused_with_their_line() -> None:
    args = (torch.randn(100), torch.zeros(1, dtype=torch.int32))
    with pytest.raises(exc.NondeterministicKernel) as caught:
        deterministic(ranks)(*args)
    text = str(caught.value)
    assert "previous values are taken from `count` in any order: they differ from run to" in text
    assert "out[i] = hl.atomic_add(count, [0], 1)" in text
    assert "programs that differ along i meet in one element" in text
    assert sorted(helion.kernel(ranks)(*args).tolist()) == list(range(100))


def test_split_k_is_left_to_one_program() -> None:
    x, y = random_tensor((40, 256), torch.float32), random_tensor((256, 24), torch.float32, seed=1)
    kernel = deterministic(matmul_split_k.fn)
    config = kernel.bind((x, y)).default_config()
    assert config["split_k"] == 1
    check_against(kernel(x, y), x.double() @ y.double(), reduction_length=256)
    with pytest.raises(exc.NondeterministicKernel, match="outer_k"):
        kernel.bind((x, y)).compile_config(config.updated(split_k=4))(x, y)
    with pytest.raises(exc.NondeterministicKernel, match="outer_k"):
        kernel.bind((x, y)).to_triton_code(config.updated(split_k=4))


def test_the_default_of_a_tunable_gives_way() -> None:
    x = random_tensor((30, 500), torch.float32)
    kernel = deterministic(split_rows)
    assert kernel.bind((x,)).default_config()["parts"] == 1
    assert helion.kernel(split_rows).bind((x,)).default_config()["parts"] == 8
    check_against(kernel(x), x.double().sum(1), reduction_length=500)


def test_the_interpreter_runs_programs_in_order_anyway() -> None:
    x, out = torch.randn(100), torch.zeros(10)
    kernel = deterministic(histogram, backend="reference")
    torch.testing.assert_close(kernel(x, out), x.view(10, 10).sum(0))


@pytest.fixture
def torch_deterministic() -> Iterator[Callable[..., None]]:
    yield torch.use_deterministic_algorithms
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("config", [None, helion.Config(block_sizes=[8, 64])])
def test_torch_may_ask_for_determinism_at_any_time(torch_deterministic, config) -> None:
    x = random_tensor((37, 700), torch.float32)
    kernel = helion.kernel(row_sums, config=config)
    kernel(x)
    bound = kernel.bind((x,))
    bound.set_config(helion.Config(block_sizes=[8, 64]))
    torch_deterministic(True)
    check_against(kernel(x), x.double().sum(1), reduction_length=700)
    first = [kernel(x) for _ in range(3)]
    assert all(torch.equal(first[0], other) for other in first)
    whole = deterministic(row_sums)
    assert torch.equal(first[0], whole(x)), "the schedule of deterministic=True"
    assert bound.compile_config(helion.Config(block_sizes=[8, 64]))(x).tolist() == whole(x).tolist()
    torch_deterministic(False)
    check_against(kernel(x), x.double().sum(1), reduction_length=700)


def test_what_cannot_be_ordered_is_refused_by_the_users_line(torch_deterministic, capsys) -> None:
    kernel = helion.kernel(histogram)
    args = (torch.randn(100), torch.zeros(10))
    torch_deterministic(True)
    with pytest.raises(exc.NondeterministicAlgorithm):
        kernel(*args)
    with pytest.raises(exc.NondeterministicAlgorithm) as caught:
        kernel(*args)
    text = str(caught.value)
    assert "hl.atomic_add(out, [tile.index % out.size(0)], x[tile])" in text
    assert "torch.use_deterministic_algorithms(True) asks for the same bits" in text
    assert "leave deterministic=True" not in text
    assert isinstance(caught.value, RuntimeError), "as torch's own refusals"
    torch_deterministic(True, warn_only=True)
    out = kernel(args[0], torch.zeros(10))
    torch.testing.assert_close(out, args[0].view(10, 10).sum(0))
    kernel(*args)
    printed = capsys.readouterr().err
    assert printed.count("WARNING[NondeterministicResult]") == 1
    assert "hl.atomic_add(out, [tile.index % out.size(0)], x[tile])" in printed


def test_torch_is_not_asked_where_the_order_does_not_matter(torch_deterministic) -> None:
    y = torch.randn(33, 65)
    kernel = helion.kernel(own_elements)
    torch_deterministic(True)
    assert torch.equal(kernel(y, torch.zeros(33, 65)), y)
    bound = kernel.bind((y, torch.zeros(33, 65)))
    assert bound._active is not None
    assert bound.call is bound._active.recognised


def test_the_interpreter_needs_no_permission(torch_deterministic) -> None:
    x, out = torch.randn(100), torch.zeros(10)
    torch_deterministic(True)
    kernel = helion.kernel(histogram, backend="reference")
    torch.testing.assert_close(kernel(x, out), x.view(10, 10).sum(0))
