"""Every verdict, each by a kernel that has just that ailment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.numerics.doctor import ailing_kernels as kernels
from tilesmith.jit.kernel import Kernel
from tilesmith.numerics.doctor.diagnose import diagnose
from tilesmith.numerics.doctor.findings import OURS, CauseKind, DiagnoseOptions, Scope
from tilesmith.numerics.doctor.report import Diagnosis
from tilesmith.numerics.inputs import random_tensor

BF16, F16 = torch.bfloat16, torch.float16
QUICK = DiagnoseOptions(repeats=3, check_batches=False, num_configs=1, inputs_time_limit_s=0.1)


def check(kernel: Any, *args: Any, **against: Callable[..., Any]) -> Diagnosis:
    return diagnose(kernel, args, against, QUICK)


def line_of(kernel: Any, text: str) -> str:
    lines = kernel.kernel_source().splitlines()
    first = kernel.fn.__code__.co_firstlineno
    (found,) = [i for i, line in enumerate(lines) if text in line]
    return f"ailing_kernels.py:{first + found}"


def in_wide(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The function in fp32 at least, rounded once to the type of its first argument."""

    def run(*args: torch.Tensor) -> torch.Tensor:
        wide = [x.to(torch.promote_types(x.dtype, torch.float32)) for x in args]
        return function(*wide).to(args[0].dtype)

    return run


def test_rounding_of_an_intermediate_names_its_line_and_variable() -> None:
    x, v = random_tensor((40, 64), torch.float32), random_tensor((64, 16), BF16, seed=1)
    found = check(
        kernels.rounded_twice, x, v, eager=lambda x, v: torch.softmax(x, -1) @ v.to(x.dtype)
    )
    assert found.verdict.kind is CauseKind.ROUNDING
    place = line_of(kernels.rounded_twice, "weights =")
    assert f"`weights` to bf16 at {place}" in found.verdict.text
    assert found.verdict.closest == "eager"
    (rounding,) = found.sensitivities
    assert rounding.share > 0.99


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_a_long_sum_in_a_narrow_type_is_accumulation(dtype: torch.dtype) -> None:
    x = random_tensor((20, 1000), dtype).abs()
    found = check(kernels.narrow_sum, x, eager=lambda x: x.sum(-1, dtype=torch.float32))
    assert found.verdict.kind is CauseKind.ORDER
    assert line_of(kernels.narrow_sum, "total + ") in found.verdict.text
    assert "carried in fp32" in found.verdict.text
    assert found.verdict.closest == "eager"


