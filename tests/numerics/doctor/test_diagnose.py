"""Known errors of implementations are reported exactly, and nothing else."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
import torch

from tests.numerics.doctor.diagnosed_kernels import (
    centred,
    column_sums,
    increment,
    moved,
    positive,
    product,
    quick,
    rounded,
    sized,
    tripled,
    tripled_rows,
    wide_product,
    with_error_at,
)
from tilesmith.numerics import diagnose
from tilesmith.numerics.doctor.findings import AS_WRITTEN, OURS, Scope
from tilesmith.schedule.config import Config


def statistics(diagnosis, implementation):
    (found,) = diagnosis.examination.statistics_of(implementation)
    return found


def agreement(diagnosis, implementation, over):
    found = diagnosis.examination.agreement(implementation, over)
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_right_implementation_is_found_right(dtype):
    x = positive(5, 7, dtype=dtype)
    diagnosis = quick(tripled, (x,), {"other": rounded})
    for name in (OURS, "other", AS_WRITTEN):
        found = statistics(diagnosis, name)
        assert found.is_right
        assert (found.num_elements, found.dtype) == (35, dtype)
        assert found.max_ulp <= 0.5


def test_one_wrong_element_is_found_where_it_is():
    x = positive(6, 5)
    diagnosis = quick(tripled, (x,), {"other": with_error_at(rounded, (4, 3), 1000)})
    found = statistics(diagnosis, "other")
    exact = 3 * float(x[4, 3])
    got = float(with_error_at(rounded, (4, 3), 1000)(x)[4, 3])
    assert found.worst[0].index == (4, 3)
    assert (found.worst[0].expected, found.worst[0].got) == (exact, got)
    assert found.max_ulp == found.worst[0].error_ulp
    assert 999.5 <= found.max_ulp <= 1000.5
    assert found.median_ulp <= 0.5
    assert "out[4, 3]" in found.fault
    assert "1 of 30" in found.fault
    assert statistics(diagnosis, OURS).is_right


def test_a_bias_of_one_ulp_shows_as_a_bias():
    # Multiples of 1/16 times 3 are exact in fp32: the whole error is the bias.
    x = torch.arange(1, 65).reshape(8, 8) / 16
    diagnosis = quick(tripled, (x,), {"biased": lambda x: moved(x * 3)})
    found = statistics(diagnosis, "biased")
    assert (found.max_ulp, found.median_ulp, found.bias_ulp) == (1.0, 1.0, 1.0)
    assert found.histogram == {0: 64}
    ours = statistics(diagnosis, OURS)
    assert (ours.max_ulp, ours.bias_ulp) == (0.0, 0.0)


def test_runs_that_differ_are_counted():
    calls = iter(range(100))

    def unsteady(x):
        return with_error_at(rounded, (next(calls) % 2, 0), 3)(x)

    diagnosis = quick(tripled, (positive(4, 4),), {"unsteady": unsteady}, check_batches=False)
    found = agreement(diagnosis, "unsteady", Scope.REPEATS)
    assert (found.num_runs, found.num_different, found.num_elements) == (3, 2, 16)
    assert (found.max_ulp, found.first) == (3.0, "out[0, 0]")
    assert agreement(diagnosis, OURS, Scope.REPEATS).is_same


def test_a_result_that_depends_on_the_config_is_noticed():
    configs = [Config(block_sizes=[size]) for size in (16, 32)]
    x = torch.zeros(40)
    diagnosis = quick(sized, (x,), configs=configs)
    found = agreement(diagnosis, OURS, Scope.CONFIGS)
    assert (found.num_runs, found.num_different, found.labels) == (2, 40, ("16", "32"))
    steady = quick(tripled, (x,), configs=configs)
    assert agreement(steady, OURS, Scope.CONFIGS).is_same


def test_one_config_cannot_be_compared():
    found = agreement(quick(tripled, (torch.ones(3),)), OURS, Scope.CONFIGS)
    assert "no two configs" in found.skipped
    assert not found.is_same


def test_rows_that_depend_on_the_batch_size_are_counted():
    def variant(x):
        return rounded(x) if x.size(0) == 6 else moved(rounded(x))

    diagnosis = quick(tripled, (positive(6, 5),), {"variant": variant, "steady": rounded})
    found = agreement(diagnosis, "variant", Scope.BATCHES)
    # Half of the rows are in all three batches.
    assert (found.num_runs, found.num_different, found.num_elements) == (3, 15, 15)
    assert found.max_ulp == 1.0
    assert found.labels == ("6 rows", "3 rows", "12 rows")
    assert agreement(diagnosis, "steady", Scope.BATCHES).is_same
    assert agreement(diagnosis, OURS, Scope.BATCHES).is_same


def test_of_a_square_product_only_the_first_factor_has_rows():
    x, y = positive(8, 8), positive(8, 8, seed=1)
    found = agreement(quick(product, (x, y)), OURS, Scope.BATCHES)
    assert found.is_same
    assert found.num_elements == 32


def test_rows_that_depend_on_each_other_are_not_compared():
    found = agreement(quick(centred, (positive(6, 5),)), OURS, Scope.BATCHES)
    assert "depend on each other" in found.skipped


def test_what_host_code_computes_after_the_launch_is_judged_in_fp64():
    x = positive(33, 5, dtype=torch.bfloat16)
    diagnosis = quick(column_sums, (x,), {"low": lambda x: moved(column_sums(x), 2)})
    exact = 2 * x.double().sum(0)
    known = diagnosis.examination.subject.reference.tensors["result 0"]
    assert torch.equal(known.truth, exact)
    assert statistics(diagnosis, OURS).max_ulp <= 0.5 + 2**-12
    assert statistics(diagnosis, "low").max_ulp >= 1.5


def test_an_argument_written_in_place_is_an_output():
    x = positive(6, 2)[:, 0]
    before = x.clone()

    def other(x):
        x[2] += 5
        x += 1

    diagnosis = quick(increment, (x,), {"other": other})
    assert torch.equal(x, before)
    assert statistics(diagnosis, OURS).output == "x"
    assert statistics(diagnosis, OURS).is_right
    assert statistics(diagnosis, "other").worst[0].index == (2,)


def test_a_sample_of_programs_is_judged_where_it_wrote():
    x = positive(64, 8)
    others = {
        "last": with_error_at(rounded, (63, 2), 1000),
        "middle": with_error_at(rounded, (30, 2), 1000),
    }
    diagnosis = quick(tripled_rows, (x,), others, max_programs=2)
    assert str(diagnosis.examination.subject.reference) == "fp64 reference, 2 of 64 programs"
    found = statistics(diagnosis, "last")
    assert found.num_elements == 2 * 8
    assert found.worst[0].index == (63, 2)
    assert not found.is_right
    # Nobody has looked there.
    assert statistics(diagnosis, "middle").is_right


def test_a_failing_implementation_is_reported_and_the_others_measured():
    def broken(x):
        raise RuntimeError("no such device\nmore")

    others = {"broken": broken, "short": lambda x: x[:1], "none": lambda x: None, "other": rounded}
    diagnosis = quick(tripled, (positive(3, 3),), others)
    failures = diagnosis.examination.failures
    assert failures["broken"] == "RuntimeError: no such device"
    assert "shape [1, 3], expected [3, 3]" in failures["short"]
    assert "out is missing" in failures["none"]
    assert statistics(diagnosis, "other").is_right
    assert "broken gave no result" in str(diagnosis)


def test_the_users_own_reference_is_the_truth():
    x = positive(3, 3)
    found = quick(tripled, (x,), reference=lambda x: x * 3.5)
    assert not statistics(found, OURS).is_right
    assert statistics(found, OURS).max_abs == pytest.approx(0.5 * float(x.max()), rel=1e-6)
    with pytest.raises(ValueError, match="expected a float64 tensor"):
        quick(tripled, (x,), reference=lambda x: (x * 3).float())


def test_worst_elements_come_with_what_they_depend_on():
    x, y = positive(9, 7), positive(7, 5, seed=1)
    wrong = with_error_at(lambda x: (x.double() @ y.double()).float(), (4, 3), 5000)
    others = {"wrong": lambda x, y: wrong(x)}
    found = statistics(quick(product, (x, y), others, inputs_time_limit_s=20.0), "wrong")
    inputs = {used.text: used.values for used in found.worst[0].inputs}
    assert list(inputs) == ["x[4, :]", "y[:, 3]"]
    assert inputs["x[4, :]"].startswith("7 values")


def test_few_inputs_are_shown_one_by_one():
    x = positive(6, 5)
    others = {"wrong": with_error_at(rounded, (2, 4), 9000)}
    found = statistics(quick(tripled, (x,), others, inputs_time_limit_s=20.0), "wrong")
    (used,) = found.worst[0].inputs
    assert used.text == "x[2, 4]"
    assert float(used.values) == pytest.approx(float(x[2, 4]), rel=1e-8)


def test_names_of_the_doctors_own_are_taken():
    with pytest.raises(ValueError, match="taken"):
        diagnose(tripled, (torch.ones(3),), {OURS: rounded})


def test_everything_can_be_written_as_json():
    def nan(x):
        return torch.full_like(x, math.nan)

    diagnosis = quick(tripled, (positive(3, 3),), {"nan": nan})
    read = json.loads(json.dumps(diagnosis.to_json(), allow_nan=False))
    assert read["kernel"] == "tripled"
    assert {row["implementation"] for row in read["statistics"]} == {OURS, "nan", AS_WRITTEN}
    assert [row["max_ulp"] for row in read["statistics"] if row["implementation"] == "nan"] == [
        "inf"
    ]


def test_a_kernel_in_fp64_is_judged_by_sums_that_are_better():
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 40, dtype=torch.float64, generator=generator) for n in (3, 2))
    x[:, -1] = -1e9 * x[:, 0]
    y[:, -1] = 1e-9 * y[:, 0]
    found = quick(wide_product, (x, y.T))
    rows, columns = x.tolist(), y.tolist()
    exact = [
        [float(sum(Fraction(a) * Fraction(b) for a, b in zip(row, column))) for column in columns]
        for row in rows
    ]
    assert found.examination.subject.reference.tensors["out"].truth.tolist() == exact
    assert statistics(found, OURS).is_right


def test_no_behaviour_of_another_implementation_ends_a_diagnosis():
    calls = []

    def once(x):
        calls.append(x)
        if len(calls) > 1:
            raise RuntimeError("only once")
        return x * 3

    def exits(x):
        raise SystemExit(4)

    others = {
        "once": once,
        "exits": exits,
        "elsewhere": lambda x: (x * 3).to("meta"),
        "sparse": lambda x: (x * 3).to_sparse(),
        "other": rounded,
    }
    diagnosis = quick(tripled, (positive(3, 3),), others)
    failures = diagnosis.examination.failures
    assert failures["once"] == "RuntimeError: only once"
    assert "sys.exit(4)" in failures["exits"]
    assert "on meta, expected torch.strided on cpu" in failures["elsewhere"]
    assert "torch.sparse_coo" in failures["sparse"]
    assert statistics(diagnosis, "other").is_right
