"""Few configs for many shapes: which are chosen, how sizes decide, and that calls follow."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from itertools import combinations
from math import inf, log
from pathlib import Path
from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tilesmith.artifacts import load_module
from tilesmith.dispatch import decision_file
from tilesmith.dispatch.cover import Timings, choose_configs, cover_logs, geomean_loss
from tilesmith.dispatch.decision import Branch, Leaf, decided_logs, grow, leaves
from tilesmith.dispatch.tuning import Goal, choose, find_features, make_steps, tune_shapes
from tilesmith.runtime.device import target_of
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.targets import parse_target
from tilesmith.tune.listener import Progress


def table(rows: Sequence[Sequence[float]], own: Sequence[float] = ()) -> Timings:
    configs = tuple(Config(block_sizes=[2**c]) for c in range(len(rows[0])))
    names = tuple(f"shape {number}" for number in range(len(rows)))
    return Timings(names, configs, tuple(map(tuple, rows)), tuple(own))


def test_losses_are_against_the_best_of_each_shape() -> None:
    timings = table([[1.0, 2.0], [4.0, 1.0]], own=[0.5, 1.0])
    assert timings.best_ms == [0.5, 1.0]
    assert cover_logs(timings, [0]) == pytest.approx([log(2), log(4)])
    assert geomean_loss(cover_logs(timings, [0, 1])) == pytest.approx(2**0.5 - 1)


def test_the_chosen_configs_are_as_good_as_any() -> None:
    rng = random.Random(0)
    rows = [[rng.choice([1.0, 1.1, 1.5, 3.0, inf]) for _ in range(7)] for _ in range(9)]
    rows = [[*row[:-1], 2.0] for row in rows]
    timings = table(rows)
    for count in (1, 2, 3):
        best = min(sum(cover_logs(timings, c)) for c in combinations(range(7), count))
        assert sum(cover_logs(timings, choose_configs(timings, count))) <= best * 1.05


def sizes(count: int) -> tuple[list[int], list[int]]:
    pairs = [(2**i, 2**j) for i in range(count) for j in range(count)]
    return [m for m, _ in pairs], [n for _, n in pairs]


def test_sizes_decide_where_they_matter() -> None:
    m, n = sizes(6)
    # Config 0 is for few rows, of the others 1 is for short ones.
    rows = [[1.0 if a <= 4 else 2.0, 1.0 if b < 8 < a * 2 else 2.0, 1.5] for a, b in zip(m, n)]
    timings = table(rows)
    root = grow(timings, [0, 1, 2], {"x.size(0)": m, "x.size(1)": n}, 8)
    assert isinstance(root, Branch)
    assert geomean_loss(decided_logs(timings, root)) < geomean_loss(cover_logs(timings, [2]))
    assert sorted(shape for leaf in leaves(root) for shape in leaf.shapes) == list(range(36))


def test_no_comparison_that_gains_next_to_nothing() -> None:
    timings = table([[1.0, 1.001], [1.001, 1.0]])
    assert isinstance(grow(timings, [0, 1], {"x.size(0)": [1, 100]}, 4), Leaf)


def test_limits_lie_between_sizes_by_factors() -> None:
    timings = table([[1.0, 5.0], [5.0, 1.0]])
    root = grow(timings, [0, 1], {"n": [16, 1024]}, 4)
    assert isinstance(root, Branch)
    assert root.limit == 128


def test_the_fewest_configs_that_are_near_enough() -> None:
    m, _ = sizes(4)
    rows = [[1.0 if a == size else 1.2 for size in (1, 2, 4, 8)] for a in m]
    timings = table(rows)
    steps = make_steps(timings, {"x.size(0)": m}, Goal(max_configs=8))
    assert [step.count for step in steps] == [1, 2, 3, 4]
    losses = [step.decided_loss for step in steps]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] == pytest.approx(0.0)
    assert choose(steps, Goal(within=0.05)).count == 3
    assert choose(steps, Goal(within=0.20)).count == 1
    assert choose(steps[:2], Goal(within=0.01)).count == 2


def test_features_are_sizes_that_differ() -> None:
    args = [(torch.empty(2, 8), torch.empty(8, 3), 1), (torch.empty(4, 8), torch.empty(8, 3), 7)]
    assert find_features(["x", "y", "n"], args) == {
        "x.size(0)": [2, 4],
        "x.numel()": [16, 32],
        "n": [1, 7],
    }


class Model:
    """A tuner whose times follow from the number of rows: no process, no clock."""

    def __init__(self, listeners: Sequence[Any]) -> None:
        self._listeners = listeners

    def tune(self, bound: Any, args: tuple[Any, ...], request: Any) -> None:
        given = request.keywords.get("configs")
        tried = given or [bound.config_spec.normalize({"block_sizes": [b, 64]}) for b in (1, 8, 32)]
        for config in tried:
            right = 1 if args[0].size(0) < 10 else 32
            ms = 1.0 if config["block_sizes"][0] == right else 2.0
            outcome = Outcome(Candidate(config), Verdict.OK, median_ms=ms)
            for listener in self._listeners:
                listener.on_outcome(outcome, Progress(0.0, 1.0, 1, 0))


KERNEL = """
import torch
import tilesmith
import tilesmith.language as hl

