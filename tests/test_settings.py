"""Keywords win over the environment, the environment over defaults; bad values are refused."""

from __future__ import annotations

import dataclasses
import logging
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tilesmith.setting_rules import DOT_PRECISIONS
from tilesmith.settings import RefMode, Settings


def settings(environ: dict[str, str] | None = None, **overrides: object) -> Settings:
    return Settings.from_environment(overrides, environ or {})


def test_defaults():
    made = settings()
    assert made.backend == "auto"
    assert made.static_shapes
    assert made.index_dtype is None
    assert made.dot_precision == "ieee"
    assert not made.fast_math
    assert made.ref_mode is RefMode.OFF
    assert made.autotune_effort == "none"
    assert made.ignore_warnings == ()


def test_keyword_wins_over_environment_wins_over_default():
    environ = {"TILESMITH_STATIC_SHAPES": "0"}
    assert not settings(environ).static_shapes
    assert settings(environ, static_shapes=True).static_shapes


@pytest.mark.parametrize("word", ["1", "true", "YES", "On", " 1 "])
def test_words_for_true(word):
    assert settings({"TILESMITH_FAST_MATH": word}).fast_math


@pytest.mark.parametrize("word", ["0", "false", "NO", "Off"])
def test_words_for_false(word):
    assert not settings({"TILESMITH_STATIC_SHAPES": word}).static_shapes


@pytest.mark.parametrize("word", ["", "  "])
def test_an_empty_variable_means_the_default(word):
    assert settings({"TILESMITH_STATIC_SHAPES": word}).static_shapes


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("TILESMITH_BACKEND", "Reference", "backend", "reference"),
        ("TILESMITH_BACKEND", "cpu", "backend", "cpu"),
        ("TILESMITH_NUM_THREADS", "3", "num_threads", 3),
        ("TILESMITH_CHECK", "1", "check", True),
        ("TILESMITH_INTERPRET", "1", "ref_mode", RefMode.EAGER),
        ("TILESMITH_INTERPRET", "0", "ref_mode", RefMode.OFF),
        ("TRITON_INTERPRET", "1", "triton_interpret", True),
        ("TILESMITH_INDEX_DTYPE", "int64", "index_dtype", "int64"),
        ("TILESMITH_INDEX_DTYPE", "auto", "index_dtype", None),
        ("TILESMITH_DOT_PRECISION", "tf32", "dot_precision", "tf32"),
        ("TRITON_F32_DEFAULT", "tf32x3", "dot_precision", "tf32x3"),
        ("TILESMITH_PERSISTENT_RESERVED_SMS", "4", "persistent_reserved_sms", 4),
        ("TILESMITH_IGNORE_WARNINGS", "A, B,", "ignore_warnings", ("A", "B")),
        ("TILESMITH_AUTOTUNE_LOG_LEVEL", "debug", "autotune_log_level", logging.DEBUG),
        ("TILESMITH_AUTOTUNE_LOG_LEVEL", "0", "autotune_log_level", 0),
        ("TILESMITH_AUTOTUNE_PRECOMPILE", "spawn", "autotune_precompile", "spawn"),
        ("TILESMITH_AUTOTUNE_PRECOMPILE", "0", "autotune_precompile", None),
        ("TILESMITH_AUTOTUNE_BUDGET_SECONDS", "1.5", "autotune_budget_seconds", 1.5),
        ("TILESMITH_BEST_AVAILABLE_MAX_CONFIGS", "5", "autotune_best_available_max_configs", 5),
        ("TILESMITH_LOGS", "config, +cache", "logs", "config, +cache"),
        (
            "TILESMITH_AUTOTUNE_CONFIG_OVERRIDES",
            '{"num_warps": 8}',
            "autotune_config_overrides",
            {"num_warps": 8},
        ),
    ],
)
def test_variables_reach_their_setting(variable, text, name, value):
    assert getattr(settings({variable: text}), name) == value


def test_our_variable_wins_over_that_of_triton():
    environ = {"TILESMITH_DOT_PRECISION": "ieee", "TRITON_F32_DEFAULT": "tf32"}
    assert settings(environ).dot_precision == "ieee"


def test_config_overrides_may_come_from_a_file(tmp_path):
    path = tmp_path / "overrides.json"
    path.write_text('{"num_stages": 3}')
    made = settings({"TILESMITH_AUTOTUNE_CONFIG_OVERRIDES": str(path)})
    assert made.autotune_config_overrides == {"num_stages": 3}


@pytest.mark.parametrize(
    ("given", "meant"), [("default", "tf32"), ("high", "tf32x3"), ("highest", "ieee")]
)
def test_other_words_for_a_dot_precision(given, meant):
    assert settings(dot_precision=given).dot_precision == given
    assert DOT_PRECISIONS[given] == meant


