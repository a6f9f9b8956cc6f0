"""A suite of operators that hang: one while its input is made, one in its second call."""

from __future__ import annotations

import time

import torch

from tests.bench.tiny_suite import double_operator, eager_double
from tilesmith.bench.case import Arguments, Input, Operator, Suite

NAME = "tests.bench.hanging_suite"
CALLS: list[torch.Tensor] = []


def make_never(device: torch.device, dtype: torch.dtype) -> Arguments:
    time.sleep(1000)
    return ()


def hangs_the_second_time(x: torch.Tensor) -> torch.Tensor:
    CALLS.append(x)
    if len(CALLS) == 2:
        time.sleep(1000)
    return x * 2


def suite() -> Suite:
    others = {"by_hand": f"{NAME}:hangs_the_second_time"}
    never = [Input("never", make_never, torch.float32)]
    return Suite(
        "hanging",
        [
            Operator("inputs", never, {}, eager_double, others=others),
            Operator("calls", double_operator().inputs[1:2], {}, eager_double, others=others),
        ],
    )
