"""Mistakes whose messages once pointed somewhere else."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc

X = torch.randn(5, 6)


def message(kernel: helion.Kernel, error: type[Exception]) -> str:
    with pytest.raises(error) as caught:
        kernel(X)
    return str(caught.value)


def test_storing_a_name_bound_only_in_a_loop_says_so() -> None:
    @helion.kernel
    def kernel(x):
        out = x.new_empty([5])
        for i in hl.tile(x.size(0)):
            for j in hl.tile(x.size(1)):
                s = x[i, j].sum(1)
            out[i] = s  # pyright: ignore[reportPossiblyUnboundVariable]
        return out

    assert "`s`" in message(kernel, exc.UndefinedVariable)


def test_storing_a_name_bound_in_one_branch_says_so() -> None:
    @helion.kernel
    def kernel(x):
        out = x.new_empty([5])
        for i in hl.tile(x.size(0)):
            if i.begin == 0:
                s = x[i, 0]
            out[i] = s  # pyright: ignore[reportPossiblyUnboundVariable]
        return out

    assert "only one branch" in message(kernel, exc.UnboundInBranch)


def test_a_bool_index_of_a_device_value_depends_on_data() -> None:
    @helion.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for i in hl.tile(x.size(0)):
            v = x[i, :]
            out[i, :] = v[v > 0]
        return out

    text = message(kernel, exc.DataDependentOutputShapeNotSupported)
    assert "torch.where" in text


def test_a_table_as_index_of_a_device_value_is_unsupported() -> None:
    @helion.kernel
    def kernel(x):
        out = x.new_empty([5])
        for i in hl.tile(x.size(0)):
            v = x[i, :]
            out[i] = v[:, i.index[:, None]]
        return out

    assert "`:`, `None`, `...`" in message(kernel, exc.BackendUnsupported)


def test_item_of_a_device_value_is_not_allowed() -> None:
    @helion.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for i in hl.tile(x.size(0)):
            out[i, :] = x[i, :] * x[0, 0].item()
        return out

    assert ".item()" in message(kernel, exc.NotAllowedOnDevice)


def test_a_function_that_torch_has_is_not_taken_for_a_misspelling() -> None:
    @helion.kernel
    def kernel(x):
        out = torch.empty_like(x)
        for i in hl.tile(x.size(0)):
            out[i, :] = torch.renorm(x[i, :], 2, 0, 1.0)
        return out

    assert "did you mean" not in message(kernel, exc.BackendUnsupported)


def test_a_carried_shape_that_changes_is_not_mended_by_a_cast() -> None:
    @helion.kernel
    def kernel(x):
        out = x.new_empty([5])
        for i in hl.tile(x.size(0)):
            v = hl.zeros([])
            for k in hl.tile(x.size(1)):
                v = v + x[i, k].sum(1)
            out[i] = v
        return out

    text = message(kernel, exc.ControlFlowTensorMismatch)
    assert "shape it ends with" in text
    assert ".to(" not in text
