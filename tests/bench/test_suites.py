"""The benchmark's operators: their tables are sound, their forms agree with float64 on the CPU."""

from __future__ import annotations

import importlib
from functools import cache
from math import prod
from typing import Any

import pytest
import torch

from benchmarks.suites import arguments, founding, seeded_mask, suite, widening
from tests.frontend import philox_reference
from tilesmith.bench.case import Arguments, Operator
from tilesmith.bench.reference import Judge, Judgement, Reference, fingerprint, work_out
from tilesmith.frontend.containers import map_tensors, tensors_in

CPU = torch.device("cpu")
OPERATORS = suite().operators
BY_NAME = {operator.name: operator for operator in OPERATORS}
every_operator = pytest.mark.parametrize("name", BY_NAME)
# Kernels of the field's own benchmark that the gallery has.
FIELD = (
    "vector_add", "vector_exp", "vector_exp-bwd", "sum", "softmax", "softmax-bwd", "layer_norm",
    "layer_norm-bwd", "rms_norm", "rms_norm-bwd", "rope", "rope-bwd", "cross_entropy", "geglu",
    "swiglu", "swiglu-bwd", "jsd", "kl_div", "fused_linear_jsd", "welford", "embedding",
    "low_mem_dropout", "addmm", "addmm-bwd", "gemm", "gemm-bwd", "fp8_gemm", "int4_gemm",
    "bf16xint16_gemm", "grouped_gemm", "gather_gemv", "flash_attention", "fp8_attention",
    "blackwell_attentions", "flex_attention", "ragged_attention", "jagged_mean",
    "jagged_softmax", "jagged_layer_norm", "jagged_sum", "mamba2_chunk_scan",
    "mamba2_chunk_state", "gdn_fwd_h",
)  # fmt: skip


@pytest.fixture(autouse=True)
def plain_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library behind half-precision products crashes on CPUs whose AMX unit is masked."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)


@cache
def smallest(name: str) -> tuple[Arguments, Reference, torch.dtype]:
    operator = BY_NAME[name]
    chosen = operator.inputs_on("cpu")[0]
    made = chosen.make(CPU, chosen.dtype)
    return made, work_out(operator, made), chosen.dtype


def judge(name: str, returned: Any, target: str = "") -> Judgement:
    made, reference, dtype = smallest(name)
    operator = BY_NAME[name]
    intermediates = operator.intermediates(dtype, "cpu", made, target)
    return Judge(operator, made, reference, intermediates).judge(returned)


def load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(OPERATORS)


def test_all_the_field_measures_is_there() -> None:
    assert set(FIELD) <= set(BY_NAME)


@every_operator
def test_table_of_inputs_is_sound(name: str) -> None:
    operator = BY_NAME[name]
    for listed in (operator.inputs, operator.inputs_on("cpu")):
        labels = [one.label for one in listed]
        assert len(set(labels)) == len(labels) >= 2
        assert all(one.dtype in operator.dtypes for one in listed)
    assert operator.inputs_on("cpu") is not operator.inputs
    assert operator.inputs_on("cuda") is operator.inputs


@every_operator
def test_largest_input_comes_last(name: str) -> None:
    for listed in (BY_NAME[name].inputs, BY_NAME[name].inputs_on("cpu")):
        sizes = [prod(map(int, one.label.split()[0].split("x"))) for one in listed]
        assert sizes[-1] == max(sizes)


@every_operator
def test_implementations_can_be_loaded(name: str) -> None:
    operator = BY_NAME[name]
    assert operator.kernels
    for target in (*operator.kernels.values(), *operator.others.values()):
        assert callable(load(target)), target


@every_operator
def test_our_kernels_are_within_the_budget(name: str) -> None:
    made, *_ = smallest(name)
    for target in BY_NAME[name].kernels.values():
        found = judge(name, load(target)(*made), target)
        assert not found.problem, (target, found)


@every_operator
def test_eager_form_is_within_the_budget_and_a_wrong_one_is_not(name: str) -> None:
    made, _, dtype = smallest(name)
    returned = BY_NAME[name].eager(*made)
    assert not judge(name, returned).problem
    error = 0.3 if dtype == torch.float8_e4m3fn else 0.01
    assert judge(name, map_tensors(returned, lambda tensor: tensor * (1 + error))).problem


@every_operator
def test_amount_of_work_is_positive(name: str) -> None:
    operator: Operator = BY_NAME[name]
    made, reference, _ = smallest(name)
    assert operator.reduction_length(*made) >= 1
    assert operator.flops is None or operator.flops(*made) > 0
    if operator.num_bytes is not None:
        found = operator.num_bytes(*made, reference.results[0].float())
        assert found > 0


@every_operator
def test_input_is_the_same_every_time_and_its_reference_leaves_it_alone(name: str) -> None:
    made, reference, dtype = smallest(name)
    again = BY_NAME[name].inputs_on("cpu")[0].make(CPU, dtype)
    assert fingerprint(again) == fingerprint(made) == reference.arguments


