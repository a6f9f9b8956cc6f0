"""Configs of kernels with more than one structure, and which structure is the default."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.lowering import schedule_function
from tests.schedule import programs
from tests.specs import config_spec, form_spec
from tilesmith.backends.triton.heuristics.row_launches import TWO_LAUNCHES
from tilesmith.backends.triton.heuristics.shared_rows import (
    EXCHANGE,
    LAST_REDUCES,
    PRODUCT_FORMS,
    TWO_PHASES,
)
from tilesmith.backends.triton.model.time_model import CLEARING_NS, EXCHANGE_NS, GRID_BARRIER_NS
from tilesmith.exc import InvalidConfig, InvalidConfigValue, TunableNameConflict
from tilesmith.ir.ops.control_flow import GridBarrier, GroupBarrier
from tilesmith.schedule.config import Config
from tilesmith.schedule.resolution import MultiFormSpec
from tilesmith.schedule.space.fragments import PowerOfTwoFragment
from tilesmith.targets import parse_target


def row_product(
    n: int = 2048, m: int = 131072, target: str = "cuda:90", dtype: str = "bf16"
) -> MultiFormSpec:
    return form_spec(programs.matmul_row_norm(m, n, 512, dtype), parse_target(target))


def sized_product(m: int, k: int, n: int, dtype: str = "bf16") -> MultiFormSpec:
    """One whose sums are not rounded to tf32."""
    function = programs.matmul_row_norm(m, n, k, dtype, precision="ieee")
    return form_spec(function, parse_target("cuda:90"))


# Which form was fastest is what an H200 said of these products.


@pytest.mark.parametrize(("n", "structure"), [(512, None), (2048, EXCHANGE), (4096, EXCHANGE)])
def test_long_rows_are_split_by_default(n, structure):
    assert row_product(n).default_config().get("structure") == structure


@pytest.mark.parametrize(
    ("size", "tile"),
    [
        ((512, 1024, 1024), [64, 128, 128]),
        ((1024, 1024, 1024), [64, 128, 128]),
        ((1024, 4096, 1024), [64, 128, 128]),
        ((1024, 512, 2048), [64, 64, 128]),
        ((2048, 512, 1024), [64, 64, 128]),
        ((2048, 2048, 2048), [128, 64, 128]),
        ((131072, 512, 2048), [128, 64, 128]),
        ((131072, 2048, 2048), [128, 64, 128]),
        ((131072, 3072, 2048), [128, 64, 256]),
    ],
    ids=str,
)
def test_tiles_that_are_kept_fill_the_device(size, tile):
    spec = sized_product(*size)
    config = spec.others[EXCHANGE].default_config()
    assert config.block_sizes == tile
    assert config.indexing[:2] == ["tensor_descriptor"] * 2
    in_cache = 4 * size[0] * size[2] <= 6 << 20
    wanted = TWO_LAUNCHES if in_cache else EXCHANGE
    assert spec.default_config() == spec.others[wanted].default_config().updated(structure=wanted)


@pytest.mark.parametrize(
    ("size", "tile"),
    [
        ((1024, 1024, 1024), [64, 32, 64]),
        ((2048, 2048, 2048), [64, 64, 128]),
        ((131072, 512, 2048), [32, 32, 128]),
    ],
    ids=str,
)
def test_words_that_are_kept_have_tiles_of_their_own(size, tile):
    spec = sized_product(*size, dtype="f32")
    first = spec.others[EXCHANGE].default_config()
    assert first.block_sizes == tile
    in_cache = 4 * size[0] * size[2] <= 20 << 20
    assert spec.default_config()["structure"] == (TWO_LAUNCHES if in_cache else EXCHANGE)
    # Triton 3.7 spills all registers of such products if their operands come by descriptors.
    assert set(first.indexing) == {"pointer"}


@pytest.mark.parametrize("m", [1, 16, 128])
def test_a_few_rows_are_left_to_more_programs_than_may_wait(m):
    spec = sized_product(m, 4096, 4096)
    assert spec.default_config()["structure"] == TWO_PHASES


def test_a_barrier_and_memory_to_clear_take_time_at_each_launch():
    spec = row_product()
    for name, is_cleared, num_barriers in [
        (EXCHANGE, 1, 0),
        (LAST_REDUCES, 1, 0),
        (TWO_PHASES, 0, 1),
    ]:
        form = spec.others[name]
        predicted = form.predict(form.default_config()).total_ms
        function = form.function
        calm = tuple(op for op in function.body.ops if not isinstance(op, GridBarrier))
        kept = tuple(
            replace(p, source=p.source.replace("zeros", "empty")) for p in function.parameters
        )
        without = replace(function, parameters=kept, body=replace(function.body, ops=calm))
        other = config_spec(without, form.target)
        bare = other.predict(other.normalize(form.default_config())).total_ms
        expected = CLEARING_NS * is_cleared + GRID_BARRIER_NS * num_barriers
        assert predicted - bare == pytest.approx(expected / 1e6)


@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
def test_the_form_a_kernel_is_written_in_is_the_last_resort(target):
    spec = row_product(4096, target=target)
    first, *others = spec.fallback_configs()
    assert first == spec.default_config()
    assert any("structure" not in config for config in others)


def test_nobody_is_made_to_have_a_lot_of_memory():
    assert row_product(4096, m=1 << 20).default_config().get("structure") == EXCHANGE
    fitting = row_product(4096, m=1 << 18, dtype="f32")
    assert fitting.default_config().get("structure") == LAST_REDUCES
    large = row_product(4096, m=1 << 20, dtype="f32")
    assert large.default_config().get("structure") is None
    every = {None, *PRODUCT_FORMS, TWO_LAUNCHES}
    assert {config.get("structure") for config in large.seed_configs()} == every


def test_products_of_words_are_split_too():
    spec = row_product(dtype="f32")
    assert spec.default_config().get("structure") == LAST_REDUCES
    assert spec.feasibility(spec.default_config()) is None


def test_a_config_without_the_key_is_about_the_kernel_as_it_is():
    spec = row_product()
    config = spec.normalize({"block_sizes": [16, 32], "num_warps": 8})
    assert config.block_sizes == [16, 32]
    assert "structure" not in config
    assert spec.of(config) == (spec, config)


def test_a_config_of_the_other_structure_has_that_ones_keys():
    spec = row_product()
    split = spec.others[TWO_PHASES]
    given = Config(structure=TWO_PHASES, block_sizes=[128, 64, 256, 4], num_warps=8)
    full = spec.normalize(given)
    assert spec.normalize(full) == full
    assert (full.block_sizes, full.pid_type) == ([128, 64, 256, 4], "persistent_blocked")
    assert full["structure"] == TWO_PHASES
    other, plain = spec.of(full)
    assert other is split
    assert plain == split.normalize(plain)
    assert spec.predict(full).total_ms == split.predict(plain).total_ms
    assert spec.feasibility(full) == split.feasibility(plain)
    assert spec.resources(spec.settle(full)) == split.resources(split.settle(plain))
    assert set(spec.flatten(full)) == set(split.dimensions())


@pytest.mark.parametrize("name", ["two_phase", 2])
def test_unknown_structures_are_refused(name):
    with pytest.raises(InvalidConfigValue, match="two_phases"):
        row_product().normalize(Config(structure=name, block_sizes=[16, 32]))


def test_kernels_with_one_structure_say_so():
    spec = form_spec(programs.matmul(512, 512, 512), parse_target("cuda:80"))
    assert list(spec.forms()) == [""]
    with pytest.raises(InvalidConfigValue, match="one form"):
        spec.normalize(Config(structure=TWO_PHASES, block_sizes=[16, 32, 32]))


def test_lengths_are_those_of_the_structure():
    with pytest.raises(InvalidConfig, match="block_sizes"):
        row_product().normalize(Config(structure=TWO_PHASES, block_sizes=[16, 32]))


def test_cpus_take_the_tiles_that_they_know():
    spec = row_product(target="cpu:avx2")
    given = Config(structure=TWO_PHASES, block_sizes=[128, 64, 256, 4], num_warps=8)
    assert spec.normalize(given) == spec.normalize(Config(block_sizes=[128, 64]))


def test_searches_see_all_structures():
    spec = row_product()
    every = {None, *PRODUCT_FORMS, TWO_LAUNCHES}
    assert {config.get("structure") for config in spec.seed_configs()} == every
    ranked = spec.ranked_configs(8)
    assert ranked[0].config == spec.default_config()
    assert {item.config.get("structure") for item in ranked[:5]} == every
    rng = Random(0)
    drawn = [spec.random_config(rng) for _ in range(60)]
    assert {config.get("structure") for config in drawn} == every
    assert all(spec.normalize(config) == config for config in drawn)


def test_all_structures_are_scheduled():
    spec = row_product()
    for config in [item.config for item in spec.ranked_configs(4)]:
        structure, plain = spec.of(config)
        function, schedule = schedule_function(structure.function, structure, plain)
        assert schedule.num_warps == config.num_warps
        has_scratch = any(p.source.startswith("torch.empty(") for p in function.parameters)
        assert has_scratch is (config.get("structure") is not None)


def test_the_key_is_no_name_for_tunables():
    with pytest.raises(TunableNameConflict):
        config_spec(
            programs.matmul(), parse_target("cuda:90"), {"structure": PowerOfTwoFragment(1, 4)}
        )


@pytest.mark.parametrize("n", [512, 2048, 4096])
def test_short_forms_stand_for_the_same(n):
    spec = row_product(n)
    for item in spec.ranked_configs(6):
        short = item.config.minimize(spec)
        assert spec.normalize(short) == item.config
        assert short.get("structure") == item.config.get("structure")


@pytest.mark.parametrize("structure", [TWO_PHASES, LAST_REDUCES])
def test_scratch_is_never_taken_to_go_through_descriptors(structure):
    spec = row_product().others[structure]
    facts = {(f.kind, f.tensor): f for f in spec.facts.accesses}
    # Backends refuse: descriptors have no order with plain accesses of the same memory.
    assert not facts["store", "row_scratch"].fits_descriptor
    assert not facts["load", "row_scratch"].fits_descriptor
    assert facts["load", "x"].fits_descriptor
    positions = [i for i, op in enumerate(spec.entries.accesses) if op.tensor.name == "row_scratch"]
    rng = Random(0)
    drawn = [spec.random_config(rng).indexing for _ in range(40)]
    assert {indexing[i] for indexing in drawn for i in positions} == {"pointer"}
    assert {indexing[0] for indexing in drawn} == {"pointer", "tensor_descriptor"}


def test_parts_never_go_through_descriptors():
    spec = row_product().others[EXCHANGE]
    facts = [f for f in spec.facts.accesses if f.tensor.endswith("_parts")]
    assert {f.kind for f in facts} == {"load", "store"}
    assert not any(f.fits_descriptor for f in facts)
    (out,) = [f for f in spec.facts.accesses if f.tensor == "out"]
    assert out.fits_descriptor


@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
def test_programs_that_wait_keep_their_order(target):
    spec = row_product(target=target).others[EXCHANGE]
    rng = Random(0)
    drawn = [spec.random_config(rng) for _ in range(40)]
    assert {config.pid_type for config in drawn} == {"flat"}
    assert not any(config.get("loop_orders") or config.get("l2_groupings") for config in drawn)
    assert not any(config.get("xcd_remap") for config in drawn)
    blocks = {"block_sizes": [128, 64, 128]}
    for wrong in [
        {"pid_type": "xyz"},
        {"pid_type": "persistent_interleaved"},
        {"loop_orders": [[1, 0]]},
        {"l2_groupings": [4]},
    ]:
        with pytest.raises(InvalidConfig):
            spec.normalize({**blocks, **wrong})
    if target.startswith("hip"):
        with pytest.raises(InvalidConfig):
            spec.normalize({**blocks, "xcd_remap": True})


@pytest.mark.parametrize(("n", "least"), [(512, 128), (4096, 128), (8192, 256)])
def test_rows_are_cut_into_few_enough_parts(n, least):
    spec = row_product(n).others[EXCHANGE]
    rng = Random(0)
    drawn = [spec.random_config(rng).block_sizes[2] for _ in range(40)]
    assert min(drawn) >= least
    assert spec.normalize({"block_sizes": [64, 32, 16]}).block_sizes == [64, 32, least]


@pytest.mark.parametrize(("num_sms", "is_offered"), [(132, True), (64, True), (63, False)])
def test_devices_without_room_for_those_who_wait_have_no_exchange(num_sms, is_offered):
    target = replace(parse_target("cuda:90"), num_sms=num_sms)
    spec = form_spec(programs.matmul_row_norm(131072, 2048, 512), target)
    assert (EXCHANGE in spec.others) is is_offered
    if not is_offered:
        with pytest.raises(InvalidConfigValue, match="last_reduces"):
            spec.normalize(Config(structure=EXCHANGE, block_sizes=[128, 64, 128]))


def test_an_exchange_is_the_default_where_it_was_seen_to_gain():
    assert row_product(target="hip:gfx942").default_config().get("structure") == LAST_REDUCES
    assert EXCHANGE in row_product(target="hip:gfx942").others
    assert row_product(dtype="f16").default_config().get("structure") == EXCHANGE
    assert row_product(4096, dtype="f8e4m3").default_config().get("structure") == LAST_REDUCES
    assert EXCHANGE in row_product(4096, dtype="f8e4m3").others


@pytest.mark.parametrize("is_allowed", [True, False])
def test_no_structure_specialises_warps_against_the_settings(is_allowed):
    function, target = programs.matmul_row_norm(131072, 2048, 512), parse_target("cuda:100")
    spec = form_spec(function, target, allow_warp_specialize=is_allowed)
    for name, other in spec.others.items():
        rng = Random(0)
        drawn = [other.random_config(rng).get("range_warp_specializes") for _ in range(60)]
        # Those of programs that wait never are, nor rows without a product.
        is_expected = is_allowed and name not in (EXCHANGE, TWO_LAUNCHES)
        assert any(True in (choices or []) for choices in drawn) is is_expected


def test_every_round_of_programs_takes_the_time_of_a_meeting():
    spec = row_product().others[EXCHANGE]
    *before, grid = spec.function.body.ops
    alone = [op for op in grid.regions()[0].ops if not isinstance(op, GroupBarrier)]
    lonely = grid.with_regions((replace(grid.regions()[0], ops=tuple(alone)),))
    body = replace(spec.function.body, ops=(*before, lonely))
    without = config_spec(spec.function.with_body(body), spec.target)
    sizes = {"block_sizes": [128, 64, 128]}
    met, unmet = (s.predict(s.normalize(sizes)) for s in (spec, without))
    rounds = met.waves
    expected = rounds * EXCHANGE_NS / 1e6
    assert met.latency_ms - unmet.latency_ms == pytest.approx(expected, rel=0.05)


def test_panels_are_not_left_to_programs_that_fall_behind():
    spec = row_product().others[LAST_REDUCES]
    rng = Random(0)
    assert {spec.random_config(rng).pid_type for _ in range(40)} == {"flat", "xyz"}
    given = Config(block_sizes=[64, 32, 64, 4], pid_type="persistent_blocked")
    assert spec.normalize(given).pid_type == "persistent_blocked"
