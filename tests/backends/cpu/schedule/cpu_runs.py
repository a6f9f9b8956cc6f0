"""Runs an example under any Config of a CPU target with the reference interpreter.

What runs is the function that ``schedule_function`` made, at the sizes of its schedule.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from typing import Any
from unittest.mock import patch

import torch

from tests.examples import (
    attention_cases,
    case,
    cases,
    founding_cases,
    gradient_cases,
    product_cases,
    recurrence_cases,
    row_cases,
)
from tests.lowering import schedule_function
from tests.specs import config_spec
from tilesmith.frontend.tracing.host_session import HostSession
from tilesmith.frontend.tracing.tracer import running_host
from tilesmith.jit.launchers import reference_launcher
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.targets import Target

MACHINE = Target("cpu", "avx512", num_sms=2, vector_lanes=16, l1_bytes=48 << 10, l2_bytes=2 << 20)
MAKERS = (
    *(attention_cases, case, founding_cases, gradient_cases),
    *(product_cases, recurrence_cases, row_cases),
)
"""Modules that make the arguments of examples."""
CASES = {case.name: case for case in cases.EXAMPLES}


class CpuKernel:
    """One example bound to arguments of one size."""

    def __init__(
        self, case: cases.Case, size: tuple[int, ...], dtype: torch.dtype | None = None
    ) -> None:
        inputs = case.make_inputs(size, dtype or case.dtypes[0], "cpu")
        self.args = case.kernel.normalize_args(*inputs)
        self._bound = case.kernel.bind(self.args)
        self._variants = self._bound.specialization
        self._tunables = self._variants.default.trace.session.tunable_fragments
        self.spec = self.spec_of(self._variants.default)

    def spec_of(self, variant: Any, target: Target = MACHINE) -> ConfigSpec:
        return config_spec(variant.function, target, self._tunables)

    def spec_on(self, target: Target) -> ConfigSpec:
        return self.spec_of(self._variants.default, target)

    def run(self, config: Config) -> Any:
        """What host code returns when its device code runs under the Config."""
        config = self.spec.normalize(config)
        variant = self._variants.find(config)
        spec = self.spec_of(variant)
        function, schedule = schedule_function(variant.function, spec, config)
        split = self._bound.definition.split
        launch = reference_launcher(
            function, schedule.symbols, split.captured, variant.trace.constants
        )
        blocks = dict(enumerate(config.block_sizes))
        tunables = {name: config[name] for name in self._tunables}
        with running_host(HostSession(blocks, tunables)):
            return split.host_function()(launch, *self.args)


@cache
def spec_at(name: str, size: tuple[int, ...], dtype: torch.dtype = torch.float32) -> ConfigSpec:
    """The specification for arguments of any size; nothing is ever written to their memory."""

    def untouched(shape: Any, dtype: torch.dtype, **_: Any) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype)

    with ExitStack() as patches:
        for module in MAKERS:
            patches.enter_context(patch.object(module, "random_tensor", untouched))
        return CpuKernel(CASES[name], size, dtype).spec


def spec_on(name: str, size: tuple[int, ...], target: Target) -> ConfigSpec:
    """The same on another machine."""
    return config_spec(spec_at(name, size).function, target, spec_at(name, size).tunables)
