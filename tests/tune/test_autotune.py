"""The API of tuning, on the CPU with real processes: what is searched, installed and returned."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch

import tilesmith
from tests.tune.kernels import config, make_add
from tilesmith import exc
from tilesmith.autotuner import BoundSearch, FiniteSearch, from_cache
from tilesmith.jit.typed import make_kernel as kernel_without_tuner
from tilesmith.lab.processes.build_pool import idle_processes
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings, child_environment
from tilesmith.tune.archive import Archive
from tilesmith.tune.autotune import Autotuner
from tilesmith.tune.search.methods import METHODS

X, Y = torch.randn(777), torch.randn(777)
QUIET = {"autotune_log_level": 50, "autotune_progress_bar": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("cache")
    idle_processes().close()


@pytest.fixture(autouse=True)
def own_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found of other tests, but their processes: each would take seconds to start."""
    shutil.rmtree(folder, ignore_errors=True)
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(folder))

    def without_test(changes: Mapping[str, str]) -> dict[str, str]:
        found = child_environment(changes)
        return {name: value for name, value in found.items() if name != "PYTEST_CURRENT_TEST"}

    monkeypatch.setattr("tilesmith.lab.processes.build_pool.child_environment", without_test)


@pytest.fixture
def searches(monkeypatch):
    """Counts searches, and lets none happen: the last of the given configs wins."""
    done: list[tuple[list[tuple[int, ...]], tuple[Config, ...]]] = []

    def search(self, cases, options, multi=None):
        shapes = [tuple(case.args[0].shape) for case in cases]
        done.append((shapes, tuple(options.configs)))
        return options.configs[-1] if options.configs else config(64)

    monkeypatch.setattr(Autotuner, "_search", search)
    return done


def test_a_first_call_does_not_search(searches):
    kernel = make_add()
    assert torch.equal(kernel(X, Y), X + Y)
    assert not searches


def test_one_config_never_tunes(searches):
    kernel = make_add(config=config(32), autotune_effort="full")
    kernel(X, Y)
    assert not searches
    assert kernel.bind((X, Y)).autotune((X, Y), force=False) == config(32)
    assert not searches


def test_several_configs_are_measured_at_first_use_of_each_shape(searches):
    kernel = make_add(configs=[config(32), config(128)])
    kernel(X, Y)
    kernel(X, Y)
    kernel(X[:5], Y[:5])
    given = (config(32), config(128))
    assert searches == [([(777,)], given), ([(5,)], given)]
    assert kernel.bind((X, Y)).to_artifact() == kernel.bind((X, Y)).to_artifact(config(128))


@pytest.mark.parametrize(
    "settings",
    [{"autotune_effort": "quick"}, {"autotune_budget_seconds": 2.0}, {"force_autotune": True}],
)
def test_effort_budget_and_force_make_a_first_call_search(searches, settings):
    kernel = make_add(**settings)
    kernel(X, Y)
    kernel(X, Y)
    assert searches == [([(777,)], ())]


def test_force_wins_over_a_given_config(searches):
    kernel = make_add(config=config(32), force_autotune=True)
    kernel(X, Y)
    assert len(searches) == 1


def test_the_winner_is_installed_and_returned(searches):
    kernel = make_add()
    assert kernel.autotune((X, Y)) == config(64)
    bound = kernel.bind((X, Y))
    assert bound.to_artifact() == bound.to_artifact(config(64))
    assert torch.equal(kernel(X, Y), X + Y)


def test_several_workloads_get_one_config(searches):
    kernel = make_add()
    sets = [(X, Y), (X[:8], Y[:8])]
    assert kernel.autotune_multi(sets) == config(64)
    assert searches == [([(777,), (8,)], ())]
    for args in sets:
        bound = kernel.bind(args)
        assert bound.to_artifact() == bound.to_artifact(config(64))


def test_several_workloads_follow_what_is_given_as_one_does(searches):
    sets = [(X, Y), (X[:8], Y[:8])]
    assert make_add(config=config(32)).autotune_multi(sets, force=False) == config(32)
    make_add(backend="reference").autotune_multi(sets)
    make_add().autotune_multi(sets, budget=0)
    assert not searches
    make_add(force_autotune=True, config=config(32)).autotune_multi(sets, force=False)
    assert len(searches) == 1
    given = [config(32), config(128)]
    assert make_add(configs=given).autotune_multi(sets, force=False) == config(128)
    assert searches[1:] == [([(777,), (8,)], tuple(given))]