@tilesmith.aot_kernel
def doubled(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 2
    return out
"""


@pytest.fixture
def module(tmp_path: Path) -> Any:
    path = tmp_path / "doubling.py"
    path.write_text(KERNEL)
    return load_module(path)


def test_calls_follow_the_decision(module: Any, tmp_path: Path) -> None:
    samples = [(torch.randn(m, 64),) for m in (2, 4, 40, 80)]
    found = tune_shapes(module.doubled, samples, Model, Goal(within=0.01))
    assert found.chosen.count == 2
    assert found.chosen.decided_loss == pytest.approx(0.0)
    found.path.write_text(found.file_text())
    assert found.path.parent == tmp_path
    text = found.path.read_text()
    assert "if x.size(0) <= 12:" in text
    assert "4 shapes, 2 configs, 2 branches: 0.00 %" in text
    kernel = load_module(tmp_path / "doubling.py").doubled
    for rows, block in ((3, 1), (12, 1), (13, 32), (1000, 32)):
        x = torch.randn(rows, 64)
        assert torch.equal(kernel(x), x * 2)
        assert kernel.bind((x,)).resolve(None) is not None
        first = kernel.definition.tuner.first_config(kernel.bind((x,)), (x,))
        assert first["block_sizes"][0] == block
    small, large = torch.randn(3, 64), torch.randn(99, 64)
    assert kernel.bind((small,)) is not kernel.bind((large,))
    assert kernel.bind((small,)) is kernel.bind((torch.randn(5, 30),))


class Idle:
    """A tuner whose time is used up before it has measured anything."""

    def __init__(self, listeners: Sequence[Any]) -> None:
        pass

    def tune(self, bound: Any, args: tuple[Any, ...], request: Any) -> None:
        pass


def test_nothing_measured_is_an_error_of_tuning(module: Any) -> None:
    with pytest.raises(tilesmith.exc.AutotuneError, match="no config was measured on any shape"):
        tune_shapes(module.doubled, [(torch.randn(2, 64),)], Idle, Goal())


def test_without_a_file_one_kernel_serves_all(module: Any) -> None:
    assert module.doubled.bind((torch.randn(3, 5),)) is module.doubled.bind((torch.randn(99, 7),))


def test_an_older_gpu_s_file_serves_a_newer_one(tmp_path: Path) -> None:
    text = "def key_f(x):\n    return 0\n\n\ndef autotune_f(x):\n    return {'num_warps': %d}\n"
    files = {"_tilesmith_aot_kernels_f_cuda_80.py": 1, "_helion_aot_kernels_cuda_sm90.py": 2}

    def warps(folder: str, target: str) -> Any:
        found = decision_file.find_file(tmp_path / folder / "kernels.py", "f", parse_target(target))
        return found and found.choose(None)["num_warps"]

    for folder, more in (("old", {}), ("new", {"_tilesmith_aot_kernels_f_cuda_90.py": 3})):
        (tmp_path / folder).mkdir()
        for name, number in {**files, **more}.items():
            (tmp_path / folder / name).write_text(text % number)
    targets = ("cuda:80", "cuda:90", "cuda:100")
    assert [warps("old", target) for target in targets] == [1, 1, 1]
    assert [warps("new", target) for target in targets] == [1, 3, 3]
    assert warps("new", "hip:gfx942") is None
    source = tmp_path / "new" / "kernels.py"
    assert decision_file.find_file(source, "g", parse_target("cuda:90")) is None


def test_a_decision_written_after_the_first_call_is_followed(module: Any) -> None:
    kernel, x = module.doubled, torch.randn(7, 64)
    assert torch.equal(kernel(x), x * 2)
    source = Path(module.__file__)
    path = source.with_name(decision_file.file_name(source, "doubled", kernel.bind((x,)).target))
    for block in (8, 4, 2):  # files of one second and one size
        path.write_text(
            "def key_doubled(x):\n    return 0\n\n\ndef autotune_doubled(x):\n"
            f"    return {{'block_sizes': [{block}, 64]}}\n"
        )
        # Its own time: what is written twice in one tick of the clock is one file to anybody.
        os.utime(path, ns=(block, block))
        assert torch.equal(kernel(x), x * 2)
        assert kernel.bind((x,)).chosen["block_sizes"][0] == block
    path.unlink()
    assert torch.equal(kernel(x), x * 2)
    assert kernel.bind((x,)).chosen is None


@tilesmith.kernel
def staged(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t]
    total = out.sum()
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + total[()]
    return out


def test_what_cannot_be_tuned_is_said() -> None:
    with pytest.raises(ValueError, match="no arguments"):
        tune_shapes(staged, [], Model, Goal())
    with pytest.raises(tilesmith.exc.AutotuneError, match="several launches"):
        tune_shapes(staged, [(torch.ones(3),)], Model, Goal())


def test_the_file_is_named_after_the_device() -> None:
    here = str(target_of(torch.device("cpu"))).replace(":", "_")
    name = decision_file.file_name(Path("a/b.py"), "f", target_of(torch.device("cpu")))
    assert name == f"_tilesmith_aot_b_f_{here}.py"
