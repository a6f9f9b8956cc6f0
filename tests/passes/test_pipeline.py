"""Pipelines run their passes in order and show every result to every observer."""

from __future__ import annotations

from dataclasses import replace

from tests.passes.program_text import make_program
from tilesmith.ir.function import Function
from tilesmith.passes.pipeline import make_pipeline, run_pipeline


def add_one(function: Function) -> Function:
    return replace(function, name=function.name + "1")


def add_two(function: Function) -> Function:
    return replace(function, name=function.name + "2")


def test_passes_run_in_order_under_observation() -> None:
    seen: list[tuple[str, str]] = []
    pipeline = make_pipeline(add_one, add_two, add_one)
    after = run_pipeline(
        make_program(""), pipeline, [lambda step, result: seen.append((step.name, result.name))]
    )
    assert after.name == "program121"
    assert seen == [("add_one", "program1"), ("add_two", "program12"), ("add_one", "program121")]


def test_empty_pipeline_gives_the_same_object() -> None:
    program = make_program("")
    assert run_pipeline(program, ()) is program
