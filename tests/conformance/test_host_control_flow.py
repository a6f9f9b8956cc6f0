"""Kernels of several launches compute the same on every backend, with any sizes and configs."""

from __future__ import annotations

from random import Random

import pytest

import tilesmith as helion
from tests.conformance.case import Case
from tests.conformance.host_control_kernels import STAGED
from tests.conformance.test_triton_code import problems_of
from tests.host_backends import BACKENDS, on_backend
from tilesmith.backends.triton.build import compile_artifact

backends = pytest.mark.parametrize("backend", BACKENDS)
cases = pytest.mark.parametrize("case", STAGED, ids=str)


@backends
@cases
def test_plain_call(case: Case, backend: str) -> None:
    kernel = on_backend(case.kernel, backend)
    for _ in range(2):
        case.check(kernel(*case.make_args()))


@backends
@cases
def test_small_tiles(case: Case, backend: str) -> None:
    args = case.make_args()
    bound = on_backend(case.kernel, backend).bind(args)
    case.check(bound.compile_config(case.config)(*args))


@backends
@cases
def test_runtime_sizes(case: Case, backend: str) -> None:
    args = case.make_args()
    kernel = on_backend(case.kernel, backend, static_shapes=False)
    case.check(kernel.bind(args).compile_config(case.config)(*args))
    case.check(kernel(*case.make_args()))


@cases
def test_configs_of_the_decorator_are_split(case: Case) -> None:
    kernel = helion.kernel(case.kernel.fn, config=case.config)
    case.check(kernel(*case.make_args()))


@cases
def test_random_configs_of_stages(case: Case) -> None:
    rng = Random(case.name)
    bound = on_backend(case.kernel, "cpu").bind(case.make_args())
    configs = [
        stage.config_spec.random_config(rng).config if stage is not None else {}
        for stage in bound.stages
    ]
    case.check(bound.compile_config(helion.Config(stages=configs))(*case.make_args()))


@cases
def test_compiles_for_a_gpu(case: Case) -> None:
    bound = case.kernel.bind(case.make_args(), target="cuda:90")
    for stage in bound.stages:
        if stage is not None:
            assert compile_artifact(stage.to_artifact()).binary


def test_saved_modules_compute_the_same_when_interpreted() -> None:
    # Programs that wait for each other never end in Triton's interpreter: it runs one by one.
    names = [case.name for case in STAGED if case.is_interpretable]
    jobs = [(name, form) for name in names for form in ("small", "default", "dynamic")]
    problems = [problem for problem in problems_of(jobs) if problem is not None]
    assert not problems, "\n\n".join(problems)
