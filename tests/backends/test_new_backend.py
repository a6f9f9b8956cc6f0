"""A fourth backend: one folder (tests/backends/eager) and one line, nothing else is edited."""

from __future__ import annotations

from random import Random

import pytest
import torch

import tilesmith.language as hl
from tests.backends.eager.backend import EAGER, TARGET
from tilesmith.backends.table import BACKENDS
from tilesmith.exc import BackendUnsupported, InvalidConfigKeys
from tilesmith.jit.kernel import Kernel
from tilesmith.jit.tuner import TuneRequest
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings
from tilesmith.targets import CPU
from tilesmith.tune.autotune import Autotuner
from tilesmith.tune.listener import History

TABLE = BACKENDS.with_backend(EAGER)


def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        exponentials = torch.exp(row - torch.amax(row, dim=1, keepdim=True))
        out[tile, :] = exponentials / torch.sum(exponentials, dim=1, keepdim=True)
    return out


def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.size(0), y.size(1))
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        out[tile_m, tile_n] = x[tile_m, :] @ y[:, tile_n]
    return out


def bind(function, *args):
    return Kernel(function, backends=TABLE).bind(args, target=TARGET)


@pytest.mark.parametrize("shape", [(1, 1), (37, 100), (64, 7)])
def test_it_runs_a_softmax_under_any_config(shape):
    x = torch.randn(shape)
    bound = bind(softmax, x)
    expected = torch.softmax(x.double(), 1)
    spec, rng = bound.config_spec, Random(0)
    for config in (bound.default_config(), *(spec.random_config(rng) for _ in range(3))):
        bound.set_config(config)
        torch.testing.assert_close(bound(x).double(), expected, rtol=1e-5, atol=1e-6)


def test_its_configs_have_the_common_keys_and_its_own():
    spec = bind(softmax, torch.randn(37, 100)).config_spec
    assert spec.supported_keys == ("block_sizes", "reduction_loops", "eager_backwards")
    # Keys of other backends are dropped, sizes need not be padded, unknown keys are refused.
    full = spec.normalize(Config(block_sizes=[8], num_warps=8, cpu_unroll=2, eager_backwards=True))  # pyright: ignore[reportCallIssue]
    assert dict(full) == {"block_sizes": [8], "reduction_loops": [None], "eager_backwards": True}
    with pytest.raises(InvalidConfigKeys):
        spec.normalize(Config(block_sizes=[8], eager_sideways=True))  # pyright: ignore[reportCallIssue]


def test_its_code_is_shown():
    bound = bind(softmax, torch.randn(37, 100))
    code = bound.to_code(Config(block_sizes=[8], eager_backwards=True))  # pyright: ignore[reportCallIssue]
    assert "in reversed(range(int(v2), int(v3), 8)):" in code
    assert "torch.amax(" in code
    assert bound.to_code(Config(block_sizes=[8]), form="triton").startswith("import torch")


def test_its_configs_are_tuned(tmp_path):
    x = torch.randn(37, 100)
    history = History()
    settings = Settings(cache_dir=str(tmp_path), autotune_log_level=50, autotune_progress_bar=False)
    bound = Kernel(softmax, settings=settings, backends=TABLE).bind((x,), target=TARGET)
    configs = [Config(block_sizes=[size], eager_backwards=True) for size in (8, 32)]  # pyright: ignore[reportCallIssue]
    request = TuneRequest(True, 60.0, {"method": "FiniteSearch", "configs": configs})
    bound.install(Autotuner([history]).tune(bound, (x,), request))
    assert [trial.outcome.reason for trial in history.trials if not trial.outcome.samples_ms] == []
    assert len(history.trials) == 2
    torch.testing.assert_close(
        bound(x).double(), torch.softmax(x.double(), 1), rtol=1e-5, atol=1e-6
    )


def test_what_it_cannot_do_names_the_op():
    bound = bind(product, torch.randn(8, 8), torch.randn(8, 8))
    with pytest.raises(BackendUnsupported, match="dot"):
        bound.to_code()


def test_the_table_itself_is_unchanged():
    assert EAGER not in BACKENDS.backends
    assert TABLE.of(CPU) is BACKENDS.of(CPU)
    with pytest.raises(ValueError, match="no backend compiles for eager"):
        BACKENDS.of(TARGET)
