"""Device prints: what is shown, how often, in which order, on every backend."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
import torch

from tests.frontend.language import printing_kernels as kernels
from tests.host_backends import BACKENDS, on_backend
from tilesmith.backends.triton.build import compile_artifact

PRINTING = [
    (kernels.print_doubles, (torch.arange(6.0),)),
    (kernels.print_only, (torch.arange(15.0).view(3, 5),)),
    (kernels.print_rows_of_one, (torch.ones(2, 3, dtype=torch.bfloat16),)),
    (kernels.print_numbers, (torch.ones(3), 5)),
    (kernels.print_in_loops_and_branches, (torch.ones(3), 3)),
]


def printed(capfd: pytest.CaptureFixture[str], kernel: Any, backend: str, *args: Any) -> list[str]:
    """The lines of a run in one thread, so that programs come in order."""
    settings = {"num_threads": 1} if backend == "cpu" else {}
    on_backend(kernel, backend, **settings)(*args)
    sys.stdout.flush()
    return capfd.readouterr().out.splitlines()


def numbers_after(lines: list[str], prefix: str) -> list[float]:
    """All numbers behind a prefix, in order."""
    whole = "\n".join(lines).replace("\n ", " ").splitlines()
    texts = [line.partition(f"{prefix}: ")[2] for line in whole if f"{prefix}: " in line]
    return [float(number) for text in texts for number in re.findall(r"-?\d+\.?\d*", text)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n", [1, 3, 4, 5, 11])
def test_every_valid_element_is_printed_and_results_stay(backend, n, capfd):
    x = torch.arange(float(n))
    lines = printed(capfd, kernels.print_doubles, backend, x)
    assert numbers_after(lines, "100% doubled") == (x * 2).tolist()
    assert "on the host" in lines
    assert torch.equal(on_backend(kernels.print_doubles, backend)(x), x * 2)


def test_text_of_the_interpreter(capfd):
    x = torch.arange(6.0)
    lines = printed(capfd, kernels.print_doubles, "reference", x)
    doubles = ["tensor([0., 2., 4., 6.])", "tensor([ 8., 10.])"]
    shown = [f"at ({n}) 100% doubled: {text}" for n, text in zip((0, 4), doubles)]
    assert lines == ["on the host", *shown]


def test_text_of_native_code(capfd):
    lines = printed(capfd, kernels.print_only, "cpu", torch.arange(6.0).view(3, 2))
    assert lines == [
        "at (0, 0) idx (0, 0) x: 0.00000000",
        "at (0, 0) idx (0, 1) x: 1.00000000",
        "at (0, 0) idx (1, 0) x: 2.00000000",
        "at (0, 0) idx (1, 1) x: 3.00000000",
        "at (2, 0) idx (0, 0) x: 4.00000000",
        "at (2, 0) idx (0, 1) x: 5.00000000",
    ]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 4), (3, 5)])
def test_a_loop_that_only_prints_is_not_empty(backend, shape, capfd):
    x = torch.arange(float(shape[0] * shape[1])).view(shape)
    lines = printed(capfd, kernels.print_only, backend, x)
    assert sorted(numbers_after(lines, "x")) == x.flatten().tolist()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int8, torch.bool])
def test_elements_of_any_type(backend, dtype, capfd):
    x = torch.tensor([[1, 0, 1], [0, 1, 1]], dtype=dtype)
    lines = printed(capfd, kernels.print_rows_of_one, backend, x)
    text = "\n".join(lines).replace("False", "0").replace("True", "1")
    assert sum(numbers_after(text.splitlines(), "x")[:3]) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_scalars_and_plain_text(backend, capfd):
    lines = printed(capfd, kernels.print_numbers, backend, torch.ones(3), 5)
    text = "\n".join(lines)
    assert [int(n) for n in re.findall(r": (.*)", text.replace(", ", "\n: "))] == [0, 5, 7, 3]
    assert lines[-1] == "at (0) end of program"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_print_sees_memory_as_it_is_at_that_moment(backend, capfd):
    x = torch.arange(3.0)
    lines = printed(capfd, kernels.print_between_stores, backend, x)
    assert numbers_after(lines, "before") == [0, 1, 2]
    assert numbers_after(lines, "after") == [1, 2, 3]
    assert x.tolist() == [10, 20, 30]


@pytest.mark.parametrize("backend", BACKENDS)
def test_prints_are_neither_merged_nor_moved(backend, capfd):
    lines = printed(capfd, kernels.print_in_loops_and_branches, backend, torch.ones(3), 3)
    shown = [line.partition(") ")[2] for line in lines]
    values = [(text.split(":")[0], float(text.split(":")[1])) for text in shown]
    assert values == [("turn", 1), ("turn", 2), ("total", 3), ("total", 3)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_prints_keep_their_order_around_reductions(backend, capfd):
    lines = printed(capfd, kernels.print_around_a_reduction, backend, torch.ones(1, 40))
    assert ["total" in line for line in lines] == [True, False]
    assert numbers_after(lines, "total") == [40.0]


@pytest.mark.parametrize(("kernel", "args"), PRINTING, ids=lambda x: getattr(x, "name", ""))
def test_printing_compiles_for_a_gpu(kernel, args):
    artifact = kernel.bind(args, target="cuda:90").to_artifact()
    assert artifact.source.count("tl.device_print(") == kernel.kernel_source().count("print(") - (
        "on the host" in kernel.kernel_source()
    )
    assert compile_artifact(artifact).binary


def test_a_reduction_is_not_rolled_around_a_print():
    bound = kernels.print_around_a_reduction.bind((torch.ones(3, 40),), target="cuda:90")
    assert not bound.config_spec.default_config().get("reduction_loops")


@pytest.mark.parametrize("backend", BACKENDS)
def test_helpers_print_while_the_kernel_runs(backend, capfd):
    lines = printed(capfd, kernels.print_in_a_helper, backend, torch.arange(5.0))
    assert numbers_after(lines, "in a helper") == [0, 2, 4, 6, 8]