def test_sums_in_another_order_are_accumulation() -> None:
    x, y = random_tensor((33, 700), torch.float32), random_tensor((700, 20), torch.float32, seed=1)

    def backwards(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(x.shape[0], y.shape[1], dtype=x.dtype)
        for k in reversed(range(x.shape[1])):
            total = total + x[:, k, None] * y[None, k]
        return total

    found = check(kernels.matmul, x, y, backwards=backwards)
    assert found.verdict.kind is CauseKind.ORDER
    assert line_of(kernels.matmul, "addmm") in found.verdict.text
    assert not any(s.fault for s in found.statistics)


def test_naive_variance_cancels() -> None:
    x = random_tensor((20, 300), torch.float32) + 1000
    found = check(kernels.naive_variance, x, eager=lambda x: x.var(-1, correction=0))
    assert found.verdict.kind is CauseKind.CANCELLATION
    assert line_of(kernels.naive_variance, "squares - ") in found.verdict.text
    assert found.verdict.closest == "eager"


def test_the_stable_form_does_not_cancel() -> None:
    x = random_tensor((20, 300), torch.float32) + 1000
    found = check(kernels.stable_variance, x, eager=lambda x: x.var(-1, correction=0))
    assert found.verdict.kind in (CauseKind.ORDER, CauseKind.FINE)


def test_a_racing_kernel_is_found_by_the_detector() -> None:
    found = check(kernels.shifted, random_tensor((70,), torch.float32))
    assert found.verdict.kind is CauseKind.RACE
    assert line_of(kernels.shifted, "x[tile] =") in found.verdict.text
    assert "the kernel is deterministic" not in [f.text for f in found.findings]


def test_a_serial_chain_is_a_sum_and_no_function_or_cancellation() -> None:
    found = check(kernels.decaying_sum, torch.rand(8, 600))
    assert found.verdict.kind is CauseKind.ORDER
    assert "adding up many terms in f32" in found.verdict.text
    assert line_of(kernels.decaying_sum, "total = total * 0.999") in found.verdict.text


def test_results_that_change_from_run_to_run_are_a_race() -> None:
    noise = iter(range(100))

    def unsteady(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result = in_wide(torch.matmul)(x, y)
        result[3, next(noise) % 5] = 0
        return result

    x, y = random_tensor((16, 32), BF16), random_tensor((32, 16), BF16, seed=1)
    found = check(kernels.matmul, x, y, unsteady=unsteady)
    assert found.verdict.kind is CauseKind.RACE
    assert "unsteady" in found.verdict.text
    ours = found.examination.agreement(OURS, Scope.REPEATS)
    assert ours is not None
    assert ours.is_same


def test_an_implementation_with_another_formula_is_a_bug() -> None:
    x, y = random_tensor((40, 100), BF16), random_tensor((100, 20), BF16, seed=1)
    found = check(
        kernels.matmul,
        x,
        y,
        eager=in_wide(torch.matmul),
        scaled=in_wide(lambda x, y: 1.05 * (x @ y)),
    )
    assert found.verdict.kind is CauseKind.BUG
    assert found.verdict.text.startswith("scaled computes something else than the kernel")
    assert found.verdict.text.endswith("a reference (--reference) tells which.")
    assert "kernel is closer to what the kernel's own formula gives than scaled" in str(found)
    assert found.verdict.closest in ("kernel", "eager")
    given = replace(QUICK, reference=torch.matmul)
    scaled = {"scaled": in_wide(lambda x, y: 1.05 * (x @ y))}
    found = diagnose(kernels.matmul, (x, y), scaled, given)
    assert found.verdict.text.endswith("The kernel computes what the reference does.")
    assert "kernel is closer to the truth than scaled" in str(found)


def test_a_value_on_the_way_that_overflows_names_its_line() -> None:
    x = torch.full((20, 30), 100.0)
    found = check(kernels.unscaled_softmax, x, eager=lambda x: torch.softmax(x, -1))
    assert found.verdict.kind is CauseKind.BUG
    assert found.verdict.text.startswith("The kernel gives nan for out[0, 0]")
    assert line_of(kernels.unscaled_softmax, "torch.exp") in found.verdict.text
    assert [s.is_right for s in found.examination.statistics_of(OURS)] == [False]
    fine = check(kernels.unscaled_softmax, x / 10)
    assert fine.verdict.kind is not CauseKind.BUG


def test_elements_that_nobody_writes_are_no_race() -> None:
    found = check(kernels.all_but_the_last, torch.ones(100), eager=lambda x: x * 2)
    assert found.verdict.kind is CauseKind.BUG
    assert found.verdict.text.startswith("No program writes out[99]")


def test_results_that_overflow_alike_do_not_differ() -> None:
    x = torch.full((8, 9), 1e30)
    found = check(kernels.matmul, x, x.T.contiguous(), eager=torch.matmul)
    assert found.verdict.kind is CauseKind.FINE
    assert "`out`: they differ by 0 (relative norm)" in str(found)


@pytest.mark.parametrize(("repeats", "is_shown"), [(1, False), (2, True)])
def test_a_single_run_shows_no_determinism(repeats: int, is_shown: bool) -> None:
    found = diagnose(kernels.gelu, (torch.ones(8, 8),), {}, replace(QUICK, repeats=repeats))
    assert ("the kernel is deterministic" in str(found)) is is_shown
    assert ("kernel over repeats: not compared" in str(found)) is not is_shown


def test_another_reference_does_not_blame_the_compiler() -> None:
    x, y = random_tensor((8, 9), torch.float32), random_tensor((9, 4), torch.float32, seed=1)
    options = replace(QUICK, reference=lambda x, y: 2 * x @ y)
    found = diagnose(kernels.matmul, (x, y), {}, options)
    assert found.verdict.kind is CauseKind.BUG
    assert "So is its source, interpreted" in found.verdict.text


def test_wrong_code_of_the_kernel_itself_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Kernel.__call__

    def wrong(kernel: Kernel, *args: Any) -> Any:
        return right(kernel, *args).mul_(1.05)

    monkeypatch.setattr(Kernel, "__call__", wrong)
    x, y = random_tensor((40, 100), BF16), random_tensor((100, 20), BF16, seed=1)
    found = check(kernels.matmul, x, y, eager=in_wide(torch.matmul))
    assert found.verdict.kind is CauseKind.BUG
    assert found.verdict.text.startswith("The compiled kernel is wrong: out[")
    assert found.verdict.closest == "eager"


def test_code_that_adds_up_otherwise_than_its_source_is_accumulation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = Kernel.__call__

    def otherwise(kernel: Kernel, *args: Any) -> Any:
        return right(kernel, *args).mul_(1 + 2e-6)

    monkeypatch.setattr(Kernel, "__call__", otherwise)
    x = random_tensor((8, 2000), torch.float32)
    found = check(kernels.matmul, x, random_tensor((2000, 8), torch.float32, seed=1))
    assert found.verdict.kind is CauseKind.ORDER
    assert "adds up in another order than its source" in found.verdict.text


def test_functions_are_no_sums() -> None:
    found = check(kernels.gelu, random_tensor((50, 20), torch.float32))
    assert found.verdict.kind is CauseKind.FINE
    assert found.verdict.text.endswith("is that of functions such as exp or erf.")


def test_one_wrong_element_is_a_bug() -> None:
    def last_is_lost(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result = in_wide(torch.matmul)(x, y)
        result[-1, -1] = 0
        return result

    x, y = random_tensor((40, 100), BF16), random_tensor((100, 20), BF16, seed=1)
    found = check(kernels.matmul, x, y, broken=last_is_lost)
    assert found.verdict.kind is CauseKind.BUG
    assert "out[39, 19]" in found.verdict.text


def test_an_implementation_that_rounds_more_is_not_a_bug() -> None:
    """The same formula, but every partial sum is rounded to bf16."""

    def coarse(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(x.shape[0], y.shape[1], dtype=x.dtype)
        for k in range(x.shape[1]):
            total = total + x[:, k, None] * y[None, k]
        return total

    x, y = random_tensor((20, 500), BF16), random_tensor((500, 20), BF16, seed=1)
    found = check(kernels.matmul, x, y, coarse=coarse)
    assert found.verdict.kind is CauseKind.ROUNDING
    assert found.verdict.text.startswith("coarse computes the same as the kernel but rounds more")
    assert found.verdict.closest == "kernel"


def test_atomics_of_several_programs_are_named_as_not_deterministic() -> None:
    found = check(kernels.summed_by_atomics, random_tensor((20, 100), torch.float32))
    (statement,) = [f for f in found.findings if f.text.startswith("not deterministic")]
    assert line_of(kernels.summed_by_atomics, "atomic_add") in statement.text


def test_slow_references_are_explained_by_fewer_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilesmith.numerics.doctor.reruns._SLOW_S", 1e-9)
    x, v = random_tensor((80, 64), torch.float32), random_tensor((64, 16), BF16, seed=1)
    assert check(kernels.rounded_twice, x, v).verdict.kind is CauseKind.ROUNDING
    found = check(kernels.summed_by_atomics, random_tensor((20, 100), torch.float32))
    assert found.verdict.kind is CauseKind.FINE
    assert "a dozen runs" in found.verdict.text


def test_two_right_products_are_fine() -> None:
    x, y = random_tensor((40, 300), BF16), random_tensor((300, 20), BF16, seed=1)
    found = check(kernels.matmul, x, y, eager=in_wide(torch.matmul))
    assert found.verdict.kind is CauseKind.FINE
    assert "too tight" in found.verdict.text
    assert "rtol=7.8e-03" in found.verdict.tolerance


def test_two_right_activations_are_fine() -> None:
    x = random_tensor((40, 100), BF16)
    found = check(kernels.gelu, x, eager=in_wide(torch.nn.functional.gelu))
    assert found.verdict.kind is CauseKind.FINE
    assert found.sensitivities == ()
