"""Kernels on shards: where it is said to be right, results on halves are halves of the result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.examples.case import Case, as_outputs, copies
from tests.gradients.gallery import CASES
from tilesmith.frontend.containers import map_tensors, tensors_in
from tilesmith.jit.shards.host_runs import shadow
from tilesmith.jit.shards.plan import NotShardedError, shard_results

RIGHT: dict[str, dict[int, int]] = {
    "softmax": {0: 0},
    "rms_norm": {0: 0},
    "swiglu": {0: 1, 1: 1},
    "matmul": {0: 0},
    "causal_fwd": {0: 0, 1: 0, 2: 0},
}
WRONG: dict[str, tuple[dict[int, int], str]] = {
    "softmax": ({0: 1}, "is not taken tile by tile along dimension 1"),
    "matmul": ({0: 1, 1: 0}, "follows from the sharded size"),
    "sum_columns": ({0: 0}, "follows from the sharded size|tile by tile"),
    "cross_entropy": ({0: 0, 1: 0}, "its host code computes `sum`"),
    "cross_entropy_fwd": ({0: 0, 1: 0}, "computes with the position of a tile"),
    "causal_fwd": ({0: 1, 1: 1, 2: 1}, "follows from the sharded size"),
    "rms_norm": ({0: 0, 1: 0}, "refuses tensors|follows from the sharded size"),
    "paged_decode": ({1: 0}, "device code sees another view of it"),
}
BY_NAME = {case.name: case for case in CASES}


def inputs(case: Case) -> tuple[Any, ...]:
    given = case.make_inputs(case.sizes[-1], case.dtypes[0], "cpu")
    return case.kernel.normalize_args(*given)


def dims_of(case: Case, args: tuple[Any, ...], sharded: dict[int, int]) -> list[int | None]:
    if case.kernel.staged is not None:
        raise NotShardedError("several launches")
    return shard_results(case.kernel.definition, map_tensors(args, shadow), sharded)


def halves(args: tuple[Any, ...], sharded: dict[int, int]) -> Iterator[tuple[Any, ...]]:
    """The arguments with the first, then the other half of each sharded tensor."""
    for half in range(2):
        numbers = iter(range(len(list(tensors_in(args)))))

        def part(tensor: torch.Tensor) -> torch.Tensor:
            dim = sharded.get(next(numbers))  # noqa: B023
            if dim is None:
                return tensor.clone()
            middle = tensor.shape[dim] // 2
            return tensor.tensor_split([middle], dim)[half].clone()  # noqa: B023

        yield map_tensors(args, part)


def check(case: Case, args: tuple[Any, ...], sharded: dict[int, int]) -> None:
    dims = dims_of(case, args, sharded)
    whole = [*tensors_in(case.kernel(*copies(args)))]
    parts = [[*tensors_in(case.kernel(*half))] for half in halves(args, sharded)]
    assert len(dims) == len(whole)
    for number, (dim, wanted) in enumerate(zip(dims, whole)):
        found = [part[number] for part in parts]
        joined = found[0] if dim is None else torch.cat(found, dim)
        torch.testing.assert_close(joined, wanted, equal_nan=True)


@pytest.mark.parametrize("name", RIGHT)
def test_halves_of_results(name: str):
    check(BY_NAME[name], inputs(BY_NAME[name]), RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused(name: str):
    sharded, problem = WRONG[name]
    with pytest.raises(NotShardedError, match=problem):
        dims_of(BY_NAME[name], inputs(BY_NAME[name]), sharded)


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_gallery(case: Case):
    """Dimensions of one length are sharded together, and each alone."""
    try:
        args = inputs(case)
        as_outputs(case.kernel(*copies(args)))
    except Exception as error:  # not for this machine
        pytest.skip(str(error))
    tensors = list(tensors_in(args))
    tried: list[dict[int, int]] = []
    for i, tensor in enumerate(tensors):
        for dim, length in enumerate(tensor.shape):
            alike = {
                j: [*t.shape].index(length) for j, t in enumerate(tensors) if length in t.shape
            }
            tried += [choice for choice in ({i: dim}, alike) if choice not in tried and length > 1]
    for sharded in tried:
        try:
            dims_of(case, args, sharded)
        except Exception:
            continue
        check(case, args, sharded)
