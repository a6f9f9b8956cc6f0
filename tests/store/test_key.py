"""Keys: what must tell kernels apart does, what must not does not."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.store.samples import KEY, other
from tilesmith.store.key import StoreKey, join_keys, shape_distance
from tilesmith.store.lookup import make_key


def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * factor
    return out


def _half(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5


def _third(x: torch.Tensor) -> torch.Tensor:
    return x * 0.25


def helped(x: torch.Tensor, helper) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = helper(x[tile])
    return out


def _key(function, *args, regime="cold", **settings):
    bound = helion.kernel(function, **settings).bind(args)
    return make_key(bound, args, regime)


X = torch.zeros(64, 48)


def test_the_same_kernel_has_the_same_key():
    assert _key(scale, X, 2.0) == _key(scale, X, 3.0)
    assert _key(scale, X, 2.0).digest == _key(scale, torch.ones(64, 48), 2.0).digest


def test_places_in_the_file_do_not_count(tmp_path):
    text = """
import torch
import tilesmith.language as hl
{}
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * factor{}
    return out
"""
    keys = []
    for number, parts in enumerate([("", ""), ("\n\n# a comment\n", "  # another")]):
        path = tmp_path / f"module_{number}.py"
        path.write_text(text.format(*parts))
        scope = {"__name__": f"module_{number}"}
        exec(compile(path.read_text(), str(path), "exec"), scope)
        keys.append(_key(scope["scale"], X, 2.0))
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    "changed",
    [
        lambda: _key(scale, torch.zeros(64, 49), 2.0),
        lambda: _key(scale, X.double(), 2.0),
        lambda: _key(scale, X.t().contiguous().t(), 2.0),
        lambda: _key(scale, X, 2.0, fast_math=True),
        lambda: _key(scale, X, 2.0, static_shapes=False),
        lambda: _key(scale, X, 2.0, regime="warm"),
    ],
)
def test_what_may_change_a_time_changes_the_key(changed):
    key = changed()
    assert key.digest != _key(scale, X, 2.0).digest
    assert key.conditions != _key(scale, X, 2.0).conditions


def test_helpers_count_though_their_source_is_elsewhere():
    half, third = _key(helped, X, _half), _key(helped, X, _third)
    assert half.source == third.source
    assert half.digest != third.digest


def test_shapes_and_versions_stay_in_the_family():
    key, larger = _key(scale, X, 2.0), _key(scale, torch.zeros(640, 48), 2.0)
    assert key.family == larger.family
    assert key.family == other_versions(key).family
    assert key.conditions == other_versions(key).conditions
    assert key.digest != other_versions(key).digest
    assert key.family != _key(scale, X, 2.0, fast_math=True).family


def other_versions(key: StoreKey) -> StoreKey:
    return StoreKey.from_dict({**key.to_dict(), "toolchain": {"tilesmith": "9"}, "program": "9"})


def test_dynamic_sizes_are_part_of_the_conditions():
    kernel = helion.kernel(scale, static_shapes=False)
    first, second = (torch.zeros(size, 48) for size in (64, 640))
    bound = kernel.bind((first, 2.0))
    assert make_key(bound, (first, 2.0)).digest != make_key(bound, (second, 2.0)).digest


def test_keys_survive_json():
    assert StoreKey.from_dict(KEY.to_dict()) == KEY
    assert StoreKey.from_dict(KEY.to_dict()).digest == KEY.digest


def test_joined_keys_depend_on_each_and_on_the_goal():
    second = other(arguments="y", program="2")
    assert join_keys([KEY], "") == KEY
    joined = join_keys([KEY, second], "geomean")
    assert joined.digest not in (KEY.digest, second.digest)
    assert joined.digest != join_keys([KEY, second], "max").digest
    assert joined.family == KEY.family


def test_distances_of_shapes():
    near = shape_distance("a=64 b=32; x:f32", "a=128 b=16; x:f32")
    assert near == 2.0
    assert shape_distance("a=64; x:f32", "a=64; x:f32") == 0.0
    assert shape_distance("a=64; x:f32", "a=64; x:f16") > near
    assert shape_distance("a=64; x:f32", "c=64; x:f32") > near
    assert shape_distance("a=0; ", "a=1; ") == 0.0
    assert shape_distance("nonsense", "") == 0.0
    assert shape_distance(f"a=² b={'1' * 5000}; ", "; ") == 0.0
