"""Saved modules: readable, complete, and free of this package."""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tilesmith as helion
from tests.compiler import user_kernels
from tests.examples.cases import EXAMPLES
from tests.warm_python import warm_python
from tilesmith.numerics.compare import check_against
from tilesmith.targets import parse_target

ROOT = Path(__file__).parents[2]
CASES = {case.name: case for case in EXAMPLES}
SHOWN = ("add", "softmax", "matmul_bias_relu", "attention", "dot_compress_fwd_z")
X = torch.arange(1, 14, dtype=torch.float32)
SMALL = helion.Config(block_sizes=[4])


def saved(kernel: Any, args: tuple[Any, ...], config: helion.Config) -> str:
    return kernel.bind(args, target="cuda:90").to_triton_code(config)


def example(name: str) -> tuple[str, tuple[Any, ...]]:
    case = CASES[name]
    args = case.make_inputs(case.sizes[-1], case.dtypes[0], "cpu")
    return saved(case.kernel, args, case.config), args


def imported(text: str) -> set[str]:
    """Top-level packages that a module imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module).partition(".")[0])
    return names


@pytest.fixture(scope="module")
def process() -> Iterator[subprocess.Popen[str]]:
    """A process that never imports tilesmith; starting one takes longer than most tests here."""
    paths = f"import sys; sys.path.insert(0, {str(ROOT)!r})"
    script = "tests.compiler.run_saved_module"
    command = f"{paths}; import runpy; runpy.run_module({script!r}, run_name='__main__')"
    with subprocess.Popen(
        [*warm_python(), "-W", "ignore", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        yield started


@pytest.fixture
def run(tmp_path: Path, process: subprocess.Popen[str]) -> Callable[..., Any]:
    """Run a saved module's host function in that process."""

    def run_saved(text: str, name: str, *args: Any) -> Any:
        module, inputs, output = (tmp_path / file for file in ("saved.py", "in.pt", "out.pt"))
        module.write_text(text)
        torch.save(args, inputs)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([str(module), name, str(inputs), str(output)]) + "\n")
        process.stdin.flush()
        problem = json.loads(process.stdout.readline())
        assert not problem, problem
        return torch.load(output)

    return run_saved


@pytest.mark.parametrize("name", SHOWN)
def test_text_is_as_recorded(name: str, golden: Callable[..., None]) -> None:
    golden(example(name)[0])


@pytest.mark.parametrize("case", EXAMPLES, ids=str)
def test_examples_need_torch_triton_and_math_only(case: Any) -> None:
    text, _ = example(case.name)
    assert imported(text) <= {"torch", "triton", "math"}


@pytest.mark.parametrize("name", ["add", "softmax", "attention", "dot_compress_fwd_z"])
def test_saved_examples_run_without_this_package(name: str, run: Callable[..., Any]) -> None:
    case = CASES[name]
    text, args = example(name)
    result = run(text, case.kernel.name, *args)
    case.check(result, args, case.sizes[-1], case.dtypes[0])


def test_text_is_the_same_every_time() -> None:
    first, _ = example("attention")
    CASES["attention"].kernel.reset()
    assert example("attention")[0] == first


def test_constants_of_the_module_are_copied(run: Callable[..., Any]) -> None:
    text = saved(user_kernels.reads_constants, (X,), SMALL)
    assert imported(text) == {"torch", "triton", "math"}
    assert '"""Adds what the module says."""' in text
    assert torch.equal(run(text, "reads_constants", X), X * 2)


def test_language_calls_of_host_code_are_folded(run: Callable[..., Any]) -> None:
    kernel = user_kernels.uses_the_language_on_the_host
    config = helion.Config(block_sizes=[4], parts=4, factor=2.5)  # pyright: ignore[reportCallIssue]
    expected = kernel.bind((X,)).compile_config(config)(X)
    assert expected.numel() == 4 * 4 * 3
    text = saved(kernel, (X,), config)
    assert imported(text) == {"torch", "triton"}
    assert torch.equal(run(text, kernel.name, X), expected)


def test_numbers_are_parameters_of_the_saved_module(run: Callable[..., Any]) -> None:
    text = saved(user_kernels.takes_numbers, (X, 0.5, [1.0, 2.0]), SMALL)
    assert torch.equal(run(text, "takes_numbers", X, 3.0, [9.0, 4.0]), X * 3 + 4)


@pytest.mark.parametrize(
    "kernel", [user_kernels.launch, user_kernels.names_a_variable_launch], ids=lambda k: k.name
)
def test_names_of_the_user_win(kernel: Any, run: Callable[..., Any]) -> None:
    assert torch.equal(run(saved(kernel, (X,), SMALL), kernel.name, X), X + 1)


@pytest.mark.parametrize(
    "kernel",
    [user_kernels.reads_a_global_tensor, user_kernels.reads_a_global_tensor_in_a_helper],
    ids=lambda k: k.name,
)
def test_global_tensors_are_imported_from_where_they_are(kernel: Any) -> None:
    text = saved(kernel, (X,), SMALL)
    assert "from tests.compiler.user_kernels import TABLE" in text
    assert "__constants__" not in text
    compile(text, "saved", "exec")


def test_one_saved_module_serves_other_sizes(run: Callable[..., Any]) -> None:
    config = helion.Config(block_sizes=[16, 16, 16])
    traced = (torch.randn(5, 6), torch.randn(6, 7))
    text = saved(user_kernels.product_of_any_size, traced, config)
    x, y = torch.randn(33, 19), torch.randn(19, 40)
    result = run(text, "product_of_any_size", x, y)
    check_against(result, x.double() @ y.double(), reduction_length=19)


def test_rows_of_other_lengths_in_one_saved_module(run: Callable[..., Any]) -> None:
    text = saved(user_kernels.softmax_of_any_size, (torch.randn(5, 6),), SMALL)
    x = torch.randn(9, 37)
    result = run(text, "softmax_of_any_size", x)
    check_against(result, torch.softmax(x.double(), 1), reduction_length=37)


def test_locations_are_shown_as_comments() -> None:
    text, _ = example("add")
    assert "# src[add.py:" in text


@pytest.mark.parametrize("target", ["cuda:80", "cuda:100", "hip:gfx942"])
def test_another_target_may_be_asked_for(target: str) -> None:
    bound = user_kernels.launch.bind((X,))
    assert "@triton.jit" in bound.to_triton_code(SMALL, target=target)
    assert bound.to_artifact(SMALL, target=target).target == parse_target(target)
