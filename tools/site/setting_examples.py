"""One example for each setting, as a keyword and as a variable; tests give both to a kernel."""

from __future__ import annotations

from contextlib import redirect_stderr
from dataclasses import fields
from io import StringIO
from typing import Any, NamedTuple

import torch

from tilesmith import settings
from tilesmith.autotuner import RandomSearch
from tilesmith.setting_rules import RefMode
from tilesmith.settings import PREFIX, SettingError, Settings, refuse_at_bind


class Example(NamedTuple):
    """The value as Python has it, and as text of a variable ("": a variable cannot hold it)."""

    value: Any
    text: str = ""
    shown: str = ""
    """As Python writes it, where its repr is no expression."""


OTHERS: dict[str, Example] = {
    "backend": Example("cpu", "cpu"),
    "num_threads": Example(2, "2"),
    "index_dtype": Example("int64", "int64"),
    "dot_precision": Example("tf32", "tf32"),
    "ignore_warnings": Example(["TensorOperationInWrapper"], "TensorOperationInWrapper"),
    "missing_gradient": Example("error", "error"),
    "persistent_reserved_sms": Example(4, "4"),
    "ref_mode": Example(RefMode.EAGER, "1", "tilesmith.RefMode.EAGER"),
    "cache_dir": Example("kernels-cache", "kernels-cache"),
    "team_cache": Example("/shared/tilesmith", "/shared/tilesmith"),
    "logs": Example("config,+cache", "config,+cache"),
    "autotune_effort": Example("quick", "quick"),
    "autotuner": Example("RandomSearch", "RandomSearch"),
    "autotuner_fn": Example(RandomSearch, "", "tilesmith.autotuner.RandomSearch"),
    "autotune_cache": Example("StrictLocalAutotuneCache", "StrictLocalAutotuneCache"),
    "autotune_log_level": Example("DEBUG", "DEBUG"),
    "autotune_log": Example("search.csv", "search.csv"),
    "autotune_compile_timeout": Example(30, "30"),
    "autotune_precompile": Example("spawn", "spawn"),
    "autotune_precompile_jobs": Example(4, "4"),
    "autotune_benchmark_timeout": Example(10, "10"),
    "autotune_random_seed": Example(7, "7"),
    "autotune_best_of_k": Example(3, "3"),
    "autotune_baseline_fn": Example(torch.add, "", "torch.add"),
    "autotune_baseline_atol": Example(1e-3, "1e-3"),
    "autotune_baseline_rtol": Example(1e-2, "1e-2"),
    "autotune_baseline_accuracy_check_fn": Example(
        torch.testing.assert_close, "", "torch.testing.assert_close"
    ),
    "autotune_rebenchmark_threshold": Example(1.5, "1.5"),
    "autotune_suspicious_rebenchmark_ratio": Example(0.9, "0.9"),
    "autotune_search_acf": Example(["one.acf"], "one.acf"),
    "autotune_max_generations": Example(5, "5"),
    "autotune_budget_seconds": Example(30.0, "30"),
    "autotune_stop_at_roofline": Example(0.95, "0.95"),
    "autotune_config_overrides": Example({"num_warps": 4}, '{"num_warps": 4}'),
    "autotune_seed_configs": Example([{"block_sizes": [64]}]),
    "autotune_config_filter": Example(
        lambda config: config.num_warps <= 8, "", "lambda config: config.num_warps <= 8"
    ),
    "autotune_benchmark_fn": Example(len, "", "len"),
    "autotune_best_available_max_configs": Example(5, "5"),
    "autotune_best_available_max_cache_scan": Example(100, "100"),
    "autotune_initial_population_strategy": Example("from_random", "from_random"),
    "autotune_log_search_space_path": Example("spaces", "spaces"),
}
"""Of settings that are no flags."""


def example_of(name: str) -> Example:
    """Of a flag, the value that it does not have anyway."""
    if name in OTHERS:
        return OTHERS[name]
    (item,) = (item for item in fields(Settings) if item.name == name)
    return Example(not item.default, "0" if item.default else "1")


def keyword_of(name: str) -> str:
    """The setting as a keyword of the decorator."""
    example = example_of(name)
    shown = example.shown or repr(example.value).replace("'", '"')
    return f"@tilesmith.kernel({name}={shown})"


def command_of(variable: str, name: str) -> str:
    """The setting as a variable of a command; "" where a variable cannot hold it."""
    text = example_of(name).text
    quoted = f"'{text}'" if set(text) & set(' {"') else text
    return f"{variable}={quoted} python program.py" if text else ""


def variables_of(item: Any) -> tuple[str, ...]:
    """The variables that a setting is read from."""
    return item.metadata["variables"] or (PREFIX + item.name.upper(),)


def said_of(name: str) -> str:
    """What is said to a value that means nothing here; "" of one that is taken."""
    settings._warn.cache_clear()  # pyright: ignore[reportPrivateUsage]
    with redirect_stderr(StringIO()) as told:
        try:
            refuse_at_bind(Settings.from_environment({name: example_of(name).value}, {}))
        except SettingError as error:
            return f"{type(error).__name__}: {error}"
    return told.getvalue()
