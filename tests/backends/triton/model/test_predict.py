"""Predicted times: against measured anchors, and in the direction in which times must change."""

from __future__ import annotations

from random import Random

import pytest
import torch

from examples.matmul_layernorm import matmul_layernorm
from tests.schedule import programs
from tests.specs import config_spec
from tilesmith.schedule.config import Config
from tilesmith.schedule.model.estimates import Prediction, blend
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.targets import parse_target

TARGETS = ["cuda:80", "cuda:90", "cuda:100", "hip:gfx942", "cpu:avx512"]


def spec_of(function, target: str = "cuda:90") -> ConfigSpec:
    return config_spec(function, parse_target(target))


def tile(*sizes: int, warps: int = 8, stages: int = 4, **more) -> Config:
    return Config(block_sizes=list(sizes), num_warps=warps, num_stages=stages, **more)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", programs.ALL)
def test_every_config_has_a_time_above_the_roofline(name, target):
    spec = spec_of(programs.ALL[name](), target)
    rng = Random(name)
    for config in (spec.default_config(), *(spec.random_config(rng) for _ in range(3))):
        predicted = spec.predict(config)
        assert predicted.total_ms > 0
        assert predicted.total_ms >= 0.99 * spec.model.roofline_ms()
        assert min(predicted.compute_ms, predicted.memory_ms, predicted.latency_ms) >= 0
        assert predicted.limiter
        assert str(predicted).startswith(f"{predicted.total_ms:.4g} ms")


# Measured on an H200 (median device time, cold L2): bf16 product of 4096 cubed with this tile.
def test_large_product_on_an_h200():
    spec = spec_of(programs.matmul(4096, 4096, 4096))
    assert spec.predict(tile(128, 256, 64)).total_ms == pytest.approx(0.183, rel=0.15)
    assert spec.model.roofline_ms() == pytest.approx(0.184, rel=0.1)


def test_rows_that_fit_registers_run_at_copy_speed():
    spec = spec_of(programs.softmax(8192, 8192))
    copied = 2 * 4 * 8192 * 8192 / 4.23e9
    assert spec.model.roofline_ms() == pytest.approx(copied, rel=0.01)
    assert spec.predict(spec.default_config()).total_ms == pytest.approx(copied, rel=0.1)


SLOWER = [
    ("narrow tiles", tile(64, 64, 64, warps=4)),
    ("no matrix instructions of Hopper", tile(32, 256, 64)),
    ("too few warps for the accumulator", tile(128, 128, 64, warps=2, stages=3)),
    ("spills", tile(256, 256, 64, stages=3)),
    ("no pipeline", tile(128, 256, 64, stages=1)),
]


@pytest.mark.parametrize(("why", "config"), SLOWER)
def test_bad_tiles_are_predicted_slower(why, config):
    spec = spec_of(programs.matmul(4096, 4096, 4096))
    assert spec.predict(config).total_ms > 1.3 * spec.predict(tile(128, 256, 64)).total_ms


def test_stages_help_until_loads_are_hidden():
    spec = spec_of(programs.matmul(4096, 4096, 4096))
    times = [spec.predict(tile(128, 128, 32, stages=s)).total_ms for s in (1, 2, 3, 4)]
    assert times == sorted(times, reverse=True)


def test_groups_of_rows_save_memory_traffic():
    spec = spec_of(programs.matmul(32768, 32768, 4096))
    plain, grouped = (
        spec.predict(tile(128, 128, 64, l2_groupings=[size])).memory_ms for size in (1, 8)
    )
    assert grouped < 0.5 * plain


def test_last_wave_counts():
    """One tile more than there are multiprocessors takes about twice as long."""
    full, more = (
        spec_of(programs.matmul(128 * n, 256, 8192)).predict(tile(128, 256, 64)).total_ms
        for n in (132, 133)
    )
    assert more > 1.7 * full


def test_chunks_of_a_row_are_read_again():
    spec = spec_of(programs.softmax(8192, 8192))
    whole = spec.predict(Config(block_sizes=[1], num_warps=8))
    chunked = spec.predict(Config(block_sizes=[1], num_warps=8, reduction_loops=[512]))
    assert chunked.total_ms > 1.5 * whole.total_ms


def test_strided_accesses_fetch_whole_sectors():
    along = spec_of(programs.pointwise()).predict(tile(1, 1024, warps=4, stages=1))
    across = spec_of(programs.pointwise()).predict(tile(1024, 1, warps=4, stages=1))
    assert across.compute_ms > 4 * along.compute_ms


def test_cores_of_a_cpu_share_programs():
    spec = spec_of(programs.matmul(1024, 1024, 1024, "f32"), "cpu:avx512")
    one = spec.predict(Config(block_sizes=[1024, 1024, 256]))
    many = spec.predict(Config(block_sizes=[128, 512, 256]))
    assert many.total_ms < 0.5 * one.total_ms


def test_tiny_tiles_of_a_cpu_pay_for_packing():
    spec = spec_of(programs.matmul(1024, 1024, 1024, "f32"), "cpu:avx512")
    tiny = spec.predict(Config(block_sizes=[16, 16, 16]))
    assert tiny.total_ms > 2 * spec.predict(spec.default_config()).total_ms


def test_blend_is_a_rounded_maximum():
    assert blend((3.0, 0.0)) == pytest.approx(3.0)
    assert 3.0 < blend((3.0, 3.0)) < 3.5
    assert blend(()) == 0.0


def test_prediction_in_words():
    text = str(Prediction(0.2, 0.19, 0.05, 0.1, 4.0, 1.0, "busy multiprocessors"))
    assert text.startswith("0.2 ms (compute 0.19, memory 0.05, latency 0.1): busy")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_two_launches_take_the_time_of_both(dtype: torch.dtype):
    size = 1024
    x, weight = torch.empty(2, size, dtype=dtype).unbind()
    tensors = torch.empty(size, size, dtype=dtype), torch.empty(size, size, dtype=dtype)
    spec = matmul_layernorm.bind((*tensors, x, weight), target="cuda:90").config_spec
    config = spec.default_config()
    assert config["structure"] == "two_launches"
    form, plain = spec.of(config)
    rows = form.model.predict(form.settle(plain)).total_ms
    assert form.function.before is not None
    product = ConfigSpec(form.function.before, spec.rules)
    both = spec.predict(config)
    assert both.total_ms >= rows + product.model.roofline_ms()
    assert both.total_ms > 2 * rows, "the product takes longer than its rows"
    assert "of the first launch" in both.limiter
    (ranked,) = [item for item in spec.ranked_configs() if item.config == config]
    assert ranked.predicted == both
