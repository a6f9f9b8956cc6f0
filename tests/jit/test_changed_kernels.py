# type: ignore
"""Settings and configs that are assigned after decoration; what else kernels and bounds tell."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc
from tilesmith.settings import SettingValueError, UnknownSettingError

X = torch.arange(13.0)


def fresh(**keywords):
    @helion.kernel(**keywords)
    def doubled(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * 2
        return out

    return doubled


def test_an_assigned_setting_counts_from_the_next_call(traces) -> None:
    kernel = fresh()
    before = kernel.bind((X,))
    kernel.settings.static_shapes = False
    assert kernel.settings.static_shapes is False
    for n in (5, 6, 7):
        assert torch.equal(kernel(X[:n]), X[:n] * 2)
    assert len(traces) == 2
    assert before.settings.static_shapes
    assert kernel.bind((X,)) is not before
    assert torch.equal(before(X), X * 2)


def test_assigned_settings_are_checked() -> None:
    kernel = fresh()
    with pytest.raises(UnknownSettingError, match="static_shapes"):
        kernel.settings.static_shape = False
    with pytest.raises(SettingValueError):
        kernel.settings.backend = "abacus"
    assert kernel.settings == fresh().settings


def test_settings_alone_stay_immutable() -> None:
    for settings in (helion.Settings(), dataclasses.replace(fresh().settings, check=True)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            settings.check = False


def test_settings_may_be_replaced_as_a_whole() -> None:
    kernel = fresh()
    kernel.settings = helion.Settings(backend="reference")
    assert kernel.settings.backend == "reference"
    assert torch.equal(kernel(X), X * 2)


def test_assigned_configs_drop_what_was_bound() -> None:
    kernel = fresh()
    before = kernel.bind((X,))
    kernel.configs = [{"block_sizes": [4]}]
    assert kernel.configs == [helion.Config(block_sizes=[4])] == [kernel.config]
    assert kernel.bind((X,)) is not before
    assert kernel.bind((X,)).resolve(None) == helion.Config(block_sizes=[4])
    kernel.config = helion.Config(block_sizes=[8])
    assert kernel.bind((X,)).resolve(None) == helion.Config(block_sizes=[8])
    assert torch.equal(kernel(X), X * 2)
    kernel.config = None
    assert kernel.configs == []
    assert kernel.config is None


def test_a_bound_kernel_knows_its_kernel() -> None:
    kernel = fresh(index_dtype=torch.int64)
    bound = kernel.bind((X,))
    assert bound.kernel is kernel
    assert bound.env.config_spec is bound.config_spec
    assert bound.get_cached_path(helion.Config(block_sizes=[8])) is None
    line = bound.format_kernel_decorator(helion.Config(block_sizes=[8]), bound.settings)
    config = repr(helion.Config(block_sizes=[8]))
    arguments = f"config={config}, static_shapes=True, index_dtype=torch.int64"
    assert line == f"@{config.partition('.')[0]}.kernel({arguments})"


def test_options_of_output_code() -> None:
    bound = fresh().bind((X,))
    options = helion.OutputCodeOptions(allow_helion_deps=False)
    code = bound.to_code(form="triton", options=options)
    assert code == bound.to_triton_code()
    assert "import tilesmith" not in code
    with pytest.raises(exc.BackendUnsupported, match="JAX"):
        bound.to_code(options=helion.OutputCodeOptions(jax_fn=True))


def multiplied(x, y):
    out = torch.empty([x.size(0), y.size(1)])
    for tile_m, tile_n in hl.tile(out.shape):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc
    return out


@pytest.mark.parametrize(
    ("singular", "value", "plural"),
    [
        ("block_size", [16, 32, 32], [16, 32, 32]),
        ("loop_order", [1, 0], [[1, 0]]),
        ("loop_order", [[1, 0]], [[1, 0]]),
        ("l2_grouping", [4], [4]),
        ("l2_grouping", 4, [4]),
        ("range_unroll_factor", [0, 2], [0, 2]),
        ("range_num_stage", [0, 2], [0, 2]),
        ("range_multi_buffer", [None, True], [None, True]),
        ("range_flatten", [None, True], [None, True]),
    ],
)
def test_singular_keys_take_the_whole_list(singular, value, plural) -> None:
    given = {"block_sizes": [16, 32, 32], singular: value}
    if singular == "block_size":
        del given["block_sizes"]
    kernel = helion.kernel(multiplied, config=helion.Config(**given))
    x, y = torch.rand(33, 40), torch.rand(40, 17)
    assert torch.allclose(kernel(x, y), x @ y, atol=1e-4)
    spec = kernel.bind((x, y), target="cuda:90").config_spec
    assert spec.normalize(kernel.config)[f"{singular}s"] == plural


def test_no_precompilation_may_be_asked_for_with_false() -> None:
    assert helion.Settings(autotune_precompile=False).autotune_precompile is None
