"""``print_repro``: the file that a first call writes repeats the call, and its failure."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
from pathlib import Path

import pytest
import torch

from tests.jit import repro_kernels as kernels
from tests.jit.repro_kernels import fresh
from tests.warm_python import warm_python
from tilesmith import exc
from tilesmith.jit.output.repro import MAX_WRITTEN, TENSOR_FUNCTION, ValueWriter, tensor_text

ROOT = Path(__file__).parents[2]


def written(capsys: pytest.CaptureFixture[str]) -> list[Path]:
    """The files that were told of on stderr."""
    lines = capsys.readouterr().err.splitlines()
    found = [re.fullmatch(r"tilesmith: this file repeats the call of \w+: (.*)", s) for s in lines]
    return [Path(match[1]) for match in found if match]


def run(path: Path) -> subprocess.CompletedProcess[str]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith("TILESMITH_")}
    return subprocess.run(
        [*warm_python(), str(path)],
        env={**plain, "PYTHONPATH": str(ROOT / "src")},
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def arguments():
    x = torch.randn(12, 2)[:, 1]
    index = torch.tensor([3, 0, 11, 5, 7])
    rows = [torch.ones(5, dtype=torch.float32)]
    return kernels.Pair(x, 1.5), index, 3, True, "shift", rows


def test_the_file_of_a_call_runs_alone(capsys):
    kernel = fresh(kernels.gathers, print_repro=True, config={"block_sizes": [4]}, num_threads=1)
    kernel(*arguments())
    kernel(*arguments())
    (path,) = written(capsys)
    text = path.read_text()
    assert "block_sizes=[4]" in text
    assert "num_threads=1" in text
    assert "print_repro" not in text
    assert "values=[3, 0, 11, 5, 7]" in text
    assert "tensor((12,), (2,), torch.float32)" in text
    assert "Not written down" not in text
    done = run(path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "gathers returned Tensor\n"


def test_the_file_gives_what_the_kernel_gives(capsys):
    x = torch.arange(7.0)
    fresh(kernels.adds, print_repro=True)(x, x)
    (path,) = written(capsys)
    assert "        # comments stay\n" in path.read_text()
    made = runpy.run_path(str(path))
    assert torch.equal(made["adds"](x, x), 2 * x)


def test_a_call_that_does_not_compile_is_written_and_fails_alike(capsys):
    with pytest.raises(exc.TileArithmetic):
        fresh(kernels.mistaken, print_repro=True)(torch.ones(5))
    (path,) = written(capsys)
    done = run(path)
    assert done.returncode == 1
    assert "TileArithmetic: `1 + tile` has no meaning" in done.stderr


def test_the_variable_asks_for_it_too(capsys, monkeypatch):
    monkeypatch.setenv("TILESMITH_PRINT_REPRO", "1")
    x = torch.ones(3)
    fresh(kernels.adds)(x, x)
    (path,) = written(capsys)
    # The same tensor was given twice.
    assert "\n    y = x\n" in path.read_text()


def test_nothing_is_written_unless_asked_for(capsys, tmp_path):
    x = torch.ones(3)
    fresh(kernels.adds, cache_dir=tmp_path)(x, x)
    assert not written(capsys)
    assert not (tmp_path / "repro").exists()


def rebuilt(value: torch.Tensor) -> torch.Tensor:
    scope: dict[str, object] = {"torch": torch}
    exec(TENSOR_FUNCTION, scope)
    return eval(tensor_text(value), scope)


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(3, 5).t(),
        torch.randn(4).expand(3, 4),
        torch.randn(0, 3),
        torch.tensor(2.5),
        torch.randn(6, 6, dtype=torch.bfloat16)[::2, 1:4],
        torch.arange(10, dtype=torch.int32).view(2, 5).t(),
        torch.tensor([True, False, True]),
        torch.randint(3, 9, (MAX_WRITTEN + 1,)),
        torch.arange(MAX_WRITTEN + 1),
    ],
    ids=lambda value: f"{value.dtype}{list(value.shape)}",
)
def test_tensors_keep_their_form(value):
    made = rebuilt(value)
    assert (made.shape, made.stride(), made.dtype) == (value.shape, value.stride(), value.dtype)
    if value.is_floating_point():
        return
    if value.numel() <= MAX_WRITTEN:
        assert torch.equal(made, value)
    else:
        assert made.min() >= value.min()
        assert made.max() <= value.max()
        assert bool((made.diff() >= 0).all()) == bool((value.diff() >= 0).all())


@pytest.mark.parametrize(
    "value",
    [1, True, None, "text", 0.25, (1,), [1, (2.0, "a")], {"a": [1], 2: None}, torch.float16],
    ids=repr,
)
def test_plain_values_come_back(value):
    writer = ValueWriter(lambda _: "")
    assert eval(writer.text(value), {"torch": torch}) == value
    assert not writer.missing


def test_numbers_that_are_no_numbers_come_back():
    writer = ValueWriter(lambda _: "")
    assert eval(writer.text([float("inf"), -float("inf")])) == [float("inf"), -float("inf")]
    assert eval(writer.text(torch.device("cpu")), {"torch": torch}) == torch.device("cpu")


def test_what_cannot_be_written_is_named():
    writer = ValueWriter(lambda _: "")
    assert writer.text([1, lambda: 3]) == "[1, None]"
    assert writer.missing == ["a function `<lambda>`"]
