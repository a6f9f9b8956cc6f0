"""Every conformance case on CPU tensors, by the interpreter and as native code.

Whole tiles, and tiles so small that the last is partial; sizes known when compiling or not.
"""

from __future__ import annotations

from random import Random

import pytest
import torch

from tests.conformance.all_cases import CASES
from tests.conformance.case import EXACT, Case, as_tuple
from tests.host_backends import BACKENDS, OLDER_TARGETS, on_backend

FREE_SHAPED = [case for case in CASES if not case.is_shaped_by_config]
DYNAMIC = [case for case in CASES if not case.needs_static_shapes]
ANY_CONFIG = [case for case in FREE_SHAPED if not case.varies_with_blocks]
EXACT_CASES = [case for case in CASES if case.reduction_length == EXACT]
RANDOM_CONFIGS = 3

backends = pytest.mark.parametrize("backend", BACKENDS)


@backends
@pytest.mark.parametrize("case", FREE_SHAPED, ids=str)
def test_plain_call(case: Case, backend: str) -> None:
    case.check(on_backend(case.kernel, backend)(*case.make_args()))


@backends
@pytest.mark.parametrize("case", CASES, ids=str)
def test_small_tiles(case: Case, backend: str) -> None:
    args = case.make_args()
    bound = on_backend(case.kernel, backend).bind(args)
    case.check(bound.compile_config(case.config)(*args))


@backends
@pytest.mark.parametrize("case", DYNAMIC, ids=str)
def test_runtime_sizes(case: Case, backend: str) -> None:
    args = case.make_args()
    bound = on_backend(case.kernel, backend, static_shapes=False).bind(args)
    case.check(bound.compile_config(case.config)(*args))


@pytest.mark.parametrize("case", EXACT_CASES, ids=str)
def test_native_code_gives_what_the_interpreter_gives(case: Case) -> None:
    found: list[tuple[torch.Tensor, ...]] = []
    for backend in BACKENDS:
        args = case.make_args()
        bound = on_backend(case.kernel, backend).bind(args)
        found.append(as_tuple(bound.compile_config(case.config)(*args)))
    for reference, native in zip(*found, strict=True):
        torch.testing.assert_close(native, reference, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("case", ANY_CONFIG, ids=str)
def test_native_code_of_random_configs(case: Case) -> None:
    rng = Random(case.name)
    bound = on_backend(case.kernel, "cpu").bind(case.make_args())
    for _ in range(RANDOM_CONFIGS):
        config = bound.config_spec.random_config(rng)
        case.check(bound.compile_config(config)(*case.make_args()))


@pytest.mark.parametrize("target", OLDER_TARGETS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_native_code_of_older_machines(case: Case, target: str) -> None:
    args = case.make_args()
    bound = on_backend(case.kernel, "cpu").bind(args, target=target)
    case.check(bound.compile_config(case.config)(*args))


def test_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
