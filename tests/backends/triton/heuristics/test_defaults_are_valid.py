"""The default config of every example at sm_90, and what a search begins with, can be run.

Sizes, element types, static and runtime sizes and numbers of multiprocessors take turns: a rule
that divides by one of them must still give a size that Triton takes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import tilesmith as helion
from examples.rope import rope, rope_bwd
from tests.examples.case import Case
from tests.examples.cases import EXAMPLES
from tests.examples.ports.ports import PORTS
from tilesmith.schedule.by_pointers import by_pointers
from tilesmith.targets import cuda_target

CASES = (*EXAMPLES, *PORTS)
MULTIPROCESSORS = (132, 1, 78, 114)
SHARE = 6
"""One kernel of so many is asked in the short run: neighbours in the list are of one family."""


def check_defaults(kernel: Any, args: tuple[Any, ...], num_sms: int, *, is_static: bool) -> None:
    """The spec checks its own default and seeds as it makes them; a launch checks the warps."""
    target = replace(cuda_target(90), num_sms=num_sms)
    spec = helion.kernel(kernel.fn, static_shapes=is_static).bind(args, target=target).config_spec
    for config in (spec.default_config(), *spec.seed_configs()):
        spec.normalize(config)
        has_roles = str(config.get("structure")).endswith("_roles")
        assert has_roles or config["num_warps"].bit_count() == 1, config
        check_pointers(spec, config)


def check_pointers(spec: Any, config: Any) -> None:
    """What is launched instead where a tensor is not aligned as descriptors need it."""
    plain = spec.normalize(by_pointers(spec, config))
    form, _ = spec.of(plain)
    assert form.function.before is None, "the earlier launch copies, too"
    assert {*plain.get("indexing", ()), *plain.get("atomic_indexing", ())} <= {"pointer"}
    assert not str(plain.get("structure")).endswith("_roles")


def check_case(case: Case, number: int) -> None:
    """One combination of what may vary."""
    dtype, size = case.dtypes[number % len(case.dtypes)], case.sizes[-1 - number % len(case.sizes)]
    args = case.make_inputs(size, dtype, "cpu")
    num_sms = MULTIPROCESSORS[number % len(MULTIPROCESSORS)]
    is_static = case.needs_static_shapes or number % 2 == 0
    check_defaults(case.kernel, args, num_sms, is_static=is_static)


@pytest.mark.parametrize("number", range(0, len(CASES), SHARE))
def test_some_defaults_are_valid(number: int) -> None:
    check_case(CASES[number], number // SHARE)


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=str)
def test_defaults_are_valid_whatever_the_size(case: Case) -> None:
    for number in range(2 * len(case.sizes)):
        check_case(case, number)


@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize("length", [12, 40])
def test_rope_of_heads_of_any_length(length: int, is_static: bool) -> None:
    """A tile has half a head, a warp 128 elements of it: that made three warps."""
    q, k = torch.randn(3, 4, 37, length), torch.randn(3, 2, 37, length)
    cos, sin = torch.randn(37, length), torch.randn(37, length)
    for kernel in (rope, rope_bwd):
        check_defaults(kernel, (q, k, cos, sin), 132, is_static=is_static)
