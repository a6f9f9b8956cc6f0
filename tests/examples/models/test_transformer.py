"""The transformer of ``examples.models``: with our kernels it learns what eager torch learns.

What is exact comes from a training in fp64. Losses are means of a few hundred numbers that fp32
rounds, and each step adds what the parameters differ by: ours may be as far from fp64 as three
times eager's own distance, with one unit in the last place of a loss as the least that counts.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from examples.models.operators import EAGER, KERNELS
from examples.models.transformer import SMALL, Transformer, tokens_of_steps, train_anew

ROOT = Path(__file__).parents[3]
ULP = 2.0**-21
"""Of fp32 numbers from 4 to 8, as the first losses are."""


def check(losses: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> None:
    """Compare the losses of a training with eager's, both against fp64."""
    allowed = 3 * max(ULP, float((eager - exact).abs().max()))
    assert float((losses - exact).abs().max()) <= allowed


def references(steps: int) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """The batches, and the losses of eager torch in fp32 and fp64."""
    batches = list(tokens_of_steps(SMALL, steps, "cpu"))
    eager, exact = (
        train_anew(SMALL, EAGER, kind, batches).losses for kind in (torch.float32, torch.float64)
    )
    return batches, eager, exact


def test_a_few_steps():
    batches, eager, exact = references(4)
    check(train_anew(SMALL, KERNELS, torch.float32, batches).losses, eager, exact)


# Dynamo itself asks a tensor that is no leaf for its gradient.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.full
@pytest.mark.parametrize("is_compiled", [False, True])
def test_it_learns_what_eager_torch_learns(is_compiled: bool):
    batches, eager, exact = references(300)
    mode = "default" if is_compiled else None
    ours = train_anew(SMALL, KERNELS, torch.float32, batches, mode=mode).losses
    check(ours, eager, exact)
    assert ours[-10:].mean() < ours[0] - 2


@pytest.mark.full
def test_narrow_parameters_learn_what_eager_torch_learns():
    """Activations of bf16: what is trained has fp32, whatever the model computes with."""
    batches, _, exact = references(20)
    eager, ours = (
        train_anew(SMALL, operators, torch.bfloat16, batches).losses
        for operators in (EAGER, KERNELS)
    )
    check(ours, eager, exact)


def test_every_hot_operator_is_a_kernel():
    """In a graph of one step nothing but products of ours, views, sums and casts is left."""
    model = Transformer(SMALL, KERNELS, torch.float32)
    seen: set[str] = set()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.add(str(func).removesuffix(".default"))
            return func(*args, **(kwargs or {}))

    (tokens,) = tokens_of_steps(SMALL, 1, "cpu")
    with Watch():
        model(tokens).backward()
    names = {name.split(".")[1] for name in seen if name.startswith("aten.")}
    heavy = {"mm", "addmm", "bmm", "_softmax", "_log_softmax", "embedding", "silu", "rsqrt", "pow"}
    assert not names & heavy
    wanted = {"matmul", "causal_fwd", "rms_norm", "swiglu", "rope_heads", "cross_entropy_fwd"}
    assert wanted <= {name.split(".")[1].rstrip("_0123456789") for name in seen}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_processes_learn_the_same(kind: str, tmp_path: Path):
    _, eager, exact = references(40)
    command = [sys.executable, "-m", "tests.examples.models.spread_training", kind]
    ranks = [
        subprocess.Popen([*command, str(rank), "2", "40", str(tmp_path)], cwd=ROOT)
        for rank in range(2)
    ]
    assert [rank.wait(timeout=600) for rank in ranks] == [0, 0]
    for rank in range(2):
        check(torch.load(tmp_path / f"{kind}-{rank}.pt"), eager, exact)


def test_wrapped_modules_call_kernels():
    """A module around a kernel trains like torch's own, alone in its process."""

    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return KERNELS.norm(x, self.weight)

    torch.manual_seed(0)
    x, wanted = torch.randn(12, 16), torch.randn(12, 16)
    model = Norm()
    twin = torch.linspace(0.5, 1.5, 16).requires_grad_()
    for parameter, loss in (
        (model.weight, ((model(x) - wanted) ** 2).mean()),
        (twin, ((EAGER.norm(x, twin) - wanted) ** 2).mean()),
    ):
        loss.backward()
        assert parameter.grad is not None
    torch.testing.assert_close(model.weight.grad, twin.grad)
