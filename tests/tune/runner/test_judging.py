"""What candidates are judged by: the fp64 reference, a baseline, or the first of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tests.tune.runner.cases import CASES, make_case, matmul_case, softmax_case, with_llvm
from tilesmith.lab.workload.capture import save_expected
from tilesmith.numerics.oracle import NoReferenceError
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Verdict
from tilesmith.tune.jobs import CheckJob
from tilesmith.tune.runner import state as judging
from tilesmith.tune.runner.state import RunnerState, match_results


@pytest.mark.parametrize("name", CASES)
def test_all_cases_pass_their_fp64_reference(name, tmp_path):
    case = CASES[name](tmp_path)
    state = RunnerState()
    reply = state.handle(case.prepare_job())
    assert reply.judge.startswith("fp64 reference")
    assert reply.reason == ""
    for size in (8, 16):
        config = Config.from_dict(
            {**case.default, "block_sizes": [size] * len(case.default["block_sizes"])}
        )
        check = state.handle(CheckJob(case.program(str(size), config)))
        assert check.verdict is Verdict.OK, check.reason


def test_spoilt_code_fails_the_reference_and_the_reason_names_the_element(tmp_path):
    case = softmax_case(tmp_path)
    state = RunnerState()
    state.handle(case.prepare_job())
    reply = state.handle(CheckJob(with_llvm(case.program(), " fadd ", " fsub ")))
    assert reply.verdict is Verdict.WRONG
    assert "out[" in reply.reason


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("insists", [False, True])
def test_bits_may_differ_only_where_floats_are_added_by_atomics(name, insists, tmp_path):
    job = CASES[name](tmp_path).prepare_job(has_deterministic_results=insists)
    runner = RunnerState()
    runner.handle(job)
    assert runner._checker is not None
    assert runner._checker.may_differ is (name == "float sum" and not insists)


def test_without_a_reference_the_first_candidate_is_what_is_right(tmp_path):
    case = softmax_case(tmp_path)
    state = RunnerState()
    reply = state.handle(case.prepare_job(reference=None))
    assert (reply.judge, reply.reason) == ("first candidate", "there is no reference")
    assert state.handle(CheckJob(case.program("a"))).verdict is Verdict.OK
    assert state.handle(CheckJob(case.program("b"))).verdict is Verdict.OK
    spoilt = with_llvm(case.program("c"), " fadd ", " fsub ")
    assert state.handle(CheckJob(spoilt)).verdict is Verdict.WRONG


@pytest.mark.parametrize("error", [NoReferenceError("too slow"), KeyError("an op")])
def test_a_reference_that_fails_leaves_the_first_candidate(tmp_path, monkeypatch, error):
    def fail(*args):
        raise error

    monkeypatch.setattr(judging, "work_out_reference", fail)
    reply = RunnerState().handle(matmul_case(tmp_path).prepare_job())
    assert reply.judge == "first candidate"
    assert ("too slow" in reply.reason) or ("KeyError: 'an op'" in reply.reason)


def test_a_reference_has_a_time_limit(tmp_path):
    reply = RunnerState().handle(matmul_case(tmp_path).prepare_job(time_limit_s=0.0))
    assert reply.judge == "first candidate"
    assert reply.reason


def test_the_users_own_function_can_be_the_judge(tmp_path):
    case = matmul_case(tmp_path)
    good = save_expected([case.expected.float()], tmp_path)
    bad = save_expected([case.expected.float() + 1.0], tmp_path)
    for path, verdict in ((good, Verdict.OK), (bad, Verdict.WRONG)):
        state = RunnerState()
        reply = state.handle(case.prepare_job(reference=None, expected=path))
        assert reply.judge == "the baseline function"
        assert state.handle(CheckJob(case.program())).verdict is verdict
    state = RunnerState()
    state.handle(case.prepare_job(reference=None, expected=bad, atol=2.0))
    assert state.handle(CheckJob(case.program())).verdict is Verdict.OK


def test_results_may_go_unchecked(tmp_path):
    case = softmax_case(tmp_path)
    state = RunnerState()
    assert state.handle(case.prepare_job(is_checked=False)).judge == "nothing"
    spoilt = with_llvm(case.program(), " fadd ", " fsub ")
    assert state.handle(CheckJob(spoilt)).verdict is Verdict.OK


def test_results_are_matched_by_shape_in_order():
    outputs = {"a": torch.zeros(2), "b": torch.zeros(3), "c": torch.zeros(2)}
    one, two = torch.ones(2), torch.full((2,), 2.0)
    matched = match_results([one, two, torch.ones(7)], outputs)
    assert {name: float(x[0]) for name, x in matched.items()} == {"a": 1.0, "c": 2.0}
    with pytest.raises(ValueError, match="no tensor of the shape"):
        match_results([torch.ones(7)], outputs)


@tilesmith.kernel()
def partial_sums(x: torch.Tensor) -> torch.Tensor:
    block = hl.register_block_size(x.size(0))
    out = x.new_empty([tilesmith.cdiv(x.size(0), block)])
    for tile in hl.tile(x.size(0), block_size=block):
        out[tile.id] = x[tile].sum()
    return out.sum()


def test_candidates_with_tensors_of_their_own_bring_their_own_reference(tmp_path):
    x = torch.randn(1000, generator=torch.Generator().manual_seed(6))
    case = make_case(partial_sums, (x,), x.double().sum(), tmp_path)
    state = RunnerState()
    assert state.handle(case.prepare_job()).judge.startswith("fp64")
    for size in (32, 64):
        config = Config.from_dict({**case.default, "block_sizes": [size]})
        program, reference = case.program(str(size), config), case.candidates.reference(config)
        assert program.binding.extra_storages is not None
        reply = state.handle(CheckJob(program, reference))
        assert reply.verdict is Verdict.OK, reply.reason
        spoilt = with_llvm(replace(program, key="spoilt"), " fadd ", " fsub ")
        assert state.handle(CheckJob(spoilt, reference)).verdict is Verdict.WRONG
