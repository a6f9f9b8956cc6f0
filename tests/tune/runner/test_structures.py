"""CandidateBinder of other structures: launches make scratch memory, and builders know its type."""

from __future__ import annotations

import pytest
import torch

from examples.matmul_layernorm import matmul_layernorm
from tilesmith.backends.triton.build import Pointer
from tilesmith.backends.triton.heuristics.shared_rows import (
    EXCHANGE,
    LAST_REDUCES,
    PRODUCT_FORMS,
    TWO_PHASES,
)
from tilesmith.lab.workload.capture import capture
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Verdict
from tilesmith.tune.jobs import Program
from tilesmith.tune.runner.build import build_program, launch_arguments
from tilesmith.tune.workspace import CandidateBinder

BLOCKS = {TWO_PHASES: [64, 32, 128, 4], LAST_REDUCES: [64, 32, 128, 4], EXCHANGE: [64, 32, 128]}
WHOLE_ROWS = {"row_scratch": 256 * 512}
PARTS = {"row_sum_parts": 256 * 4, "row_squares_parts": 256 * 4}


@pytest.mark.parametrize("structure", PRODUCT_FORMS)
def test_candidates_of_all_structures_are_built(structure, tmp_path, monkeypatch):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path))
    shapes = ((256, 128), (128, 512), (512,), (512,))
    tensors = [torch.zeros(shape, dtype=torch.bfloat16) for shape in shapes]
    args = matmul_layernorm.normalize_args(*tensors)
    bound = matmul_layernorm.bind(args, target="cuda:90")
    config = bound.config_spec.normalize(
        Config(structure=structure, block_sizes=BLOCKS[structure], num_stages=2)
    )
    artifact = bound.to_artifact(config)
    candidates = CandidateBinder(bound, args, capture(bound, args, config), tmp_path)
    binding = candidates.bind(config, artifact)
    # What a launch makes itself is not the workload's.
    scratch = PARTS if structure == EXCHANGE else WHOLE_ROWS
    assert not set(scratch) & set(dict(binding.arguments))
    found = launch_arguments(artifact, binding)
    for name, count in scratch.items():
        assert found[name] == Pointer("float32", 0, 4 * count)
    assert build_program(Program("k", artifact, binding)).verdict is Verdict.OK
    # The reference is of the kernel as it is written.
    assert {name for name, _ in candidates.reference(config).sizes} == {"tile_m", "tile_k"}
