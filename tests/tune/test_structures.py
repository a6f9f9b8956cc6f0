"""A whole search over several structures. CPUs do not use them, but their backend can run them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith
from examples import matmul_layernorm as example
from tilesmith.backends.cpu.schedule.rules import CpuRules
from tilesmith.backends.triton.heuristics.shared_rows import LAST_REDUCES, TWO_PHASES
from tilesmith.jit.tuner import TuneRequest
from tilesmith.numerics.compare import check_against
from tilesmith.schedule.config import Config
from tilesmith.tune.autotune import Autotuner
from tilesmith.tune.listener import History

RUNNABLE = (TWO_PHASES, LAST_REDUCES)
"""Threads run one program after the other: none may wait for the next."""
QUIET: dict[str, Any] = {"autotune_log_level": 50, "autotune_progress_bar": False}


def exact_result(tensors: list[torch.Tensor]) -> torch.Tensor:
    x, y, weight, bias = tensors
    return example.reference(x, y, weight, bias)


@pytest.fixture(autouse=True)
def split_on_cpus(tmp_path, monkeypatch):
    monkeypatch.setattr(CpuRules, "has_row_forms", True)
    monkeypatch.setattr(CpuRules, "row_forms", lambda rules, kernel: RUNNABLE)
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))


def test_candidates_of_all_structures_are_measured_and_the_winner_runs():
    kernel = tilesmith.kernel(example.matmul_layernorm.fn)
    generator = torch.Generator().manual_seed(0)
    shapes = ((70, 33), (33, 130), (130,), (130,))
    tensors = [torch.randn(shape, generator=generator) for shape in shapes]
    args = kernel.normalize_args(*tensors)
    bound = kernel.bind(args)
    configs = [
        Config(block_sizes=[16, 16]),
        *(Config(structure=name, block_sizes=[16, 16, 32, 4]) for name in RUNNABLE),
    ]
    history = History()
    keywords = {"method": "FiniteSearch", "configs": configs, **QUIET}
    found = Autotuner([history]).tune(bound, args, TuneRequest(True, 30.0, keywords))
    verdicts = {t.outcome.config.get("structure"): t.outcome for t in history.trials}
    assert {name: o.verdict.is_timed for name, o in verdicts.items()} == dict.fromkeys(
        (None, *RUNNABLE), True
    ), [o.reason for o in verdicts.values()]
    assert found in [bound.config_spec.normalize(config) for config in configs]
    for config in configs:
        out = bound.compile_config(config)(*args)
        check_against(out, exact_result(tensors), reduction_length=33 * 4 + 130)


def test_the_default_method_ends_with_a_result():
    kernel = tilesmith.kernel(example.matmul_layernorm.fn)
    tensors = [torch.ones(shape) for shape in ((64, 32), (32, 256), (256,), (256,))]
    tensors[0][:, 0] = torch.arange(64.0)
    tensors[1][0] = torch.arange(256.0) / 256
    config = kernel.autotune(tuple(tensors), budget=6.0, **QUIET)
    assert config == kernel.bind(tuple(tensors)).config_spec.normalize(config)
    check_against(kernel(*tensors), exact_result(tensors), reduction_length=32 * 4 + 256)
