"""Stages run their passes in order; the verifier stands between them and names who broke the IR."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

import tilesmith as helion
from tests.passes.program_text import make_program
from tilesmith import language as hl
from tilesmith.compiler import specialization as compiler
from tilesmith.compiler.lowering import Lowering, Pass, Stage, is_verified, rewrite, run_stages
from tilesmith.compiler.pipeline import STAGES, STANDARD
from tilesmith.exc import InternalError
from tilesmith.ir.function import Function
from tilesmith.settings import Settings


def add_one(function: Function) -> Function:
    return replace(function, name=function.name + "1")


def add_two(function: Function) -> Function:
    return replace(function, name=function.name + "2")


def keep(function: Function) -> Function:
    return function


def lose_first_op(function: Function) -> Function:
    """Breaks the IR: what the first op defines is used later."""
    return function.with_body(replace(function.body, ops=function.body.ops[1:]))


def names_after(*passes: Pass) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []
    run_stages(
        Lowering(make_program("")),
        [Stage("S", "For a test.", passes)],
        [lambda stage, step, before, after: seen.append((step.name, after.name))],
    )
    return seen


def test_passes_run_in_order_under_observation() -> None:
    passes = [rewrite(run, "For a test.") for run in (add_one, add_two, add_one)]
    found = names_after(*passes)
    assert found == [("add_one", "program1"), ("add_two", "program12"), ("add_one", "program121")]


@pytest.mark.parametrize(
    ("first", "expected"), [(keep, ["keep"]), (add_one, ["add_one", "add_two"])]
)
def test_cleanup_comes_only_after_a_change(first, expected) -> None:
    found = names_after(rewrite(first, ""), rewrite(add_two, "", cleanup=True))
    assert [name for name, _ in found] == expected


def test_stages_without_passes_give_the_same_object() -> None:
    state = Lowering(make_program(""))
    assert run_stages(state, [Stage("S", "For a test.", ())]) is state


def test_every_stage_and_pass_has_its_reason() -> None:
    for stage in STAGES:
        for reason in (stage.reason, *(step.reason for step in stage.passes)):
            assert re.fullmatch(r"[A-Z].*\.", reason), (stage.name, reason)
    assert len({stage.name for stage in STAGES}) == len(STAGES)


@helion.kernel
def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = (*STANDARD.passes, rewrite(lose_first_op, "It is wrong on purpose."))
    monkeypatch.setattr(compiler, "STANDARD", replace(STANDARD, passes=passes))


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("settings", [{}, {"verify_passes": False, "check": True}], ids=str)
def test_a_pass_that_breaks_the_ir_is_named(settings) -> None:
    kernel = helion.kernel(double.fn, **settings)
    with pytest.raises(
        InternalError, match="pass lose_first_op of stage STANDARD left invalid IR"
    ) as e:
        kernel.bind((torch.zeros(8),))
    assert "func @double" in str(e.value)


@pytest.mark.parametrize("name", ["verify_passes", "check", "debug_dtype_asserts"])
def test_each_of_three_settings_verifies(name: str) -> None:
    assert is_verified(Settings.from_environment({name: True}, environ={}))
    assert not is_verified(Settings.from_environment({}, environ={}))


def test_tests_verify_by_default_and_users_do_not() -> None:
    assert Settings().verify_passes
    assert not Settings.from_environment({}, environ={}).verify_passes
