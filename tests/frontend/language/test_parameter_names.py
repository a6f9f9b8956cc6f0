# type: ignore
"""Arguments of the language by keyword, under every name that programs use for them."""

from __future__ import annotations

import inspect

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc

X = torch.rand(3, 4) + 0.5


@helion.kernel
def by_keyword(x):
    scanned, halves = torch.empty_like(x), torch.empty_like(x)
    rows = hl.specialize(value=x.size(0)) + hl.specialize(v=x.size(0))
    for t in hl.tile(x.size(0)):
        v = x[t, :]
        sums = hl.cumsum(input_tensor=v, dim=1) + hl.cumsum(x=v, dim=1, reverse=False)
        products = hl.cumprod(input_tensor=v, dim=1) + hl.cumprod(input=v, dim=1)
        peaks = hl.associative_scan(combine_fn=torch.maximum, input_tensor=v, dim=1)
        peaks = peaks + hl.associative_scan(combine_fn=torch.maximum, input=v, dim=1)
        peak = hl.reduce(
            combine_fn=torch.maximum, input_tensor=v, dim=1, other=0.0, keep_dims=True
        ) + hl.reduce(combine_fn=torch.maximum, input=v, dim=1, other=0.0, keep_dims=True)
        places = hl.arange(start=0, end=4) + hl.arange(end=4)
        total = hl.subscript(tensor=sums + products + peaks + peak + places, index=[slice(None)])
        scanned[t, :] = hl.subscript(v=total, index=[slice(None)]) + rows
        left, right = hl.split(tensor=hl.join(tensor0=v, tensor1=v))
        halves[t, :] = left + hl.split(v=hl.join(a=right, b=v))[0]
    return scanned, halves


def test_keywords_of_scans_reductions_and_views() -> None:
    scanned, halves = by_keyword(X)
    peaks = X.cummax(1).values + X.amax(1, keepdim=True) + torch.arange(4)
    torch.testing.assert_close(scanned, 2 * (X.cumsum(1) + X.cumprod(1) + peaks) + 6)
    assert torch.equal(halves, 2 * X)


@helion.kernel
def rows_of_tensors(like, addresses):
    out = torch.empty([addresses.size(0), like.size(0)], device=like.device)
    for t, u in hl.tile(out.size()):
        stack: hl.StackTensor = hl.stacktensor_like(tensor_like=like, dev_ptrs=addresses[t])
        same = hl.StackTensor(example=like, ptrs=stack.dev_ptrs)
        out[t, u] = stack[u] + hl.load(same, [u])
    return out


def test_stacks_have_a_class_and_both_pairs_of_names() -> None:
    tensors = [torch.randn(5), torch.randn(5)]
    addresses = torch.tensor([t.data_ptr() for t in tensors], dtype=torch.uint64)
    assert torch.equal(rows_of_tensors(tensors[0], addresses), 2 * torch.stack(tensors))


def test_a_stack_on_the_host_is_refused() -> None:
    with pytest.raises(exc.NotInsideKernel):
        hl.StackTensor(X, X)


def test_signatures_show_the_name_that_counts() -> None:
    assert list(inspect.signature(hl.cumsum).parameters) == ["input_tensor", "dim", "reverse"]
    assert list(inspect.signature(hl.stacktensor_like).parameters) == ["tensor_like", "dev_ptrs"]
