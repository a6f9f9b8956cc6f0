"""What was asked for becomes jobs, or an error that says what there is."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.bench.tiny_suite import NAME, make_vector, suite
from tilesmith.bench.case import Operator, Suite, load_suite
from tilesmith.bench.plan import Job, Options, PlanError, Shard, choose_inputs, make_plan
from tilesmith.bench.row import Owner


def plan(**options: Any) -> tuple[Job, ...]:
    return make_plan(suite(), Options(suite=NAME, device="cpu", **options))


def names(jobs: tuple[Job, ...]) -> list[str]:
    return list(dict.fromkeys(job.implementation.name for job in jobs))


def gemm() -> Operator:
    return Operator("gemm", [make_vector(size) for size in range(1, 32)], {}, torch.sum)


@pytest.mark.parametrize("count", [1, 2, 4, 7, 31, 40])
@pytest.mark.parametrize("total", [0, 1, 7, 31])
def test_shards_share_all_inputs_among_them_the_first_taking_what_is_left(
    total: int, count: int
) -> None:
    parts = [Shard(number, count).positions(total) for number in range(1, count + 1)]
    assert [position for part in parts for position in part] == list(range(total))
    sizes = [len(part) for part in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


def test_the_first_of_four_shards_of_31_inputs_is_0_to_7() -> None:
    assert list(choose_inputs(gemm(), Options(shard=Shard.parse("1/4")))) == list(range(8))
    assert list(choose_inputs(gemm(), Options(shard=Shard.parse("4/4")))) == list(range(24, 31))


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/", "/4", "a/b", "-1/4", "1/4/2", ""])
def test_a_shard_that_is_none_is_named(text: str) -> None:
    with pytest.raises(PlanError, match="M/N"):
        Shard.parse(text)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (Options(num_inputs=3), [0, 1, 2]),
        (Options(input_ids=(5,)), [5]),
        (Options(input_ids=(5, 2)), [5, 2]),
        (Options(input_ids=(29,), num_inputs=3), [29, 30]),
        (Options(shard=Shard(2, 4), num_inputs=2), [8, 9]),
        (Options(shard=Shard(2, 4), input_ids=(1, 9)), [9]),
    ],
)
def test_inputs_are_chosen_by_shard_position_and_number(
    options: Options, expected: list[int]
) -> None:
    assert list(choose_inputs(gemm(), options)) == expected


def test_every_input_has_every_implementation_ours_first() -> None:
    jobs = plan(kernels=("double",))
    expected = ["tilesmith", "tilesmith_tuned", "eager", "torch_compile", "torch_compile_max"]
    assert names(jobs) == [*expected, "by_hand"]
    assert len(jobs) == 3 * 6
    assert [job.owner for job in jobs[:3]] == [Owner.OURS, Owner.OURS, Owner.THEIRS]
    assert len({job.key for job in jobs}) == len(jobs)


def test_several_kernels_of_an_operator_are_told_apart() -> None:
    jobs = plan(kernels=("sum",), only=("tilesmith*",))
    assert names(jobs) == [
        "tilesmith_one",
        "tilesmith_one_tuned",
        "tilesmith_two",
        "tilesmith_two_tuned",
    ]


def test_ours_may_be_asked_for_whatever_the_kernels_are_called() -> None:
    assert names(plan(kernels=("sum",), only=("tilesmith",))) == ["tilesmith_one", "tilesmith_two"]
    tuned = plan(kernels=("double", "sum"), only=("tilesmith_tuned",))
    assert set(names(tuned)) == {"tilesmith_tuned", "tilesmith_one_tuned", "tilesmith_two_tuned"}


def test_plugins_are_for_all_operators_or_for_the_one_they_name() -> None:
    everywhere = plan(impls=("fast.products:matmul",), only=("products.matmul",))
    assert [job.operator for job in everywhere] == ["double"] * 3 + ["sum"] + ["fragile"] * 3
    assert everywhere[0].implementation.target == "fast.products:matmul"
    one = plan(impls=("sum=fast.products:matmul",), only=("products.matmul",))
    assert [job.operator for job in one] == ["sum"]


def test_what_is_not_installed_is_there_only_by_name() -> None:
    assert "helion" not in names(plan(kernels=("double",)))
    asked = plan(kernels=("double",), only=("helion",))
    assert {job.problem for job in asked} == {"helion is not installed"}


def test_a_type_or_device_that_an_operator_is_not_for_is_a_reason_not_an_error() -> None:
    wide = plan(kernels=("double",), dtype="fp64", only=("eager",))
    assert {(job.dtype, job.problem) for job in wide} == {("float64", "")}
    half = plan(kernels=("double",), dtype="bf16", only=("eager",))
    assert {job.problem for job in half} == {"double is not for torch.bfloat16"}
    elsewhere = Suite("t", [replace(gemm(), kernels={"gemm": "m:f"}, devices=("cuda",))])
    job = make_plan(elsewhere, Options(device="cpu", only=("eager",)))[0]
    assert job.problem == "gemm is not for cpu"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"kernels": ("doubel",)}, "did you mean double"),
        ({"only": ("tilesmit",)}, "did you mean tilesmith"),
        ({"impls": ("doubel=m:f",)}, "did you mean double"),
        ({"impls": ("no_colon",)}, "module:function"),
        ({"metrics": ("latncy",)}, "did you mean latency"),
        ({"regime": "hot"}, "cold"),
        ({"dtype": "fp17"}, "fp16"),
        ({"backend": "trition"}, "did you mean triton"),
        ({"input_ids": (3,), "kernels": ("double",)}, "3 inputs"),
        ({"input_ids": (-1,)}, "-1"),
        ({"num_inputs": 0}, "num-inputs"),
        ({"timeout_s": 0.0}, "timeout"),
        ({"tune_budget_s": -1.0}, "budget"),
        ({"resume": True}, "file"),
        ({"retry_failed": True}, "resume"),
        ({"retry_disturbed": True}, "resume"),
    ],
)
def test_a_wrong_option_is_named_with_what_there_is(options: dict[str, Any], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        plan(**options)


def test_a_suite_is_found_by_its_module() -> None:
    assert [operator.name for operator in load_suite(NAME).operators] == [
        "double",
        "sum",
        "fragile",
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no_such_suite", "no module of that name"),
        ("tests.bench.no_such_suite", "no module of that name"),
        ("tests.bench.made_up_rows", "no function suite"),
    ],
)
def test_a_suite_that_is_none_is_named(name: str, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        load_suite(name)


def test_plug_ins_of_one_name_are_told_apart() -> None:
    with pytest.raises(PlanError, match=r"a\.m:f is called m\.f too"):
        plan(impls=("a.m:f", "b.m:f"))
    both = plan(impls=("double=a.m:f", "sum=b.m:f"), only=("m.f",))
    assert {job.implementation.target for job in both} == {"a.m:f", "b.m:f"}


def test_an_input_that_is_named_twice_runs_once() -> None:
    assert list(choose_inputs(gemm(), Options(input_ids=(5, 2, 5)))) == [5, 2]


@pytest.mark.parametrize("what", ["operators", "inputs"])
def test_names_in_a_suite_are_unique(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    once, twice = (1, 2) if what == "inputs" else (2, 1)
    inputs = [make_vector(1)] * twice
    made = Suite("twins", [Operator("one", inputs, {}, torch.sum)] * once)
    monkeypatch.setattr(sys.modules[NAME], "suite", lambda: made)
    with pytest.raises(PlanError, match=f"two {what}( of one)? are called"):
        load_suite(NAME)


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    Options().check_device()
    with pytest.raises(PlanError, match="no GPU"):
        Options(device="cuda").check_device()


def test_a_name_that_other_operators_have_is_passed_over() -> None:
    assert names(plan(kernels=("double",), only=("eager", "by_hand"))) == ["eager", "by_hand"]
    assert names(plan(kernels=("sum",), only=("eager", "by_hand"))) == ["eager"]
    with pytest.raises(PlanError, match="--only by_hand: there are"):
        plan(kernels=("sum",), only=("by_hand",))
    with pytest.raises(PlanError, match="--only eagle: did you mean eager"):
        plan(kernels=("sum",), only=("eager", "eagle"))
