"""Examples of settings, variables and keys on the pages of the reference do what they say."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tilesmith.schedule.config import KEYS
from tilesmith.setting_rules import REFUSED
from tilesmith.settings import Settings
from tools.site import key_examples, setting_examples

FIELDS = {item.name: item for item in fields(Settings)}
NOT_CALLED = {
    *("ref_mode", "triton_interpret", "print_output_code", "print_repro", "logs", "team_cache"),
    *("force_autotune", "autotune_effort", "assert_cache_hit", "autotune_budget_seconds"),
}
"""With these a first call searches, prints or runs elsewhere; their own tests call kernels."""


def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


@pytest.mark.parametrize("name", FIELDS)
def test_a_keyword_is_taken_and_a_kernel_runs_with_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scope = {"tilesmith": tilesmith, "torch": torch}
    shown = setting_examples.keyword_of(name).removeprefix("@tilesmith.kernel(").removesuffix(")")
    value = eval(shown.partition("=")[2], scope)
    example = setting_examples.example_of(name)
    assert callable(value) or value == example.value
    said = setting_examples.said_of(name)
    assert bool(said) == (name in REFUSED and name != "autotune_cache"), said
    if "Error" in said:
        return
    assert getattr(Settings(**{name: value}), name) != FIELDS[name].default  # type: ignore[misc]
    if name not in NOT_CALLED:
        kernel = tilesmith.kernel(double, **{name: value})  # type: ignore[call-overload]
        assert torch.equal(kernel(torch.ones(4)), torch.full([4], 2.0))


@pytest.mark.parametrize("name", FIELDS)
def test_a_variable_says_the_same_as_the_keyword(name: str) -> None:
    example = setting_examples.example_of(name)
    for variable in setting_examples.variables_of(FIELDS[name]):
        command = setting_examples.command_of(variable, name)
        assert bool(command) == bool(example.text)
        if not command or name == "distributed":
            continue
        text = shlex.split(command)[0].removeprefix(f"{variable}=")
        found = Settings.from_environment({}, {variable: text})
        given = Settings.from_environment({name: example.value}, {})
        assert getattr(found, name) == getattr(given, name)


@pytest.mark.parametrize("key", [key.name for key in KEYS])
def test_a_key_of_a_config_is_kept_and_changes_something(key: str) -> None:
    example = key_examples.KEY_EXAMPLES[key]
    spec = key_examples.bound_kernel(example.kernel, example.target).config_spec
    config = eval(key_examples.text_of(key), {"Config": tilesmith.Config})
    found = spec.normalize(config)
    assert found[key] == example.value
    if key not in ("atomic_indexing", "block_sizes"):  # of which there is one, or no default
        plain = spec.normalize(tilesmith.Config.from_dict(example.others))
        assert found[key] != plain.get(key)