def test_mistakes_in_requests_for_several_workloads():
    kernel = make_add()
    with pytest.raises(ValueError, match="unknown aggregation 'sum'; expected one of geomean, max"):
        kernel.autotune_multi([(X, Y)], aggregation="sum")
    with pytest.raises(ValueError, match="relative_to='best'"):
        kernel.autotune_multi([(X, Y)], relative_to="best")
    with pytest.raises(ValueError, match="at least one"):
        kernel.autotune_multi([])
    with pytest.raises(exc.WrongArguments, match="come in a tuple, found a Tensor"):
        kernel.autotune_multi([X[:2]])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="autotune_baseline_fn"):
        kernel.autotune_multi([(X, Y)], relative_to="baseline")


def test_tuning_can_be_forbidden():
    kernel = make_add(disallow_autotuning=True)
    kernel(X, Y)
    with pytest.raises(exc.AutotuningDisallowedInEnvironment, match="TILESMITH_DISALLOW"):
        kernel.autotune((X, Y))


def test_a_missing_cache_entry_can_be_an_error():
    kernel = make_add(assert_cache_hit=True)
    with pytest.raises(exc.CacheAssertionError, match="add_function"):
        kernel(X, Y)


def test_a_kernel_without_a_tuner_says_so():
    @kernel_without_tuner
    def nothing(x):
        return x

    with pytest.raises(exc.AutotuneError, match="made without a tuner"):
        nothing.definition.find_tuner()


def test_the_users_own_tuner_is_used():
    class Mine:
        def __init__(self, bound, args):
            assert args == (X, Y)

        def autotune(self) -> Config:
            return config(16)

    kernel = make_add(autotuner_fn=Mine)
    assert kernel.autotune((X, Y)) == config(16)


def test_the_users_own_tuner_may_be_one_of_ours():
    kernel = make_add(
        autotuner_fn=lambda bound, args: FiniteSearch(bound, args, configs=[]), **QUIET
    )
    with pytest.raises(exc.NotEnoughConfigs):  # and not the same function again and again
        kernel.autotune((X, Y))


def test_a_search_among_what_is_stored(monkeypatch):
    monkeypatch.setattr(Archive, "similar_configs", lambda self: [config(2), config(4), config(8)])
    make = from_cache(max_configs=2, configs=[config(4), config(16)])
    kernel = make_add(autotuner_fn=make, **QUIET)
    search = make(kernel.bind((X, Y)), (X, Y))
    assert search.options["configs"] == [config(2), config(4), config(16)]
    monkeypatch.setattr(Archive, "similar_configs", lambda self: [])
    with pytest.raises(exc.NotEnoughConfigs):
        make_add(autotuner_fn=tilesmith.from_cache(), **QUIET).autotune((X, Y))


def test_mistakes_in_options_are_found_before_anything_starts():
    kernel = make_add(**QUIET)
    with pytest.raises(ValueError, match="unknown search method 'Guess'; expected one of"):
        kernel.autotune((X, Y), method="Guess")
    with pytest.raises(ValueError, match="has no option 'wings'"):
        kernel.autotune((X, Y), wings=2)  # pyright: ignore[reportCallIssue]
    with pytest.raises(exc.NotEnoughConfigs):
        FiniteSearch(kernel.bind((X, Y)), (X, Y), configs=[config(8)]).autotune()


def test_interpreted_kernels_are_not_tuned(searches):
    kernel = make_add(backend="reference", autotune_effort="full")
    assert torch.equal(kernel(X, Y), X + Y)
    assert kernel.autotune((X, Y)) == kernel.bind((X, Y)).default_config()
    assert torch.equal(kernel(X, Y), X + Y)
    assert not searches


def test_code_for_another_device_is_not_tuned_here():
    bound = make_add().bind((X, Y), target="cuda:90")
    with pytest.raises(exc.AutotuneError, match="on cpu, which does not run cuda:90 code"):
        bound.autotune((X, Y))


def test_a_search_that_measures_nothing_keeps_to_the_overrides():
    kernel = make_add(autotune_config_overrides={"cpu_unroll": 2})
    assert kernel.autotune((X, Y), budget=1e-3)["cpu_unroll"] == 2


def test_without_a_budget_nothing_is_searched(searches):
    kernel = make_add()
    assert kernel.autotune((X, Y), budget=0) == kernel.bind((X, Y)).default_config()
    assert not searches


