"""A package on a GPU that none of its binaries was made for: Triton compiles its source."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.warm_python import warm_python
from tilesmith.experimental import export_package
from tilesmith.export import _from_source, launcher
from tilesmith.numerics.compare import check_against

ROOT = Path(__file__).parents[2]
X = torch.randn(6, 10)
INTERPRETED = """
import os, sys
os.environ["TRITON_INTERPRET"] = "1"
from contextlib import nullcontext
from types import FunctionType
import torch
sys.path[:0] = [".", sys.argv[1]]
from tests.backends.triton.interpreter_worker import _patch
_patch()
torch.cuda.is_available = lambda: True
torch.cuda.get_device_capability = lambda device: (8, 0)
torch.cuda.device = lambda device: nullcontext()
import scaled_package
package = sys.modules["scaled_package.scaled"]
# Tensors lie on the CPU, where the interpreter reads them: the check of their device is left out.
scope = {**vars(package), "require": lambda *_: None}
check, read = (
    FunctionType(function.__code__, scope)
    for function in (package._cuda_90_0_checks, package._cuda_90_0)
)
scope["_cuda_90_0_checks"] = check
values = {"cuda_90_0": package._cuda_90_0_values}
readers = {"cuda_90_0": (check, read)}
_, launch = package._launcher.load(package.__file__, readers, lambda *_: 0, values)
x, factor = torch.load("args.pt")
out = torch.empty_like(x)
launch(x, factor, out)
torch.save(out, "out.pt")
assert not [m for m in sys.modules if m.startswith("tilesmith.")]
"""


@helion.kernel(static_shapes=False)
def scaled(x, factor: float):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = torch.softmax(x[t, :], 1) * factor
    return out


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "scaled_package"
    return export_package(scaled, [(X, 2.0)], folder, target="cuda:90")


def test_source_runs_where_no_binary_does(made: Path) -> None:
    x = torch.randn(7, 33)
    torch.save((x, 0.5), made.parent / "args.pt")
    command = [*warm_python(), "-c", INTERPRETED, str(ROOT)]
    ended = subprocess.run(
        command, cwd=made.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert not ended.returncode, ended.stderr
    exact = torch.softmax(x.double(), 1) * 0.5
    check_against(torch.load(made.parent / "out.pt"), exact, reduction_length=33)


def message(made: Path, values: Any = lambda *given: given) -> str:
    name = "cuda_90_0"
    read: dict[str, Any] = {name: (lambda *_: None, lambda run, *_: run((), (1, 1, 1), 0))}
    with pytest.raises(ValueError, match="no code for this call") as caught:
        launcher.load(str(made / "scaled.py"), read, lambda *_: 0, {name: values})[1](X, X, 2.0)
    return str(caught.value)


@pytest.fixture
def other_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())


@pytest.mark.usefixtures("other_gpu")
def test_without_triton_the_error_says_so(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_from_source.importlib.util, "find_spec", lambda _: None)
    assert message(made).splitlines()[1:] == [
        "  cuda_90_0: made for sm_90, this GPU is sm_80",
        "  cuda_90_0: triton, which could compile its source, is not installed",
    ]


@pytest.mark.usefixtures("other_gpu")
def test_what_the_compiler_says_is_in_the_error(made: Path, monkeypatch: Any) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("out of shared memory")

    monkeypatch.setattr(_from_source, "launch_function", lambda _: refuse)
    found = message(made).splitlines()[-1]
    assert found == ("  cuda_90_0: compiling its source failed: RuntimeError: out of shared memory")
