"""Targets by name."""

from __future__ import annotations

import pytest

from tilesmith.targets import CPU, CPU_ARCHITECTURES, cuda_target, parse_target


@pytest.mark.parametrize(
    "name", ["cpu", "cuda:80", "cuda:90", "hip:gfx942", *(f"cpu:{n}" for n in CPU_ARCHITECTURES)]
)
def test_a_target_prints_as_it_is_read(name: str):
    assert str(parse_target(name)) == name


def test_cpus_have_lanes_and_caches():
    assert parse_target("cpu") == CPU
    lanes = {name: parse_target(f"cpu:{name}").vector_lanes for name in CPU_ARCHITECTURES}
    assert lanes == {"avx512": 16, "avx2": 8, "sse": 8, "neon": 8}
    typical = parse_target("cpu:avx2")
    assert not typical.is_gpu
    assert (typical.l1_bytes, typical.l2_bytes) == (32 << 10, 1 << 20)
    assert typical.num_sms > 1
    assert not typical.features


@pytest.mark.parametrize("name", ["cpu:mmx", "gpu", "cpu:AVX2 ", "neon"])
def test_unknown_targets_are_told_with_the_known_ones(name: str):
    with pytest.raises(ValueError, match=r"unknown target .*cpu:avx512, cpu:avx2"):
        parse_target(name)


@pytest.mark.parametrize("name", ["cuda:999", "cuda:12", "cuda", "cuda:sm_91"])
def test_gpus_that_do_not_exist_are_refused(name: str):
    # Any two or three digits were taken, and the mistake showed in ptxas or not at all.
    with pytest.raises(ValueError, match=rf"unknown target '{name}': .*cuda:89, cuda:90"):
        parse_target(name)
    with pytest.raises(ValueError, match=r"unknown target 'hip:gfx1': .*hip:gfx942"):
        parse_target("hip:gfx1")


def test_a_gpu_that_is_here_may_be_newer_than_the_list():
    assert cuda_target(130).shared_bytes == cuda_target(120).shared_bytes
