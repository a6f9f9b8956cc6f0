"""Random kernels compute what whole tensors in eager torch do, on every backend.

The same programs at each run, a few per test; with ``--full`` others each time. A failing one is
made smaller by hypothesis and shown. ``python -m tools.fuzz`` runs thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, reject, seed, settings
from hypothesis import strategies as st

from tests.fuzzing.choices import RandomChoices, minimise
from tests.fuzzing.classes import CLASSES, shares
from tests.fuzzing.execution import (
    Failure,
    first_failure,
    is_same_failure,
    is_too_large,
    judge,
)
from tests.fuzzing.grow import grow_program
from tests.fuzzing.oracle import expected, find_difference
from tests.fuzzing.processes import Worker, grade_injections
from tests.fuzzing.program import Outer, Program, TensorSpec, UndecidedError, Value
from tests.fuzzing.replay import rebuild
from tests.fuzzing.simulated import running_ptx
from tests.fuzzing.statements import Load, Position, Store
from tests.fuzzing.variants import family

PARTS = 10
PROGRAMS_IN_A_PART = 8
MEMBERS = 3
"""Shapes of each program beside its own."""
INTERPRETED = 12
BUILT = 4
SIMULATED = 5
GRADIENTS = 4
SEED = 2026
FILTERS = [HealthCheck.filter_too_much, HealthCheck.large_base_example]


class DrawnChoices:
    """Decisions drawn by hypothesis, which shrinks them."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self._draw = draw

    def below(self, bound: int) -> int:
        return self._draw(st.integers(0, bound - 1))


@st.composite
def programs(draw: Callable[..., Any]) -> Program:
    return grow_program(DrawnChoices(draw))


def check_on_host(program: Program) -> None:
    try:
        failure = first_failure(family(program, program.seed, MEMBERS), program.seed, "host")
    except UndecidedError:
        reject()
    assert failure is None, f"{failure}\n{program.source()}{program}"


@pytest.mark.parametrize("part", range(PARTS))
def test_programs_compute_what_whole_tensors_do(part: int, request: pytest.FixtureRequest) -> None:
    is_full = request.config.getoption("--full")
    run = settings(
        max_examples=PROGRAMS_IN_A_PART * (10 if is_full else 1),
        derandomize=False,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, *FILTERS],
    )(given(programs())(check_on_host))
    (run if is_full else seed(SEED + part)(run))()


def test_programs_compile_for_a_gpu() -> None:
    for number in range(BUILT):
        program = grow_program(RandomChoices(f"{SEED}/{number}"))
        assert first_failure([program], number, "build") is None, program.source()


def test_code_for_a_gpu_computes_the_same_in_the_ptx_machine() -> None:
    cases = Counter[str]()
    with running_ptx():
        for number in range(SIMULATED):
            program = grow_program(RandomChoices(f"{SEED}/{number}"))
            verdict = judge([program], number, "ptx")
            assert verdict.failure is None, f"{verdict.failure}\n{program.source()}"
            cases += verdict.cases
    assert sum(cases.values()) >= 2 * SIMULATED


def test_exported_modules_compute_the_same_when_interpreted() -> None:
    worker = Worker("interpret")
    try:
        for number in range(INTERPRETED):
            job = {
                "seed": SEED,
                "index": number,
                "mode": "interpret",
                "shrink": False,
                "members": 1,
            }
            answer = worker.check(job, timeout=300)
            assert answer["outcome"] in ("same", "undecided", "refused"), answer
    finally:
        worker.stop()


def test_derived_gradients_are_those_of_whole_tensors() -> None:
    for number in range(GRADIENTS):
        program = grow_program(RandomChoices(f"{SEED}/{number}"), is_smooth=True)
        members = [replace(member, data="") for member in family(program, number, 1)]
        try:
            failure = first_failure(members, number, "gradient")
        except UndecidedError:
            continue
        assert failure is None, f"{failure}\n{program.source()}"


def test_known_bugs_are_noticed() -> None:
    accesses = ["wrong_stride", "ignored_load_mask"]
    names = [*accesses, "forgotten_carry", "short_loop", "swapped_operands"]
    for found in grade_injections(names, limit=60, seed=0):
        assert found["is_caught"], found


def test_decisions_give_the_same_program_again() -> None:
    for number in range(20):
        choices = RandomChoices(f"again/{number}")
        program = grow_program(choices)
        assert rebuild(choices.taken) == program
        assert rebuild(choices.taken).source() == program.source()


