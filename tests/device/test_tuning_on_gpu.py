"""Searches on a GPU: candidates that fault or wait for each other, and what a search leaves."""

from __future__ import annotations

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.matmul import matmul
from examples.split_k_barrier import split_k_barrier
from tilesmith.autotuner import EnumFragment
from tilesmith.jit.tuner import TuneRequest
from tilesmith.store.outcome import Verdict
from tilesmith.tune.autotune import Autotuner
from tilesmith.tune.listener import History

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
QUIET = {"autotune_log_level": 50, "autotune_progress_bar": False}
FAR = 1 << 40
"""Elements; no memory is that large."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))


def search(kernel, args, configs) -> History:
    """Measure configs; what was told of them."""
    history = History()
    keywords = {"method": "FiniteSearch", "configs": configs, **QUIET}
    bound = kernel.bind(args)
    bound.install(Autotuner([history]).tune(bound, args, TuneRequest(True, 60.0, keywords)))
    assert history.result is not None
    return history


@tilesmith.kernel
def shifted(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    far = hl.register_tunable("far", EnumFragment((0, FAR)))
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.load(x, [tile.index.to(torch.int64) + far]) + 1
    return out


def test_a_candidate_that_faults_costs_one_candidate_only():
    x = torch.randn(4096, device="cuda")
    configs = [
        tilesmith.Config(block_sizes=[size], far=far)  # pyright: ignore[reportCallIssue]
        for size, far in [(256, 0), (128, FAR), (512, 0), (64, FAR), (1024, 0)]
    ]
    history = search(shifted, (x,), configs)
    found = {t.outcome.config.block_sizes[0]: t.outcome.verdict for t in history.trials}
    assert [found[size].is_timed for size in (256, 512, 1024)] == [True] * 3
    assert [found[size] for size in (128, 64)] == [Verdict.CRASHED] * 2
    assert torch.equal(shifted(x), x + 1)


def test_programs_that_wait_for_each_other_are_tuned():
    x, y = torch.randn(64, 512, device="cuda"), torch.randn(512, 64, device="cuda")
    bound = split_k_barrier.bind(split_k_barrier.normalize_args(x, y))
    configs = list(bound.config_spec.seed_configs()[:3])
    history = search(split_k_barrier, split_k_barrier.normalize_args(x, y), configs)
    assert all(trial.outcome.verdict.is_timed for trial in history.trials)
    exact = (x.double() @ y.double()).float()
    torch.testing.assert_close(split_k_barrier(x, y), exact, rtol=1e-2, atol=1e-2)


def test_the_first_call_after_a_search_compiles_nothing():
    from triton import knobs

    x = torch.randn(512, 512, device="cuda", dtype=torch.float16)
    args = matmul.normalize_args(x, x)
    config = tilesmith.Config(
        block_sizes=[64, 64, 64], num_stages=3, indexing="tensor_descriptor", epilogue_subtile=2
    )
    history = search(matmul, args, [config, config.updated(num_warps=8)])
    assert all(trial.outcome.verdict.is_timed for trial in history.trials)
    hits: list[bool] = []
    before = knobs.compilation.listener
    knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
    try:
        out = matmul(x, x)
    finally:
        knobs.compilation.listener = before
    assert hits == [True]
    torch.testing.assert_close(out.double(), x.double() @ x.double(), rtol=1e-2, atol=5e-2)