@every_operator
def test_reference_in_parts_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, reference, _ = smallest(name)
    monkeypatch.setattr(widening, "LARGEST", 1)
    in_parts = work_out(BY_NAME[name], made).results
    for part, whole in zip(in_parts, reference.results):
        torch.testing.assert_close(part, whole, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["gemm", "matmul"])
def test_hand_written_product_is_asked_for_shapes_it_can_address(name: str) -> None:
    for one in BY_NAME[name].inputs:
        _, k, n = map(int, one.label.split("x"))
        assert k % 8 == n % 8 == 0


def test_gemm_list_begins_like_founding_case_1() -> None:
    listed = BY_NAME["gemm"].inputs
    assert len(listed) == 31
    first = [one.label for one in listed[:8]]
    assert first == [f"{side}x{side}x{side}" for side in range(256, 1153, 128)]
    assert {one.dtype for one in listed} == {torch.float16}
    assert any(len(set(one.label.split("x"))) > 1 for one in listed)
    x, y = listed[0].make(CPU, torch.float16)
    assert x.stride() == (256, 1)
    assert y.stride() == (1, 256)
    assert set(BY_NAME["gemm"].kernels) == {"matmul", "matmul_split_k"}


def test_founding_case_2_has_its_shape() -> None:
    for name in ("dot_compress", "dot_compress-bwd"):
        assert BY_NAME[name].inputs[-1].label == "1152x3219x256x64"


def test_founding_case_3_has_21_cells() -> None:
    counts = {kernel: len(BY_NAME[f"matmul_{kernel}"].inputs) for kernel in founding.CELLS}
    assert counts == {
        "layernorm": 9, "rms_norm": 3, "softmax": 3, "l2_normalize": 3, "logsumexp": 3,
    }  # fmt: skip
    labels = [one.label for one in BY_NAME["matmul_layernorm"].inputs]
    assert "131072x512x512 fp32" in labels
    assert "131072x4096x2048 bf16" in labels


def test_powers_of_sums_may_be_off_by_what_their_exponents_are() -> None:
    operator = BY_NAME["matmul_softmax"]
    for one in operator.cpu_inputs:
        made = one.make(CPU, torch.float32)
        reference = work_out(operator, made)
        judge = Judge(operator, made, reference, operator.intermediates(torch.float32, "cpu", made))
        logits = made[0] @ made[1]
        assert not judge.judge(torch.softmax(logits, -1)).problem
        # Exponents as they come out of a product in tf32, or off by 64 units in the last place.
        for coarse in (logits.half().float(), logits * (1 + 64 * 2.0**-23)):
            assert "beyond the budget" in judge.judge(torch.softmax(coarse, -1)).problem


@pytest.mark.parametrize("seed", [0, 123, 2**40 + 5])
def test_stored_mask_is_that_of_the_seed(seed: int) -> None:
    wanted = philox_reference.rand((37, 53), seed) > torch.tensor(0.25)
    assert torch.equal(seeded_mask.kept((37, 53), 0.25, seed, CPU), wanted)


def test_large_tensor_has_no_two_equal_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "POOL", 59)
    made = arguments.normal((50, 16), CPU, torch.float32)
    assert len({tuple(row) for row in made.tolist()}) == 50
    assert torch.equal(made.flatten()[:59], made.flatten()[59:118])


def test_sequences_have_the_promised_longest() -> None:
    offsets = arguments.random_offsets(9, 20)
    assert int(offsets[0]) == 0
    assert len(offsets) == 10
    assert int(offsets.diff().max()) == 20
    assert int(offsets.diff().min()) >= 0


def test_parts_cover_all_and_are_not_empty() -> None:
    found = list(widening.parts(10, widening.LARGEST * 4))
    assert [part.indices(10) for part in found] == [
        (start, min(start + 2, 10), 1) for start in range(0, 10, 2)
    ]
    assert list(widening.parts(0, 0)) == []


def test_float32_products_may_round_to_tf32_on_a_gpu_only() -> None:
    product = BY_NAME["matmul"]
    made = smallest("matmul")[0]
    assert product.intermediates(torch.float32, "cuda", made) == (torch.float16,) * 2
    assert product.intermediates(torch.float32, "cpu", made) == ()
    assert product.intermediates(torch.bfloat16, "cuda", made) == ()
    assert next(tensors_in(made)).dtype == torch.float32


def test_a_kernel_that_rounds_more_excuses_no_other() -> None:
    gemm, made = BY_NAME["gemm"], smallest("gemm")[0]
    counts = {
        name: len(gemm.intermediates(torch.float16, "cuda", made, target))
        for name, target in {**gemm.kernels, "eager": ""}.items()
    }
    assert counts == {"matmul": 0, "matmul_split_k": 4, "eager": 0}


def test_sums_of_fp8_products_are_cut_in_steps_of_32() -> None:
    gemm, x = BY_NAME["fp8_gemm"], torch.empty(16, 8200)
    assert gemm.cut_steps(x, x, x, x) == 257
    assert gemm.intermediates(torch.float16, "cuda", (x, x, x, x)) == ()