def test_effort_none_is_the_default():
    assert Settings.from_environment({}, {}).autotune_effort == "none"


def test_a_search_from_start_to_end(caplog):
    kernel = make_add(autotune_progress_bar=False)
    found = kernel.autotune(
        (X, Y), budget=60, method="FiniteSearch", configs=[config(1024), config(8)]
    )
    assert found.block_sizes[0] in (1024, 8)
    told = caplog.text
    assert "tuning add_function on cpu" in told
    assert "results judged by: fp64 reference" in told
    assert f"@tilesmith.kernel(config=tilesmith.Config(block_sizes={found.block_sizes}" in told
    assert torch.equal(kernel(X, Y), X + Y)


def test_a_config_for_several_workloads_from_start_to_end(caplog):
    kernel = make_add(autotune_progress_bar=False)
    sets = [(X, Y), (X[:300], Y[:300])]
    found = kernel.autotune_multi(
        sets, relative_to="default", aggregation="max", budget=60, method="FiniteSearch",
        configs=[config(1024), config(8)],
    )  # fmt: skip
    assert found.block_sizes[0] in (1024, 8)
    for x, y in sets:
        assert torch.equal(kernel(x, y), x + y)
    (arguments,) = [line for line in caplog.messages if "arguments: " in line]
    assert arguments.endswith("x: float32[300], y: float32[300]")
    assert "times: the largest of 2 sets of arguments, over the default's" in caplog.text


def test_a_list_of_configs_is_what_a_search_starts_from(caplog):
    kernel = make_add(autotune_progress_bar=False, configs=[config(1024), config(8)])
    kernel(X, Y)
    assert "2 configs possible" in caplog.text
    assert "starting from: 2 configs (2 given)" in caplog.text


def test_the_users_own_check_decides(caplog):
    seen: list[bool] = []

    def check(actual: torch.Tensor, expected: torch.Tensor) -> bool:
        seen.append(torch.equal(actual, expected))
        return len(seen) != 1

    kernel = make_add(autotune_baseline_accuracy_check_fn=check, autotune_progress_bar=False)
    found = kernel.autotune(
        (X, Y), budget=60, method="FiniteSearch", configs=[config(1024), config(8)]
    )
    assert seen == [True, True]
    assert found.block_sizes == [8]
    assert "results judged by: the accuracy check function" in caplog.text
    assert "judged by nothing" not in caplog.text


def test_listed_configs_that_do_not_fit_are_named(caplog):
    listed = [config(1024), Config(block_sizes=[16, 3]), config(8), Config(block_sizes=[8], foo=3)]  # pyright: ignore[reportCallIssue]
    kernel = make_add(autotune_progress_bar=False, configs=listed)
    assert kernel.autotune((X, Y), budget=60, force=False).block_sizes[0] in (1024, 8)
    assert "2 configs possible" in caplog.text
    left_out = [r.getMessage() for r in caplog.records if "is left out" in r.getMessage()]
    assert [text.partition(" is left out: ")[0] for text in left_out] == [
        "Config(block_sizes=[16, 3])",
        "Config(block_sizes=[8], foo=3)",
    ]
    assert "block_sizes" in left_out[0].partition("left out")[2]
    assert "foo" in left_out[1].partition("left out")[2]


@pytest.mark.parametrize(
    "keep",
    [
        lambda config: config.block_sizes == [8],
        lambda config: config if config.block_sizes == [8] else None,
        lambda config: {"block_sizes": [8]},
    ],
)
def test_a_filter_answers_yes_or_no_or_with_a_config(keep):
    kernel = make_add(autotune_progress_bar=False, autotune_config_filter=keep)
    listed = [config(1024), config(8)]
    found = kernel.autotune((X, Y), budget=60, method="FiniteSearch", configs=listed)
    assert found.block_sizes == [8]


def test_a_filter_with_another_answer_is_told_what_to_say():
    kernel = make_add(autotune_progress_bar=False, autotune_config_filter=lambda config: "no")
    with pytest.raises(TypeError, match="autotune_config_filter returned str; expected the Config"):
        kernel.autotune((X, Y), budget=60, method="FiniteSearch", configs=[config(1024), config(8)])


def test_every_method_is_a_class_that_autotuner_fn_takes():
    assert {kind.method for kind in BoundSearch.__subclasses__()} == set(METHODS)