def test_programs_use_the_whole_language() -> None:
    text = "".join(grow_program(RandomChoices(f"wide/{n}")).source() for n in range(200))
    for part in (
        "hl.tile(", "hl.tile([", "hl.grid(", "range(", "hl.static_range(", "while ", "if ", "else:",
        "hl.dot(", "torch.addmm(", " @ ", "extra_mask=", "hl.load(", "hl.store(", ".index",
        "hl.atomic_add(", "torch.cumsum(", "torch.argmax(", "torch.where(", ".permute(",
        "[:, None]",
        ".to(torch.bfloat16)", "block_size=", "hl.constexpr", "torch.full(", "hl.full(",
        "hl.barrier()", "hl.reduce(", "hl.associative_scan(", "hl.cumsum(", "hl.cumprod(",
        "torch.sort(", "torch.topk(", ".reshape(", ".view(", ".flatten(", ".unflatten(",
        ".block_size *", "reverse=True", "other=",
        "def helper", ".begin, ", ".end)", "hl.atomic_max(", "hl.atomic_xor(", "same0", " + bias",
        ".to(torch.float8_e4m3fn)", "torch.uint8", "torch.int16", "_ends, 0)", " - 1 - ",
        " // 2", ".index % ", "reversed(hl.tile(", "hl.rand(", "hl.randint(", "hl.atomic_xchg(",
        "hl.atomic_cas(", "_inner(", "_rest = ", "if is_plain:",
        " % 5", " % -3", " // -4", " % ((", " // ((", "torch.fmod(", "rounding_mode='trunc'",
    ):  # fmt: skip
        assert part in text, part


def test_no_class_of_programs_is_rare() -> None:
    found = shares([grow_program(RandomChoices(f"0/{n}")) for n in range(300)])
    rare = {name: share for name, share in found.items() if share < CLASSES[name][0]}
    assert not rare


def test_most_results_are_compared_and_many_exactly() -> None:
    known, exact, total = 0, 0, 0
    for number in range(20):
        try:
            results = expected(grow_program(RandomChoices(f"exact/{number}")))
        except UndecidedError:
            continue
        for result in results:
            total += result.value.numel()
            known += int((~result.error.isinf()).sum())
            exact += int((result.error == 0).sum())
    assert known > 0.8 * total
    assert exact > 0.5 * total


def test_a_wrong_element_is_a_difference() -> None:
    wanted = expected(grow_program(RandomChoices("exact/0")))
    found = [result.value.to(result.dtype) for result in wanted]
    assert find_difference(found, wanted) is None
    place = next(n for n, result in enumerate(wanted) if result.value.numel())
    changed = found[place].clone()
    changed.view(-1)[-1] = ~changed.view(-1)[-1] if changed.dtype == torch.bool else 55
    assert find_difference([*found[:place], changed, *found[place + 1 :]], wanted) is not None


def test_minimising_keeps_what_fails_and_drops_the_rest() -> None:
    def is_failing(decisions: list[int]) -> bool:
        return sum(decision >= 5 for decision in decisions) >= 2

    assert minimise([1, 9, 0, 3, 7, 2, 8, 4], is_failing) == [5, 5]


def test_failures_of_another_kind_are_not_the_same() -> None:
    wrong = Failure("cpu {'block_sizes': [4]}", "output out0: 3 of 4 elements are wrong")
    assert is_same_failure(Failure("cpu", "output out1: 1 of 1 elements are wrong"), wrong)
    assert not is_same_failure(Failure("interpreter", "output out0: ..."), wrong)
    assert not is_same_failure(Failure("cpu", "KeyError: 'x'"), wrong)
    assert not is_same_failure(None, wrong)


def test_a_program_too_large_for_a_gpu_is_refused_and_not_wrong() -> None:
    sizes = {"M": 1, "N": 129, "K": 65}
    tensors = (
        TensorSpec("x0", torch.float32, ("M", "N", "K")),
        TensorSpec("out0", torch.float32, ("M", "N", "K"), content="fill", is_output=True),
    )
    positions = (Position("tile", "t0"), Position("full"), Position("full"))
    value = Value("v0", torch.float32, ("t0", "N", "K"))
    body = (Load(value, "x0", positions), Store("out0", positions, value, value.axes))
    loop = Outer("tile", (("t0", "M", 0, 0),), 64, body)
    verdict = judge([Program(sizes, tensors, (), (loop,), True, 0)], 1, "host")
    assert verdict.failure is None
    assert [is_too_large(refusal.problem) for refusal in verdict.refused] == [True]


def test_other_refusals_are_failures() -> None:
    text = "InvalidConfig: tile v0 f32[t0, 300] would hold {} elements, at most 1048576 elements"
    assert is_too_large(text.format(4194304))
    assert not is_too_large(text.format(4096))
    assert not is_too_large("InvalidConfig: pid_type='xyz' would launch 70000 x 1 programs")
