"""Tests of this folder that the PTX machine does not run, and why."""

from __future__ import annotations

from typing import NamedTuple

import pytest


class LeftOut(NamedTuple):
    """Tests of a file whose name, parameters included, begins with one of these; or all."""

    file: str
    reason: str
    tests: tuple[str, ...] = ("",)


TIMES = "the machine has no times"
ORDERS = "the machine has no streams, graphs or devices: a call returns when all is done"
SIZES = "the machine would take hours"
LEFT_OUT = (
    LeftOut("test_bench_on_gpu.py", TIMES),
    LeftOut("test_tuning_on_gpu.py", TIMES),
    LeftOut("test_streams_on_gpu.py", ORDERS),
    LeftOut("test_suites_on_gpu.py", SIZES),
    LeftOut("test_packages_on_gpu.py", "packages hold cubins, and run where Triton is not"),
    LeftOut(
        "test_visible_on_gpu.py",
        "profilers see nothing of the machine",
        ("test_traces", "test_calls_run_under_nvtx"),
    ),
    LeftOut(
        "test_fast_calls_on_gpu.py",
        ORDERS,
        (
            *("test_calls_run_on", "test_the_device_may", "test_tensors_of_the_cpu"),
            *("test_devices_take_turns", "test_recorded", "test_no_tensor_is_kept"),
            *("test_tensors_may_go", "test_threads_with_streams"),
        ),
    ),
    LeftOut(
        "test_fast_calls_on_gpu.py",
        "NaN has other bits in the machine than in eager, which runs on the host",
        ("test_random_host_code[30]",),
    ),
    LeftOut(
        "test_kernels_on_gpu.py",
        SIZES,
        ("test_dot_compress", "test_more_elements", "test_offsets_beyond"),
    ),
    LeftOut(
        "test_warp_roles_on_gpu.py",
        "its cases have run by then",
        ("test_random_configs_differ",),
    ),
)


def why_left_out(item: pytest.Item) -> str:
    """The reason, or nothing."""
    fitting = (x for x in LEFT_OUT if x.file == item.path.name and item.name.startswith(x.tests))
    return next((x.reason for x in fitting), "")
