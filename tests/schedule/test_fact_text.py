"""Facts are printed in the user's names, one line each; the whole texts are recorded."""

from __future__ import annotations

import pytest
import torch

from examples.attention import attention, causal_attention
from examples.embedding import embedding
from examples.jagged_mean import jagged_mean
from examples.matmul import matmul
from examples.matmul_layernorm import matmul_layernorm
from examples.softmax import softmax
from tests.backends.cpu.schedule.cpu_runs import CASES
from tests.schedule.fact_kernels import dynamic_matmul, operands
from tilesmith.schedule.facts.fact_set import short_number, type_name


def empty(*size, dtype=torch.bfloat16):
    return torch.empty(*size, dtype=dtype)


KERNELS = {
    "matmul": (matmul, lambda: operands(4096, 4096, 4096, torch.bfloat16)),
    "softmax": (softmax, lambda: (empty(4096, 2560),)),
    "attention": (attention, lambda: 3 * (empty(2, 8, 512, 64),)),
    "causal_attention": (causal_attention, lambda: 3 * (empty(2, 8, 512, 64),)),
    "matmul_layernorm": (
        matmul_layernorm,
        lambda: (*operands(1024, 400, 256), *2 * (empty(400, dtype=torch.float16),)),
    ),
    "jagged_mean": (
        jagged_mean,
        lambda: (
            torch.empty(9, 40),
            torch.tensor([0, 3, 7, 9]),
            torch.tensor([40, 20, 30]),
        ),
    ),
    "dynamic_matmul": (dynamic_matmul(), lambda: operands(1000, 512, 256)),
    "embedding": (embedding, lambda: (torch.zeros(32, 16, dtype=torch.int64), empty(1000, 64))),
}


@pytest.mark.parametrize("name", KERNELS)
def test_facts_are_as_recorded(name, golden):
    kernel, make = KERNELS[name]
    facts = kernel.bind(kernel.normalize_args(*make())).facts
    golden(f"{facts}\n")
    assert repr(facts) == str(facts)


@pytest.mark.parametrize("name", CASES)
def test_every_example_has_facts_to_print(name):
    case = CASES[name]
    inputs = case.make_inputs(case.sizes[-1], case.dtypes[0], "cpu")
    bound = case.kernel.bind(case.kernel.normalize_args(*inputs))
    facts = bound.facts
    title, *lines = str(facts).splitlines()
    assert title == f"facts of {bound.function.name}"
    shown = [*facts.matmuls, *facts.reductions, *facts.accumulators, *facts.accesses]
    assert len(lines) >= len(shown)
    assert all(fact.text in str(facts) for fact in shown)
    # With the sizes of the call, what the kernel is remains the same.
    assert facts.fingerprint() == bound.config_spec.facts.fingerprint()
    assert "_size_" not in str(facts)


def test_numbers_and_types_are_short():
    assert [short_number(n, "B") for n in (0, 7, 999, 1000, 33554432, 1.5e13)] == [
        "0 B", "7 B", "999 B", "1 kB", "33.6 MB", "15 TB",
    ]  # fmt: skip
    assert [type_name(name) for name in ("f32", "bf16", "i8", "u64", "tf32", "f8e4m3", "bool")] == [
        "fp32", "bf16", "int8", "uint64", "tf32", "fp8e4m3", "bool",
    ]  # fmt: skip