@pytest.mark.parametrize("given", [torch.int32, "int32", "torch.int32"])
def test_index_dtype_takes_torch_dtypes_and_names(given):
    assert settings(index_dtype=given).index_dtype == "int32"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("backend", "numpy", "auto, triton, cpu, reference"),
        ("backend", None, "auto, triton, cpu, reference"),
        ("static_shapes", 1, "True or False"),
        ("static_shapes", "yes", "True or False"),
        ("index_dtype", torch.float32, "int32, int64"),
        ("dot_precision", "fp16", "ieee, tf32, tf32x3, default, high, highest"),
        ("ref_mode", True, "RefMode.OFF or RefMode.EAGER"),
        ("ignore_warnings", "WrongDevice", "a list"),
        ("ignore_warnings", [3], "a list"),
        ("ignore_warnings", 3, "a list"),
        ("persistent_reserved_sms", -1, "an integer >= 0"),
        ("persistent_reserved_sms", True, "an integer >= 0"),
        ("autotune_best_of_k", 0, "an integer >= 1"),
        ("autotune_compile_timeout", 1.5, "an integer >= 1"),
        ("autotune_budget_seconds", -1, "a number >= 0 or None"),
        ("autotune_budget_seconds", float("nan"), "a number >= 0 or None"),
        ("autotune_effort", "max", "none, quick, full"),
        ("autotune_precompile", "thread", '"fork", "spawn", False or None'),
        ("autotune_log_level", "LOUD", "a logging level"),
        ("autotune_baseline_fn", 3, "a function or None"),
        ("autotune_config_overrides", [1], "a dict"),
        ("autotune_search_acf", "one.acf", "a list of paths"),
        ("cache_dir", 3, "a path"),
    ],
)
def test_a_bad_value_is_refused_naming_setting_value_and_choice(name, value, allowed):
    with pytest.raises(ValueError, match=f"setting {name}: ") as caught:
        settings(**{name: value})
    assert repr(value) in str(caught.value)
    assert f"expected {allowed}" in str(caught.value).replace("expected one of", "expected")


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("TILESMITH_FAST_MATH", "maybe"),
        ("TILESMITH_AUTOTUNE_BEST_OF_K", "two"),
        ("TILESMITH_AUTOTUNE_BEST_OF_K", "0"),
        ("TILESMITH_AUTOTUNE_CONFIG_OVERRIDES", "{broken"),
        ("TILESMITH_AUTOTUNE_CONFIG_OVERRIDES", "no/such/file.json"),
        ("TILESMITH_BACKEND", "numpy"),
    ],
)
def test_a_bad_variable_is_refused_by_its_name(variable, text):
    with pytest.raises(ValueError, match=variable) as caught:
        settings({variable: text})
    assert repr(text) in str(caught.value) or f": {text} (from" in str(caught.value)


def test_an_unknown_keyword_is_a_type_error_with_a_suggestion():
    with pytest.raises(TypeError, match="did you mean static_shapes"):
        settings(static_shape=True)
    with pytest.raises(TypeError, match=r"known: .*backend"):
        settings(zzz=1)


def test_a_bad_variable_does_not_matter_where_the_keyword_is_given():
    assert settings({"TILESMITH_BACKEND": "metal"}, backend="triton").backend == "triton"


def test_the_constructor_reads_the_environment(monkeypatch):
    monkeypatch.setenv("TILESMITH_FAST_MATH", "1")
    assert Settings().fast_math
    assert not Settings(fast_math=False).fast_math


def test_the_environment_is_read_once(monkeypatch):
    made = Settings()
    monkeypatch.setenv("TILESMITH_FAST_MATH", "1")
    assert not made.fast_math


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings().fast_math = True  # type: ignore[misc]


def test_the_cache_directory_follows_the_environment(tmp_path):
    default = settings({"XDG_CACHE_HOME": str(tmp_path)}).cache_dir
    assert Path(default) == tmp_path / "tilesmith"
    assert settings({"TILESMITH_CACHE_DIR": "/somewhere"}).cache_dir == "/somewhere"
    assert settings(cache_dir=tmp_path).cache_dir == str(tmp_path)
    assert Path(settings({"TILESMITH_CACHE_DIR": "~/kept"}).cache_dir) == Path.home() / "kept"


def test_to_dict_holds_every_field_as_a_copy():
    made = settings(autotune_config_overrides={"num_warps": 4})
    values = made.to_dict()
    assert values.keys() == {item.name for item in dataclasses.fields(Settings)}
    values["autotune_config_overrides"]["num_warps"] = 8  # type: ignore[index]
    assert made.autotune_config_overrides == {"num_warps": 4}


def test_to_dict_gives_the_same_settings_back():
    made = settings(static_shapes=False, autotune_log_level="DEBUG", index_dtype="int64")
    assert Settings(**made.to_dict()) == made


def test_settings_are_hashable_picklable_and_replaceable():
    made = settings(autotune_config_overrides={"num_warps": 4}, autotune_seed_configs=[{}])
    assert pickle.loads(pickle.dumps(made)) == made
    assert hash(made) == hash(pickle.loads(pickle.dumps(made)))
    assert dataclasses.replace(made, backend="triton").backend == "triton"


def test_settings_do_not_import_torch():
    # Loaded as a lone file: the package's __init__ may import torch.
    folder = str(Path(sys.modules[Settings.__module__].__file__ or "").parent)
    code = (
        f"import sys; sys.path.insert(0, {folder!r}); import settings; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
