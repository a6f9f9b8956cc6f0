"""What a wrong result looks like, and the change of the kernel that gives it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.numerics.doctor.test_verdict import QUICK
from tilesmith.numerics.doctor import wrong_results
from tilesmith.numerics.doctor.diagnose import diagnose
from tilesmith.numerics.doctor.findings import CauseKind
from tilesmith.numerics.doctor.wrong_results import describe_resemblance

TRUTH = torch.linspace(1.0, 3.0, 48, dtype=torch.float64).reshape(6, 8).sin()


@helion.kernel(backend="reference", config=helion.Config(block_sizes=[16]))
def rms_norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        out[tile, :] = row * torch.rsqrt((row * row).mean(-1, keepdim=True) + eps)
    return out


@helion.kernel(backend="reference", config=helion.Config(block_sizes=[16]))
def causal_weights(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    out = torch.empty([q.size(0), k.size(0)], dtype=q.dtype, device=q.device)
    for tile in hl.tile(q.size(0)):
        scores = (q[tile, :] @ k[:, :].T) * 0.25
        is_past = tile.index[:, None] >= hl.arange(k.size(0))[None, :]
        out[tile, :] = torch.softmax(torch.where(is_past, scores, float("-inf")), -1)
    return out


def norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)


def weights(q: torch.Tensor, k: torch.Tensor, scale: float = 0.25, last: int = 0) -> torch.Tensor:
    past = torch.ones(len(q), len(k), dtype=torch.bool).tril(last)
    scores = (q @ k.T * scale).masked_fill(~past, -math.inf)
    return torch.softmax(scores, -1).nan_to_num()


def verdict(kernel: Any, *args: Any, other: Callable[..., Any]) -> str:
    found = diagnose(kernel, args, {"other": other}, QUICK).verdict
    assert found.kind is CauseKind.BUG
    return found.text


def test_changes_are_made_one_by_one_while_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(wrong_results, "MOST_SECONDS", -1.0)
    monkeypatch.setattr(wrong_results, "_with", lambda *given: made.append(given))
    q, k = torch.randn(20, 16), torch.randn(24, 16)
    verdict(causal_weights, q, k, other=lambda q, k: weights(q, k, scale=0.5))
    assert len(made) <= 1  # and the clock is looked at


def test_another_epsilon_among_the_arguments_is_named() -> None:
    x = torch.randn(20, 32) * 1e-2
    text = verdict(rms_norm, x, 1e-5, other=lambda x, eps: norm(x, 1e-6))
    assert "The kernel gives that with eps=1e-06 instead of 1e-05." in text


def test_the_change_that_makes_a_kernel_what_its_reference_is() -> None:
    options = replace(QUICK, reference=lambda x, eps: norm(x, 1e-3))
    found = diagnose(rms_norm, (torch.randn(20, 32) * 1e-2, 1e-5), {}, options)
    assert found.verdict.kind is CauseKind.BUG
    assert "It would give what the reference does with eps=0.001 instead" in found.verdict.text


def test_a_missing_scale_is_named_with_its_line() -> None:
    q, k = torch.randn(24, 16), torch.randn(24, 16)
    text = verdict(causal_weights, q, k, other=lambda q, k: weights(q, k, 1.0))
    assert "The kernel gives that with 1 in place of 0.25 at test_hypotheses.py:" in text
    assert "`scores = (q[tile, :] @ k[:, :].T) * 0.25`" in text


def test_a_comparison_that_is_off_by_one_is_named() -> None:
    q, k = torch.randn(24, 16), torch.randn(24, 16)
    text = verdict(causal_weights, q, k, other=lambda q, k: weights(q, k, last=-1))
    assert "with `>` in place of `>=` at test_hypotheses.py:" in text


def test_what_no_change_explains_is_left_open() -> None:
    q, k = torch.randn(24, 16), torch.randn(24, 16)
    text = verdict(causal_weights, q, k, other=lambda q, k: weights(q, k).sqrt())
    assert "gives that" not in text
    assert "Look first" not in text


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (TRUTH * 8, "every element is 8 times what it should be (8 is the size 8 of an axis)"),
        (TRUTH / math.sqrt(6), "(one over 2.44949, the square root of 6)"),
        (TRUTH + 0.5, "every element is off by 0.5"),
        (TRUTH.roll(1, 1), "elements stand +1 from their place along axis 1"),
        (TRUTH.roll(-2, 0), "elements stand -2 from their place along axis 0"),
        (TRUTH.flip(0), "elements are in the opposite order along axis 0"),
        (TRUTH.exp(), ""),
        (TRUTH * 8 + 0.5, ""),
        (TRUTH, ""),
    ],
)
def test_wholes(wrong: torch.Tensor, told: str) -> None:
    found = describe_resemblance(TRUTH, wrong, 1e-9)
    assert found.endswith(told) if told else not found or "1 times" in found


def test_parts() -> None:
    end, begin, spots, some = (TRUTH.clone() for _ in range(4))
    end[4:] = 0.0
    begin[:, :3] *= 2
    spots[1, 2] = spots[4, 7] = math.nan
    some[1, 2], some[4, 3] = 5.0, 6.0
    last = "only elements from 4 to the end of axis 0 (6) are wrong; they are all 0, as if never"
    assert describe_resemblance(TRUTH, end, 1e-9).startswith(last)
    first = "only the first 3 of 8 elements of axis 1 are wrong"
    assert describe_resemblance(TRUTH, begin, 1e-9) == first
    assert describe_resemblance(TRUTH, spots, 1e-9).startswith("2 of 48 elements are wrong; they")
    assert describe_resemblance(TRUTH, some, 1e-9) == ""
    square = torch.randn(7, 7, dtype=torch.float64)
    assert describe_resemblance(square, square.mT, 1e-9) == "the last two axes are swapped"
    assert describe_resemblance(TRUTH[0, :4], TRUTH[0, :4] * 3, 1e-9) == ""
