"""Elements of one to seven bits look like bytes to DLPack: kernels refuse them all the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.exc as errors
import tilesmith.language as hl
from tilesmith.jit import definition

SHORT = [f"{sign}int{bits}" for sign in ("u", "") for bits in range(1, 8)]
CAPTURED = torch.zeros(13, dtype=torch.uint8)


@pytest.fixture(autouse=True, params=["native", "python"])
def _with_and_without_reader(request: pytest.FixtureRequest, monkeypatch) -> None:
    if request.param == "python":
        store = SimpleNamespace(get=lambda cache_dir: None)
        monkeypatch.setattr(definition, "process_readers", lambda: store)


def copies(x, out):
    for t in hl.tile(out.size(0)):
        out[t] = x[t].to(torch.int32)
    return out


def copies_first(xs, out):
    for t in hl.tile(out.size(0)):
        out[t] = xs[0][t].to(torch.int32)
    return out


def copies_captured(out):
    for t in hl.tile(out.size(0)):
        out[t] = CAPTURED[t].to(torch.int32)
    return out


def bytes_like(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Thirteen bytes, and the same memory with short elements."""
    whole = torch.arange(13, dtype=torch.uint8 if name[0] == "u" else torch.int8)
    return whole, whole.view(getattr(torch, name))


def check(kernel: Any, *args: Any) -> None:
    with pytest.raises(errors.UnsupportedArgumentType, match=r"torch\.u?int[1-7]\b"):
        kernel(*args)


@pytest.mark.parametrize("static_shapes", [True, False])
@pytest.mark.parametrize("name", SHORT)
def test_they_are_refused_after_calls_with_bytes(name: str, static_shapes: bool):
    kernel = helion.kernel(copies, static_shapes=static_shapes)
    whole, short = bytes_like(name)
    out = torch.zeros(13, dtype=torch.int32)
    for _ in range(3):
        assert torch.equal(kernel(whole, out), whole.int())
    for _ in range(2):
        check(kernel, short, out.zero_())
        assert not out.any()
    assert torch.equal(kernel(whole, out), whole.int())


@pytest.mark.parametrize("name", ["uint4", "int4"])
@pytest.mark.parametrize("held", [list, tuple, lambda xs: dict(enumerate(xs))])
def test_they_are_refused_in_containers(name: str, held: Any):
    kernel = helion.kernel(copies_first)
    whole, short = bytes_like(name)
    out = torch.zeros(13, dtype=torch.int32)
    for _ in range(3):
        kernel(held([whole]), out)
    check(kernel, held([short]), out)


def test_they_are_refused_where_a_function_reads_them(monkeypatch):
    kernel = helion.kernel(copies_captured)
    out = torch.zeros(13, dtype=torch.int32)
    for _ in range(3):
        kernel(out)
    monkeypatch.setitem(globals(), "CAPTURED", bytes_like("uint4")[1])
    check(kernel, out)


@pytest.mark.parametrize("wrap", [torch.nn.Parameter, lambda x: x[:]])
def test_bytes_of_other_classes_and_views_run(wrap: Any):
    kernel = helion.kernel(copies)
    whole, _ = bytes_like("uint4")
    given = wrap(whole) if wrap is not torch.nn.Parameter else wrap(whole, requires_grad=False)
    out = torch.zeros(13, dtype=torch.int32)
    for _ in range(3):
        assert torch.equal(kernel(given, out.zero_()), whole.int())
