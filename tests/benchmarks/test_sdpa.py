"""PyTorch's attention kernels, asked for by name, on arguments that they do not take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from benchmarks import sdpa
from tilesmith.bench.implementations import NotAvailableError

ON_GPU = SimpleNamespace(is_cuda=True, size=lambda axis: 8)


def say(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> NoReturn:
        raise RuntimeError(text)

    monkeypatch.setattr(sdpa, "scaled_dot_product_attention", refuse)


def test_a_kernel_that_does_not_fit_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    say("No available kernel. Aborting execution.", monkeypatch)
    with pytest.raises(NotAvailableError):
        sdpa.plain_efficient(ON_GPU, ON_GPU, ON_GPU)


def test_other_errors_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    say("CUDA error: an illegal memory access was encountered", monkeypatch)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        sdpa.plain_efficient(ON_GPU, ON_GPU, ON_GPU)
