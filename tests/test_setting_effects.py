"""Every setting is read somewhere, or refuses all that would be read nowhere; nothing is between.

Variables that no setting is read from are named once.
"""

from __future__ import annotations

import ast
import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.softmax import softmax
from tilesmith.setting_rules import AS_DEFAULT, AT_BIND, ESSENTIAL, LOG_TOPICS, REFUSED, log_levels
from tilesmith.settings import (
    Settings,
    SettingValueError,
    _warn,  # pyright: ignore[reportPrivateUsage]
    known_variables,
    refuse_at_bind,
    unknown_variables,
)
from tilesmith.store.lookup import search_overrides
from tilesmith.tune.options import options_from_settings

ROOT = Path(__file__).parents[1]
FIELDS = {item.name: item for item in dataclasses.fields(Settings)}
DEFAULTS = Settings.from_environment({}, {}).to_dict()
OTHERS: dict[str, object] = {
    "autotune_cache": "AOTAutotuneCache",
    "autotune_rebenchmark_threshold": 1.5,
    "autotune_suspicious_rebenchmark_ratio": 0.9,
    "autotune_search_acf": ["one.acf"],
    "autotune_benchmark_fn": len,
    "autotune_initial_population_strategy": "from_random",
}
"""Values of refused settings that are no flags, other than their defaults."""


