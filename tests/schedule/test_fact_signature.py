"""Fingerprints tell facts apart; shape classes bring kernels of about the same shape together."""

from __future__ import annotations

import torch

from examples.matmul import matmul
from examples.softmax import softmax, softmax_decomposed
from tests.schedule.fact_kernels import dynamic_matmul, operands


def facts_of(kernel, *args):
    return kernel.bind(kernel.normalize_args(*args)).facts


def test_shape_class_rounds_extents_to_powers_of_two():
    facts = facts_of(matmul, *operands(100, 129, 64))
    assert facts.shape_class() == "tile_m=128 tile_n=256 tile_k=64; x:f16 y:f16 out:f16"
    near = facts_of(matmul, *operands(65, 256, 33))
    assert near.shape_class() == facts.shape_class()
    assert near.fingerprint() != facts.fingerprint()


def test_shape_class_has_whole_rows_and_runtime_sizes():
    rows = facts_of(softmax, torch.empty(1, 1000))
    assert rows.shape_class() == "tile_m=1 :=1024; x:f32 out:f32"
    dynamic = dynamic_matmul().bind(operands(100, 60, 30)).facts
    assert dynamic.shape_class() == "tile_m=128 tile_n=64 tile_k=32; x:f16 y:f16 out:f16"


def test_fingerprint_is_stable_and_depends_on_types_and_sizes():
    known = facts_of(matmul, *operands(64, 64, 64)).fingerprint()
    assert len(known) == 16
    assert int(known, 16) >= 0
    assert facts_of(matmul, *operands(64, 64, 64)).fingerprint() == known
    others = [
        facts_of(matmul, *operands(64, 64, 65)),
        facts_of(matmul, *operands(64, 64, 64, torch.bfloat16)),
        facts_of(matmul, torch.empty(64, 64, dtype=torch.float16).t(), *operands(64, 64, 64)[1:]),
        facts_of(softmax, torch.empty(64, 64)),
    ]
    prints = {facts.fingerprint() for facts in others}
    assert len(prints) == len(others)
    assert known not in prints


def test_fingerprint_of_a_dynamic_kernel_is_one_for_all_sizes():
    facts = dynamic_matmul().bind(operands(100, 60, 30)).facts
    assert facts.with_sizes({"m": 4096, "n": 4096}).fingerprint() == facts.fingerprint()
    assert facts.with_sizes({"m": 4096}).shape_class() != facts.shape_class()


def test_fingerprint_does_not_depend_on_lines():
    # The same function of the row, in two spellings on different lines.
    plain = facts_of(softmax, torch.empty(64, 200))
    spelled = facts_of(softmax_decomposed, torch.empty(64, 200))
    assert plain.reductions[0].loc != spelled.reductions[0].loc
    assert plain.fingerprint() == spelled.fingerprint()
