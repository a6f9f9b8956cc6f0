"""Shapes and forms of random programs, and how a run of them ends."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from tests.fuzzing.choices import RandomChoices
from tests.fuzzing.execution import Watch, first_failure, judge
from tests.fuzzing.grow import grow_program
from tests.fuzzing.grow_rows import grow_rows
from tests.fuzzing.oracle import expected, make_arguments
from tests.fuzzing.processes import Worker, last_words
from tests.fuzzing.program import Outer, Program, TensorSpec, UndecidedError, Value
from tests.fuzzing.reductions import scanned
from tests.fuzzing.runs import Runs, cases
from tests.fuzzing.saved_programs import restored, saved
from tests.fuzzing.statements import Create, Load, Position, Store
from tests.fuzzing.tracked import exactly
from tests.fuzzing.variants import CODES, LARGE, SHAPES, codes, family

ROWS = range(0, 24, 2)


def rows_program(number: int) -> Program:
    return grow_rows(RandomChoices(f"rows/{number}"))


@pytest.mark.parametrize("seed", range(8))
def test_shapes_that_share_code_are_of_few_kinds(seed: int) -> None:
    program = grow_program(RandomChoices(f"shapes/{seed}"))
    members = family(program, seed, 60, shares_code=True)
    sizes = [tuple(member.sizes.values()) for member in members]
    if not program.free_sizes:
        return
    assert len(set(sizes)) == len(sizes)
    usual = [
        member.sizes
        for member in members[1:]
        if min(member.sizes[name] for name in program.free_sizes) > 1
        and max(member.sizes.values()) < LARGE[0] - 16
    ]
    assert len({codes(sizes) for sizes in usual}) <= CODES
    assert len(usual) <= CODES * SHAPES


@pytest.mark.parametrize("number", ROWS[:4])
def test_programs_with_rows_compute_what_whole_tensors_do(number: int) -> None:
    program = rows_program(number)
    assert first_failure([program], number, "host") is None, program.source()


def test_programs_with_rows_have_other_forms() -> None:
    found: set[str] = set()
    for number in ROWS:
        try:
            (case,) = cases([rows_program(number)])
        except UndecidedError:
            continue
        found |= {config["structure"] for config in Runs(case).gpu_forms(number)}
    assert {"two_phases", "last_reduces", "exchange", "sum_parts"} <= found


def test_what_was_loaded_stays_when_the_tensor_is_stored_to() -> None:
    place = (Position("tile", "t0"),)
    first, again, three = (Value(f"v{n}", torch.float32, ("t0",)) for n in range(3))
    tensors = (
        TensorSpec("x0", torch.float32, ("M",)),
        TensorSpec("out0", torch.float32, ("M",), content="fill", is_output=True),
        TensorSpec("out1", torch.float32, ("M",), content="fill", is_output=True),
    )
    body = (
        Load(first, "x0", place),
        Store("out0", place, first, ("t0",)),
        Load(again, "out0", place),
        Create(three, "3", "t0"),
        Store("out0", place, three, ("t0",)),
        Store("out1", place, again, ("t0",)),
    )
    loop = Outer("tile", (("t0", "M", 0, 0),), None, body)
    program = Program({"M": 5, "N": 1, "K": 1}, tensors, (), (loop,), True, 3)
    arguments = make_arguments(program)
    stored, kept = expected(program, arguments)
    assert torch.equal(stored.value, torch.full([5], 3.0, dtype=torch.float64))
    assert torch.equal(kept.value, arguments[0].view.double())
    assert first_failure([program], 0, "host") is None


def test_products_that_vanish_in_one_order_may_remain_in_another() -> None:
    """Three tiny factors and two others: 0 from the left, 4.9e-324 from the right."""
    given = torch.tensor([-1.5e-323, -0.148, -1.764, 0.0], dtype=torch.float64)
    found = scanned("cumprod", exactly(given), 0, torch.float64)
    assert found.value[2] == 0
    assert 0 < found.error[2] < 1e-300
    assert found.error[3] == 0


def test_nothing_is_begun_after_the_end_of_the_time() -> None:
    told: list[str] = []
    members = family(grow_program(RandomChoices("exact/0")), 0, 3)
    verdict = judge(members, 0, "host", Watch(0.0, lambda number, way, cases: told.append(way)))
    assert verdict.failure is None
    assert not verdict.cases
    assert not told


def test_code_for_a_gpu_is_compiled_without_one() -> None:
    """Every shape comes as far as its launch, and those of a kind share code."""
    worker = Worker("unlaunched")
    job = {"seed": 5, "index": 11, "mode": "unlaunched", "members": 9, "shrink": False}
    try:
        answer = worker.check(job, timeout=300)
    finally:
        worker.stop()
    assert answer["outcome"] == "same", answer
    assert sum(answer["cases"].values()) >= 20
    assert answer["seconds"]["triton"] > 0


def test_shapes_that_share_code_are_many_and_beside_edges() -> None:
    programs = [grow_program(RandomChoices(f"many/{seed}")) for seed in range(40)]
    found = [family(x, 0, 40, shares_code=True) for x in programs if x.free_sizes]
    counts = [Counter(codes(member.sizes) for member in members) for members in found]
    assert sum(max(count.values()) for count in counts) > 8 * len(counts)
    odd = [n for members in found for x in members for n in x.sizes.values() if n > 16 and n % 2]
    beside = [n for n in odd if n % 16 in (1, 15)]
    assert len(beside) > len(odd) / 3  # a quarter of all odd numbers


def test_a_process_that_dies_leaves_its_program_and_what_it_was_about_to_run() -> None:
    members = family(grow_program(RandomChoices("exact/0")), 0, 2)
    begun = {"begun": saved(members, 0, "host", "")}
    words = last_words({**begun, "shape": 1, "at": "cpu {}"}, "the process died (-11)", "host")
    assert words["problem"] == "the process died (-11) in shape 2: cpu {}"
    assert restored(words["saved"]) == members
    assert "saved" not in last_words({}, "the process hung (None)", "host")
