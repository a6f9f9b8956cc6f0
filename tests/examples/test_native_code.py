"""Example kernels as native code: for older CPUs, by several threads, time and again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import tilesmith as helion
from tests.examples.case import Case, as_outputs
from tests.examples.cases import EXAMPLES
from tests.host_backends import OLDER_TARGETS, on_backend
from tilesmith.backends.cpu.emission import context
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.traversal import walk_function
from tilesmith.jit.bound_kernel import BoundKernel

# Only SSE lacks conversions of halves.
SAMPLES = [
    *((torch.float32, target) for target in OLDER_TARGETS),
    (torch.bfloat16, OLDER_TARGETS[0]),
    (torch.float16, OLDER_TARGETS[1]),
]


@pytest.mark.parametrize(
    ("dtype", "target"),
    [
        pytest.param(dtype, *target.values, id=f"{dtype}-{target.id}", marks=target.marks)
        for dtype, target in SAMPLES
    ],
)
@pytest.mark.parametrize("case", EXAMPLES, ids=str)
def test_older_machines_agree_with_fp64(case: Case, dtype: torch.dtype, target: str) -> None:
    if dtype not in case.dtypes:
        pytest.skip(f"not for {dtype}")
    size = case.sizes[-1]
    args = case.make_inputs(size, dtype, "cpu")
    bound = on_backend(case.kernel, "cpu").bind(args, target=target)
    case.check(bound.compile_config(case.config)(*args), args, size, dtype)


@pytest.fixture
def eager_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However little there is to do, threads share it."""
    monkeypatch.setattr(context, "MIN_PARALLEL_WORK", 1)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def adds_floats_in_any_order(bound: BoundKernel) -> bool:
    atomics = [op for op in walk_function(bound.function) if isinstance(op, Atomic)]
    return any(op.tensor.tensor.dtype.is_float for op in atomics)


@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("case", EXAMPLES, ids=str)
def test_the_number_of_threads_changes_no_bit(case: Case) -> None:
    size = case.sizes[-1]
    dtype = case.dtypes[0]
    args = case.make_inputs(size, dtype, "cpu")
    # A kernel of its own: other tests must not meet code that shares so little work.
    bound = helion.kernel(case.kernel.fn, backend="cpu").bind(args)
    found: list[tuple[torch.Tensor, ...]] = []
    for count in (1, 2, 3, 2):
        torch.set_num_threads(count)
        result = bound.compile_config(case.config)(*args)
        case.check(result, args, size, dtype)
        found.append(tuple(out for out in as_outputs(result) if out is not None))
    if adds_floats_in_any_order(bound):
        return
    for other in found[1:]:
        assert all(torch.equal(x, y) for x, y in zip(found[0], other, strict=True))
