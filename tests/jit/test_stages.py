"""Kernels of several launches: traces, configs, code and tuning of their stages."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.autotuner import IntegerFragment
from tilesmith.jit.staging.source import find_stages


@helion.kernel
def host_loop(x: torch.Tensor, steps: int) -> torch.Tensor:
    out = x.clone()
    for i in range(steps):
        for t in hl.tile(x.size(0)):
            out[t] = out[t] * 2 + i
    return out


@helion.kernel
def two_launches(x: torch.Tensor, tag: list[str]) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + 1
    tag.append("between")
    for t in hl.tile(x.size(0)):
        out[t] = out[t] * 2
    return out


@helion.kernel
def in_place(x: torch.Tensor, flag: bool) -> None:
    if flag:
        for t in hl.tile(x.size(0)):
            x[t] = x[t] + 1


@helion.kernel
def one_launch(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + 1
    hl.barrier()
    for t in hl.tile(x.size(0)):
        out[t] = out[t] * 2
    return out


@helion.kernel
def tuned_split(x: torch.Tensor) -> torch.Tensor:
    parts = hl.register_tunable("parts", IntegerFragment(1, 8, 2))
    out = torch.zeros([parts], dtype=x.dtype)
    if parts > 1:
        for t in hl.tile(parts):
            out[t] = out[t] + parts
    return out


def test_the_variable_of_a_host_loop_costs_one_more_trace(traces) -> None:
    x = torch.randn(5)
    for steps in (5, 3, 7):
        expected = x.clone()
        for i in range(steps):
            expected = expected * 2 + i
        torch.testing.assert_close(host_loop(x, steps), expected)
    assert traces == ["host_loop_1"] * 2


def test_shapes_reuse_what_dynamic_shapes_traced(traces) -> None:
    kernel = helion.kernel(host_loop.fn, static_shapes=False)
    for n in (5, 7, 12):
        assert kernel(torch.zeros(n), 3).shape == (n,)
    assert len(traces) <= 2


def test_a_call_runs_host_code_once() -> None:
    said: list[str] = []
    two_launches.reset()
    two_launches(torch.ones(3), said)
    assert said == ["between"]


def test_binding_leaves_arguments_alone() -> None:
    x = torch.ones(3)
    in_place.bind((x, True))
    assert torch.equal(x, torch.ones(3))
    in_place(x, True)
    assert torch.equal(x, torch.full((3,), 2.0))


def test_adjacent_loops_are_one_launch() -> None:
    assert find_stages(one_launch.definition.source) is None


def test_blocks_are_split_in_the_order_of_the_source() -> None:
    bound = two_launches.bind((torch.ones(9), []))
    text = bound.to_triton_code(helion.Config(block_sizes=[2, 4], num_warps=8), target="cuda:90")
    assert "T = tl.constexpr(2)" in text
    assert "tl.constexpr(4)" in text
    assert text.count("num_warps=8") == 2


def test_a_config_for_each_stage() -> None:
    bound = two_launches.bind((torch.ones(9), []))
    stages = [helion.Config(block_sizes=[2]), {"block_sizes": [4], "num_warps": 2}]
    text = bound.to_triton_code(helion.Config(stages=stages), target="cuda:90")
    assert "num_warps=2" in text
    assert "tl.constexpr(4)" in text


def test_set_config_counts_for_later_calls() -> None:
    kernel = helion.kernel(two_launches.fn)
    x = torch.ones(9)
    bound = kernel.bind((x, []))
    bound.set_config(helion.Config(block_sizes=[2, 4]))
    torch.testing.assert_close(kernel(x, []), (x + 1) * 2)
    assert [stage.chosen["block_sizes"] for stage in bound.stages] == [[2], [4]]  # pyright: ignore[reportAttributeAccessIssue]


def test_tuning_gives_a_config_of_all_stages() -> None:
    kernel = helion.kernel(two_launches.fn)
    x = torch.ones(9)
    config = kernel.autotune((x, []), budget=0)
    assert len(config["stages"]) == 2
    run = kernel.bind((x, [])).compile_config(config)
    torch.testing.assert_close(run(x, []), (x + 1) * 2)


def test_tuning_for_several_arguments_gives_a_config_of_all_stages() -> None:
    kernel = helion.kernel(two_launches.fn)
    sets = [(torch.ones(9), []), (torch.ones(700), [])]
    config = kernel.autotune_multi(sets, budget=0)
    assert len(config["stages"]) == 2
    for x, record in sets:
        assert record == []
        assert torch.equal(x, torch.ones_like(x))
        bound: Any = kernel.bind((x, []))
        assert [stage.chosen for stage in bound.stages] == [
            *map(helion.Config.from_dict, config["stages"])
        ]
        torch.testing.assert_close(kernel(x, []), (x + 1) * 2)
    with pytest.raises(ValueError, match="at least one"):
        kernel.autotune_multi([])


def test_tunables_of_host_code_come_from_the_config() -> None:
    x = torch.ones(3)
    assert tuned_split(x).shape == (2,)
    kernel = helion.kernel(tuned_split.fn, config=helion.Config(block_sizes=[4], parts=4))  # pyright: ignore[reportCallIssue]
    assert torch.equal(kernel(x), torch.full((4,), 4.0))
    other = helion.Config(block_sizes=[4]).updated(parts=8)
    text = tuned_split.bind((x,)).to_triton_code(other, target="cuda:90")
    assert "torch.zeros([parts]" in text
    assert "parts = 8" in text


@helion.kernel
def registered(x: torch.Tensor) -> tuple[torch.Tensor, int, int]:
    size = hl.register_block_size(16, 64)
    parts = hl.register_tunable("parts", IntegerFragment(1, 8, 2))
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0), block_size=size):
        out[t] = x[t] + t.block_size
    if parts > 0:
        for t in hl.tile(x.size(0)):
            out[t] = out[t] * 2
    return out, size, parts


def test_the_spec_has_what_host_code_registers() -> None:
    spec: Any = registered.bind((torch.ones(70),)).config_spec
    first, _ = spec.block_sizes
    assert (first.min_size, first.max_size) == (16, 64)
    assert set(spec.user_defined_tunables) == {"parts"}
    assert spec.supports_config_key("parts")
    default = spec.default_config()
    assert (default["block_sizes"], default["parts"]) == ([32], 2)
    full = spec.normalize({"block_sizes": [64, 8], "parts": 3})
    assert (full["block_sizes"], full["parts"]) == ([64], 3)
    assert full["stages"][1]["block_sizes"] == [8]
    assert spec.normalize(full) == full


def test_random_configs_have_a_part_for_each_stage() -> None:
    x = torch.arange(70.0)
    bound: Any = registered.bind((x,))
    wanted = bound(x)
    found = [bound.config_spec.random_config(random.Random(seed)) for seed in range(4)]
    assert len({str(config) for config in found}) > 1
    for config in found:
        assert bound.config_spec.normalize(config) == config
        for result, right in zip(bound.compile_config(config)(x), wanted):
            assert torch.equal(torch.as_tensor(result), torch.as_tensor(right))


@pytest.mark.parametrize("wrong", [{"block_sizes": [128, 8]}, {"parts": 9}])
def test_host_code_gets_nothing_outside_its_bounds(wrong: dict[str, Any]) -> None:
    x = torch.ones(70)
    bound: Any = registered.bind((x,))
    with pytest.raises(helion.exc.InvalidConfig):
        bound.config_spec.normalize(wrong)
    with pytest.raises(helion.exc.InvalidConfig):
        bound.set_config(wrong)
    with pytest.raises(helion.exc.InvalidConfig):
        helion.kernel(registered.fn, config=wrong)(x)  # pyright: ignore[reportArgumentType]


def test_host_code_gets_its_part_of_a_config() -> None:
    kernel: Any = helion.kernel(registered.fn)
    x = torch.ones(70)
    bound = kernel.bind((x,))
    config = bound.config_spec.normalize({"block_sizes": [64, 8], "parts": 3})
    assert bound.compile_config(config)(x)[1:] == (64, 3)
    bound.set_config(config)
    out, size, parts = kernel(x)
    assert (size, parts) == (64, 3)
    assert torch.equal(out, (x + 64) * 2)
    tuned = kernel.autotune((x,), budget=0)
    assert (tuned["block_sizes"], tuned["parts"]) == ([64], 3)


def test_checked_mode_checks_every_stage() -> None:
    kernel = helion.kernel(two_launches.fn, check=True)
    torch.testing.assert_close(kernel(torch.ones(3), []), torch.full((3,), 4.0))


def test_the_reference_runs_every_stage() -> None:
    x = torch.ones(9)
    torch.testing.assert_close(two_launches.bind((x, [])).run_ref(x, []), (x + 1) * 2)