def is_settings(node: ast.expr) -> bool:
    """Whether an expression is an object of settings, by its last name."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in ("settings", "_settings") or ast.unparse(node) == "Settings()"


@cache
def names_read() -> frozenset[str]:
    """The fields that code outside of the settings themselves asks settings for."""
    return frozenset(_names_read())


def _names_read() -> Iterator[str]:
    package = ROOT / "src" / "tilesmith"
    for path in package.rglob("*.py"):
        if path.name in ("settings.py", "setting_rules.py") and path.parent == package:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and is_settings(node.value):
                yield node.attr


def test_every_setting_is_read_or_refused():
    read = names_read() & set(FIELDS)
    assert set(FIELDS) - read == set(REFUSED)


def test_the_search_for_readers_notices_what_nobody_reads():
    assert is_settings(ast.parse("self.definition.settings", mode="eval").body)
    assert not is_settings(ast.parse("torch.distributed", mode="eval").body)
    assert "static_shapes" in names_read()


@pytest.mark.parametrize("name", REFUSED)
def test_other_values_are_refused_with_the_reason(name, capsys):
    default = DEFAULTS[name]
    other = OTHERS.get(name, not default)
    if name in ESSENTIAL:
        with pytest.raises(SettingValueError) as caught:
            Settings.from_environment({name: other}, {})
        said = str(caught.value)
    elif name in AT_BIND:
        settings = Settings.from_environment({name: other}, {})
        assert getattr(settings, name) == other
        with pytest.raises(SettingValueError) as caught:
            refuse_at_bind(settings)
        said = str(caught.value)
    else:
        _warn.cache_clear()
        made = Settings.from_environment({name: other}, {})
        assert getattr(made, name) == other, "who set it reads it back"
        said = capsys.readouterr().err
        Settings.from_environment({name: other}, {})
        assert not capsys.readouterr().err
    assert f"setting {name}: " in said
    assert f"is not supported, only {default!r}: {REFUSED[name]}" in said


@pytest.mark.parametrize("name", REFUSED)
def test_defaults_pass(name):
    for value in (DEFAULTS[name], *AS_DEFAULT.get(name, ())):
        assert getattr(Settings.from_environment({name: value}, {}), name) == value


def test_the_page_about_tuning_names_all_that_are_refused():
    page = (ROOT / "docs" / "tuning.md").read_text()
    assert not [name for name in REFUSED if f"`{name}" not in page]


def test_a_kernel_over_several_devices_is_refused_when_it_is_used():
    @helion.kernel(distributed=True)
    def over_ranks(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] + 1
        return out

    x = torch.ones(4)
    for use in (lambda: over_ranks(x), lambda: over_ranks.bind((x,))):
        with pytest.raises(SettingValueError, match="no kernels over several devices"):
            use()


def test_a_variable_is_refused_by_its_name():
    with pytest.raises(SettingValueError, match=r"variable TILESMITH_DISTRIBUTED\) is not supp"):
        Settings.from_environment({}, {"TILESMITH_DISTRIBUTED": "1"})


def test_a_list_of_paths_in_a_variable_reads_back_as_a_list():
    text = "/a/first.bin, /b/second.bin ,/c/third.bin"
    made = Settings.from_environment({}, {"TILESMITH_AUTOTUNE_SEARCH_ACF": text})
    assert made.autotune_search_acf == ["/a/first.bin", "/b/second.bin", "/c/third.bin"]
    assert hash(made) == hash(made)
    assert Settings.from_environment({}, {}).autotune_search_acf == []


def test_settings_that_files_for_helion_pass_are_taken():
    Settings(
        autotune_effort="quick",
        static_shapes=True,
        print_output_code=False,
        autotune_log="log",
        autotune_log_level=0,
        allow_warp_specialize=True,
        autotune_ignore_errors=True,
        ignore_warnings=[],
        autotune_precompile="spawn",
        autotune_benchmark_subprocess=True,
        autotune_accuracy_check=False,
        dot_precision="tf32",
    )


def test_persistent_programs_alone_are_an_override():
    forced = Settings.from_environment({"autotune_force_persistent": True}, {})
    assert search_overrides(forced) == {"pid_type": "persistent_blocked"}
    given = {"pid_type": "persistent_interleaved", "num_warps": 4}
    both = dataclasses.replace(forced, autotune_config_overrides=given)
    assert search_overrides(both) == given
    assert search_overrides(Settings.from_environment({}, {})) == {}


def test_reserved_multiprocessors_are_left_free():
    def grid(reserved: int) -> str:
        kernel = helion.kernel(softmax.fn, persistent_reserved_sms=reserved)
        bound = kernel.bind((torch.empty(4096, 64),), target="cuda:90")
        text = bound.to_triton_code({"block_sizes": [4], "pid_type": "persistent_blocked"})
        return next(line for line in text.splitlines() if "grid = " in line)

    assert "num_sms - 16" not in grid(0)
    assert "num_sms - 16" in grid(16)


@pytest.mark.parametrize("given", [None, False, "0"])
def test_without_precompiling_one_program_is_built_at_a_time(given):
    settings = Settings.from_environment(
        {"autotune_precompile": given, "autotune_precompile_jobs": 4}, {}
    )
    assert options_from_settings(settings).build_jobs == 1
    forking = dataclasses.replace(settings, autotune_precompile="fork")
    assert options_from_settings(forking).build_jobs == 4


def test_logs_of_searches_are_a_topic():
    made = options_from_settings(Settings.from_environment({"logs": "+autotune"}, {}))
    assert made.log_level == 10
    assert options_from_settings(Settings.from_environment({"logs": "config"}, {})).log_level == 20


def test_topics_have_levels():
    assert log_levels("config, +cache") == {"config": 20, "cache": 10}
    assert log_levels("all") == dict.fromkeys(LOG_TOPICS, 20)
    assert log_levels("all,+code") == {**dict.fromkeys(LOG_TOPICS, 20), "code": 10}
    assert log_levels("") == {}


@pytest.mark.parametrize(
    ("text", "hint"), [("confg", "did you mean config?"), ("zzz", "by commas: all, trace, config,")]
)
def test_a_topic_that_does_not_exist_is_named_with_the_nearest(text, hint):
    with pytest.raises(SettingValueError, match=f"there is no topic '{text}'") as caught:
        Settings(logs=text)
    assert hint in str(caught.value)


def test_every_variable_is_known_by_its_name():
    assert "TILESMITH_CHECK" in known_variables()
    assert len(set(known_variables())) == len(known_variables()) == len(FIELDS) + 1
    names = ["TILESMITH_CHECK", "TILESMITH_CHEK", "TRITON_INTERPRET", "PATH"]
    assert unknown_variables(names) == ["TILESMITH_CHEK"]
    assert unknown_variables(["HELION_CHECK", "HELION_BLOCKS"], "HELION_") == ["HELION_BLOCKS"]


def run(code: str, **variables: str) -> list[str]:
    """What a process with these variables writes to stderr."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("TILESMITH_")}
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**plain, "PYTHONPATH": str(ROOT / "src"), **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stderr.splitlines()


def test_unknown_variables_are_named_once_with_the_nearest():
    code = "from tilesmith.settings import Settings; Settings(); Settings()"
    variables = {"TILESMITH_CHEK": "1", "TILESMITH_QQQ": "1", "TILESMITH_FAST_MATH": "1"}
    assert run(code, **variables) == [
        "WARNING: environment variable TILESMITH_CHEK is not known; did you mean TILESMITH_CHECK?",
        "WARNING: environment variable TILESMITH_QQQ is not known; no setting is read from it",
    ]


def test_helions_variables_are_named_as_they_are_set():
    code = (
        "from tilesmith.settings import Settings, adopt_variables\n"
        "adopt_variables('HELION_')\nassert Settings().fast_math"
    )
    assert run(code, HELION_FASTMATH="1", HELION_FAST_MATH="1") == [
        "WARNING: environment variable HELION_FASTMATH is not known; did you mean HELION_FAST_MATH?"
    ]
