"""Rows with infinities and NaN: every form of a kernel gives what its source says."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import tilesmith as helion
import tilesmith.language as hl
from examples.cross_entropy import CrossEntropy, cross_entropy_fwd
from examples.grpo_loss import grpo_loss_fwd, reference
from examples.softmax import softmax_two_pass
from tests.backends.triton.test_shared_rows import TILES, bind, in_parts, results
from tests.examples.row_cases import policy_inputs

LENGTH = 2056
LABEL = 2000


@helion.kernel(static_shapes=True)
def log_sums(logits: torch.Tensor) -> torch.Tensor:
    out = torch.empty([logits.size(0)], dtype=torch.float32, device=logits.device)
    for tile in hl.tile(logits.size(0)):
        out[tile] = torch.logsumexp(logits[tile, :], -1)
    return out


@helion.kernel(static_shapes=True)
def log_shares(logits: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(logits)
    for tile in hl.tile(logits.size(0)):
        out[tile, :] = torch.log_softmax(logits[tile, :], -1)
    return out


@helion.kernel(static_shapes=True)
def shares(logits: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(logits)
    for tile in hl.tile(logits.size(0)):
        out[tile, :] = torch.softmax(logits[tile, :], -1)
    return out


def losses_of_source(logits: torch.Tensor) -> torch.Tensor:
    """What the example computes for a label, in fp64."""
    wide = logits.double()
    peak = wide.amax(-1)
    return (wide - peak[:, None]).exp().sum(-1).log() + peak - wide[:, LABEL]


Reference = Callable[[torch.Tensor], torch.Tensor]
KERNELS: dict[str, tuple[Any, str, Reference]] = {
    "log_sums": (log_sums, "out", lambda x: torch.logsumexp(x.double(), -1)),
    "log_shares": (log_shares, "out", lambda x: torch.log_softmax(x.double(), -1)),
    "shares": (shares, "out", lambda x: torch.softmax(x.double(), -1)),
    "losses": (cross_entropy_fwd, "losses", losses_of_source),
}
FORMS = {
    "whole": helion.Config(block_sizes=[1], num_warps=4),
    "walks": helion.Config(block_sizes=[1], reduction_loops=[256], num_warps=1),
    "long walks": helion.Config(block_sizes=[2], reduction_loops=[1024], num_warps=4),
}


def special_rows() -> torch.Tensor:
    x = torch.randn(10, LENGTH, generator=torch.Generator().manual_seed(0)) * 5
    x[0, :] = -inf
    x[1, 7] = inf
    x[2, :] = inf
    x[3, :1024] = -inf
    x[4, 1024:] = -inf
    x[5, 9] = nan
    x[6, 1:] = -inf
    x[7, : LENGTH - 1] = -inf
    x[8, ::2], x[8, 700] = -inf, inf
    return x


def given(kernel: Any, x: torch.Tensor) -> dict[str, Any]:
    values: dict[str, Any] = {"logits": x, "flat": x.reshape(-1), "out": torch.zeros_like(x)}
    values["labels"] = torch.full([x.size(0)], LABEL)
    for name in ("losses", "lse", *(("out",) if kernel is log_sums else ())):
        values[name] = torch.zeros(x.size(0))
    return values


def args_of(kernel: Any, x: torch.Tensor) -> tuple[Any, ...]:
    values = given(kernel, x)
    return (x, values["labels"]) if kernel is cross_entropy_fwd else (x,)


def assert_same(found: torch.Tensor, exact: torch.Tensor) -> None:
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5, equal_nan=True)


# The stand-in for libdevice takes a minute for the powers of this one.
SLOW = pytest.param("log_sums", "row_parts", marks=pytest.mark.full)
CASES = [(name, form) for name in KERNELS for form in (*FORMS, "row_parts")]


@pytest.mark.parametrize(
    ("name", "form"), [SLOW if case == ("log_sums", "row_parts") else case for case in CASES]
)
def test_forms_of_a_gpu_give_what_the_source_says(interpreter: Any, name: str, form: str) -> None:
    kernel, result, exact = KERNELS[name]
    x = special_rows()
    bound = bind(kernel, *args_of(kernel, x))
    if form == "row_parts":
        if form not in bound.config_spec.forms():
            assert name in ("log_shares", "shares"), "rows that are read again are not put together"
            return
        artifact = in_parts(bound, TILES[0])
    else:
        artifact = bound.to_artifact(FORMS[form])
    found = results(interpreter.interpret, artifact, given(kernel, x))[result]
    assert_same(found, exact(x))


@pytest.mark.parametrize("name", KERNELS)
def test_native_code_and_the_interpreter(name: str) -> None:
    kernel, result, exact = KERNELS[name]
    x = special_rows()
    interpreted = helion.kernel(
        kernel.fn, ref_mode=helion.RefMode.EAGER, config=helion.Config(block_sizes=[2])
    )
    for called in (kernel, interpreted):
        found = called(*args_of(kernel, x))
        assert_same(found[0] if result == "losses" else found, exact(x))


def test_losses_and_gradients_of_special_rows_are_those_of_torch() -> None:
    """NaN, of rows of nothing but -inf and of those with +inf alike."""
    ours, theirs = (special_rows().requires_grad_() for _ in range(2))
    labels = torch.full([ours.size(0)], LABEL)
    found = CrossEntropy.apply(ours, labels)
    exact = cross_entropy(theirs.double(), labels, reduction="none")
    assert_same(found.detach(), exact.detach())
    for losses in (found, exact):
        losses.backward(torch.ones_like(losses))
    assert ours.grad is not None
    assert theirs.grad is not None
    assert_same(ours.grad, theirs.grad.double())
    assert found.isnan().any()


@pytest.mark.parametrize("columns", [64, 512, 4096])
def test_rows_that_begin_with_nothing_but_minus_infinity(columns: int) -> None:
    x = special_rows()
    config = helion.Config(block_sizes=[2, columns])
    found = softmax_two_pass.bind((x,)).compile_config(config)(x)
    assert_same(found, torch.softmax(x.double(), -1))


@pytest.mark.parametrize("columns", [16, 64])
def test_normalisers_of_logits_that_begin_with_minus_infinity(columns: int) -> None:
    logits, *others = policy_inputs((2, 5, 53), torch.float32, "cpu")
    logits[0, 1, :20], logits[1, :, :33], logits[0, 3, :] = -inf, -inf, -inf
    config = helion.Config(block_sizes=[2, 4, columns])
    run = grpo_loss_fwd.bind((logits, *others)).compile_config(config)
    assert_same(run(logits, *others)[-1], reference(logits, *others)[-1])
