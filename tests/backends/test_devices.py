"""Limits and rates of targets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilesmith.backends.table import BACKENDS
from tilesmith.schedule.model.estimates import Device
from tilesmith.targets import CPU, Target, parse_target

GPUS = ("cuda:80", "cuda:86", "cuda:89", "cuda:90", "cuda:100", "cuda:120", "hip:gfx942",
        "hip:gfx950")  # fmt: skip
CPUS = ("cpu:avx512", "cpu:avx2", "cpu:sse", "cpu:neon")
CLASSES = ("f64", "f32", "tf32", "bf16", "f16", "f8e4m3", "i8")


def device_of(target: Target) -> Device:
    return BACKENDS.rules(target).device()


@pytest.mark.parametrize("name", GPUS)
def test_limits_agree_with_the_target(name):
    target = parse_target(name)
    device = device_of(target)
    assert device.num_sms == target.num_sms
    assert device.warp_size == target.warp_size
    assert device.shared_bytes == target.shared_bytes
    assert device.shared_per_sm >= device.shared_bytes
    assert device.max_warps * device.warp_size in (1536, 2048)


@pytest.mark.parametrize("name", [*GPUS, *CPUS])
def test_rates_have_a_sensible_order(name):
    device = device_of(parse_target(name))
    assert 0 < device.dram_rate < device.l2_rate
    assert all(device.matrix_rate(kind) > 0 for kind in CLASSES)
    assert device.matrix_rate("bf16") == device.matrix_rate("f16") >= device.matrix_rate("tf32")
    assert device.matrix_rate("tf32") >= device.matrix_rate("f32")
    assert device.matrix_rate("tf32x3") == pytest.approx(device.matrix_rate("tf32") / 3)
    assert device.special_rate < device.vector_rate


def test_models_of_one_architecture_differ_in_memory_only():
    h200 = device_of(parse_target("cuda:90"))
    h100 = device_of(replace(parse_target("cuda:90"), model="NVIDIA H100 80GB HBM3"))
    assert h100.dram_rate < 0.75 * h200.dram_rate
    assert h100.matrix_rates == h200.matrix_rates
    assert device_of(replace(parse_target("cuda:90"), model="NVIDIA H200")) == h200


def test_a_live_count_of_multiprocessors_scales_what_they_do():
    whole = device_of(parse_target("cuda:90"))
    part = device_of(replace(parse_target("cuda:90"), num_sms=66))
    assert part.matrix_rate("bf16") == pytest.approx(whole.matrix_rate("bf16") / 2)
    assert part.dram_rate == whole.dram_rate


def test_unknown_targets_take_the_next_older_ones_figures():
    assert device_of(parse_target("cuda:75")).name == "A100"
    assert device_of(parse_target("cuda:103")).name == "B200"
    assert device_of(CPU).num_sms == 1


def test_the_model_of_a_device_does_not_make_another_target():
    target = parse_target("cuda:90")
    named = replace(target, model="NVIDIA H200")
    assert named == target
    assert hash(named) == hash(target)
