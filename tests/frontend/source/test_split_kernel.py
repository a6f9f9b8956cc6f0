"""Host and device code of a kernel as two functions, and what crosses from one to the other."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest
import torch

import tilesmith.language as hl
from tilesmith.frontend.source.kernel_source import find_loops, read_kernel
from tilesmith.frontend.source.split_kernel import SplitKernel, split_kernel

SCALE = 2.0


def scale_rows(x, flag):
    n = x.size(0)
    if flag:
        bias = 1.0
    out = torch.empty_like(x)
    for t in hl.tile(n):
        out[t] = x[t] * SCALE + bias  # pyright: ignore[reportPossiblyUnboundVariable]
    return out, n


def split(function: Any) -> SplitKernel:
    return split_kernel(find_loops(read_kernel(function)))


def test_arguments_host_names_and_data_of_the_module_are_captured_in_one_order() -> None:
    assert split(scale_rows).captured == ("x", "n", "bias", "out", "SCALE")


def test_parameters_that_host_code_rebinds_are_not_keyed() -> None:
    def rebinds(x, y):
        x = x.contiguous()
        for t in hl.tile(y.size(0)):
            y[t] = x[t]

    assert split(scale_rows).keyed == {"x", "flag"}
    assert split(rebinds).keyed == {"y"}


@pytest.mark.parametrize(("flag", "bias"), [(True, 1.0), (False, None)])
def test_host_code_hands_over_what_it_has_and_goes_on_after_the_launch(
    flag: bool, bias: float | None
) -> None:
    seen: list[Any] = []

    def launch(*captured: Any) -> None:
        seen.extend(captured)

    launch.device = torch.device("cpu")  # type: ignore[attr-defined]
    x = torch.zeros(3)
    out, n = split(scale_rows).host_function()(launch, x, flag)
    assert seen[0] is x
    assert seen[1:3] == [3, bias]
    assert seen[3] is out
    assert n == 3


def test_host_code_sees_later_changes_of_its_module() -> None:
    host = split(scale_rows).host_function()
    assert host.__globals__ is scale_rows.__globals__
    assert isinstance(host, FunctionType)


def test_made_up_functions_bear_the_kernel_s_name() -> None:
    kernel = split(scale_rows)
    codes = [c for c in kernel.device_code.co_consts if hasattr(c, "co_name")]
    assert {code.co_name for code in codes} == {"scale_rows"}
    assert {code.co_filename for code in codes} == {__file__}
