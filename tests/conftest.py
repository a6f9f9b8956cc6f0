"""Options, markers and fixtures shared by all tests."""

from __future__ import annotations

import gc
import os
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import pytest

try:
    import hypothesis
except ImportError:  # a device machine may lack it; no device test uses it
    hypothesis = None

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"
TESTS_BETWEEN_FREEZES = 50
FOLDERS_OF_LINKS = re.compile(r"(?<=[ (])(?:[\w.+-]*/)+(?=[\w.-]+\.py:\d)")
"""Errors name files so that terminals open them: from the working folder, which may be any."""
TESTS_SINCE_FREEZE = pytest.StashKey[int]()


class Share(NamedTuple):
    """A long table of which one test of so many runs without --full."""

    file: str
    test: str
    one_of: int
    reason: str
    optional: str = ""
    """Names of parameters of which not every value must occur."""


SAME_RULES = "types, sizes and backends go through the same rules; every function stays"
OTHER_SIZES = "every kernel stays, with some size and type; partial tiles are among the sizes"
OTHER_VECTORS = "the code of each kernel runs on this machine; that for others differs in width"
OTHER_SHAPES = "one shape of each kind is compiled; ptxas takes a second for each"
SAME_PATHS = "kernels of one family take the same paths through the compiler"
MORE_SEEDS = "each is a random sample of the same space"
SHARES = (
    Share("test_torch_functions.py", "test_unary_functions", 8, SAME_RULES),
    Share("test_torch_functions.py", "test_binary_functions", 6, SAME_RULES),
    Share("test_torch_functions.py", "test_operands_of_two_types", 6, SAME_RULES),
    Share("test_torch_reductions.py", "test_reductions", 12, SAME_RULES),
    Share("test_torch_reductions.py", "test_nan_and_infinity", 6, SAME_RULES),
    Share("test_torch_scans.py", "test_torch_scans", 6, SAME_RULES),
    Share("test_torch_scans.py", "test_nan_and_infinity", 4, SAME_RULES),
    Share("test_torch_scans.py", "test_scans_of_the_language", 4, SAME_RULES),
    Share("test_torch_rearrangements.py", "test_elements_are", 2, SAME_RULES),
    Share("test_promotion.py", "test_tensors_without_dimensions", 3, SAME_RULES),
    Share("test_promotion.py", "test_runtime_numbers", 3, SAME_RULES),
    Share("test_locations.py", "test_every_op_of_every_case", 3, SAME_PATHS, "case"),
    Share("test_elementwise.py", "test_integer_functions", 6, SAME_RULES),
    Share("test_elementwise.py", "test_float_functions", 3, SAME_RULES),
    Share("test_atomics.py", "test_atomics_take_effect", 3, SAME_RULES),
    Share("test_reduction.py", "test_extrema_of_every_type", 3, SAME_RULES),
    Share("test_scan.py", "test_running_extrema", 3, SAME_RULES),
    Share("test_split_rows.py", "test_gives_what", 6, SAME_PATHS),
    Share("test_split_rows.py", "test_lanes_beyond", 2, SAME_PATHS),
    Share("test_against_fp64.py", "test_small_blocks", 16, OTHER_SIZES, "size"),
    Share("test_against_fp64.py", "test_plain_call", 8, SAME_PATHS, "case"),
    Share("test_against_fp64.py", "test_any_layout", 6, SAME_PATHS, "case"),
    Share("test_dynamic_shapes.py", "test_one_kernel", 24, SAME_PATHS, "case"),
    Share("test_native_code.py", "test_older_machines", 24, OTHER_VECTORS, "case"),
    Share("test_native_code.py", "test_the_number_of_threads", 8, SAME_PATHS, "case"),
    Share("test_mains.py", "test_example", 8, "their kernels are cases", "script"),
    Share("test_under_triton_interpreter.py", "test_exported", 6, SAME_PATHS, "share"),
    Share("test_module_source.py", "test_examples_need", 6, SAME_PATHS, "case"),
    Share("test_on_the_cpu.py", "test_plain_call", 5, SAME_PATHS, "case"),
    Share("test_on_the_cpu.py", "test_runtime_sizes", 4, SAME_PATHS, "case"),
    Share("test_on_the_cpu.py", "test_native_code_gives", 3, SAME_PATHS, "case"),
    Share("test_on_the_cpu.py", "test_native_code_of_random", 6, SAME_PATHS, "case"),
    Share("test_on_the_cpu.py", "test_native_code_of_older", 10, OTHER_VECTORS, "case"),
    Share("test_random_programs.py", "test_programs_compute", 5, MORE_SEEDS, "part"),
    Share("test_triton_code.py", "test_saved_modules", 2, SAME_PATHS, "share"),
    Share("test_edge_sizes.py", "test_", 4, SAME_PATHS),
    Share("test_gathers.py", "test_", 3, SAME_PATHS),
    Share("test_product.py", "test_types", 3, SAME_PATHS),
    Share("test_prepacking.py", "test_layouts", 3, SAME_PATHS),
    Share("test_memory_order.py", "test_updates_are_seen", 3, SAME_PATHS),
    Share("test_carried_tiles.py", "test_next_values", 3, SAME_PATHS),
    Share("test_atomics_native.py", "test_older_machines", 3, OTHER_VECTORS),
    Share("test_atomics_native.py", "test_places_hit_many_times", 3, SAME_PATHS),
    Share("test_judge.py", "test_sums_may_be_split", 4, SAME_PATHS),
    Share("test_scans.py", "test_scans_compile", 4, SAME_PATHS),
    Share("test_scans.py", "test_scans_of_floats", 3, SAME_PATHS),
    Share("test_against_reference.py", "test_reductions_of_floats", 2, SAME_PATHS),
    Share("test_suites.py", "test_our_kernels", 4, "they are the cases' kernels", "name"),
    Share("test_cpu_examples.py", "test_", 8, SAME_PATHS, "name"),
    Share("test_ports_against_fp64.py", "test_small_blocks", 4, OTHER_SIZES, "size"),
    Share("test_ports_against_fp64.py", "test_one_kernel", 3, SAME_PATHS, "port"),
    Share("test_ports_against_fp64.py", "test_random_config", 6, MORE_SEEDS),
    Share("test_ports_on_hopper.py", "test_default_code", 6, SAME_PATHS, "port"),
    Share("test_on_the_cpu.py", "test_small_tiles", 3, SAME_PATHS, "case"),
    Share("test_gallery.py", "test_the_gradient_is_that", 8, SAME_PATHS, "case"),
    Share("test_against_handwritten.py", "test_both_are_within", 6, SAME_PATHS),
    Share("test_against_handwritten.py", "test_any_config_gives", 3, SAME_PATHS, "pair"),
    Share("test_gradcheck.py", "test_the_gradient_is_that", 3, SAME_PATHS, "name"),
    Share("test_opcheck.py", "test_gallery", 6, SAME_PATHS, "case"),
    Share("test_warp_role_protocol.py", "test_one_piece", 3, OTHER_SIZES),
    Share("test_warp_role_protocol.py", "test_two_pieces", 3, OTHER_SIZES),
    Share("test_warp_role_segments.py", "test_", 4, OTHER_SIZES),
    Share("test_fact_text.py", "test_every_example", 4, SAME_PATHS, "name"),
    Share("test_scalar_functions.py", "test_every_function_compiles", 2, SAME_RULES),
    Share("test_cross_compilation.py", "test_random_config", 3, SAME_PATHS, "case seed"),
    Share("test_default_registers.py", "test_products_with_norms", 3, OTHER_SHAPES, "size"),
    Share("test_default_registers.py", "test_products_spill_nothing", 3, OTHER_SHAPES),
    Share("test_judged_examples.py", "test_candidates_are_right", 4, SAME_PATHS, "case"),
    Share("test_ranking.py", "test_ranked_configs", 3, SAME_RULES),
    Share("test_ranking.py", "test_fallbacks_end", 3, SAME_RULES),
    Share("test_search_space.py", "test_random_configs_are", 3, SAME_RULES),
    Share("test_triton_code.py", "test_compiles_for", 3, SAME_PATHS, "case"),
    Share("test_gradients.py", "test_backward_is", 3, SAME_PATHS, "case"),
    Share("test_program_ids.py", "test_three_axes", 4, SAME_RULES),
    Share("test_shared_memory.py", "test_shared_memory_is", 3, OTHER_SHAPES, "config"),
    Share("test_random_and_scans_native.py", "test_", 3, SAME_RULES),
    Share("test_build.py", "test_matmul_compiles", 3, SAME_RULES),
    Share("test_against_reference.py", "test_batched_products", 3, SAME_RULES),
    Share("test_against_reference.py", "test_access_forms", 3, SAME_RULES),
    Share("test_jagged_bounds.py", "test_masks_keep", 3, SAME_RULES),
    Share("test_random.py", "test_block_sizes", 3, SAME_RULES),
    Share("test_random.py", "test_shapes_may", 3, SAME_RULES),
    Share("test_reduction_forms.py", "test_both_forms", 3, SAME_PATHS, "case"),
    Share("test_byte_products.py", "test_kernels_share", 3, SAME_RULES),
    Share("test_host_control_flow.py", "test_compiles", 3, SAME_PATHS, "case"),
    Share("test_gradient_of_one_column.py", "test_only_rounding", 3, SAME_RULES),
    Share("test_control_flow.py", "test_row_sums", 3, SAME_RULES),
    Share("test_matmul.py", "test_tiled_matmul", 3, SAME_RULES),
    Share("test_elementwise.py", "test_integer_casts", 3, SAME_RULES),
    Share("test_default_config.py", "test_defaults_fit_at", 3, SAME_RULES),
)
"""Long tables, of which `make test` runs a part; the first entry that fits a test counts.

The part is the same on every day and machine: what is in it depends on the names of tests only. It
holds every value of every parameter at least once, so each function, type, size and backend.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write expected output instead of comparing"
    )
    parser.addoption(
        "--full", action="store_true", help="also run tests marked full, with more random examples"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Compiled code is shared by the workers of one run and goes with them.
    if "TILESMITH_CACHE_DIR" not in os.environ:
        folder = tempfile.mkdtemp(prefix="tilesmith-tests-")
        os.environ["TILESMITH_CACHE_DIR"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    # The IR is verified between passes in every test, and in the processes that tests start.
    os.environ.setdefault("TILESMITH_VERIFY_PASSES", "1")
    # Workers have more threads than there are cores: one that waits would spin in another's time.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if hypothesis is None:
        return
    # The short run is the same every time; the long one looks for what nobody has seen yet.
    hypothesis.settings.register_profile(
        "short", max_examples=30, deadline=None, derandomize=True, database=None
    )
    hypothesis.settings.register_profile("full", max_examples=300, deadline=None)
    hypothesis.settings.load_profile("full" if config.getoption("--full") else "short")


@cache
def has_device(*, is_own: bool) -> bool:
    """Whether torch sees a GPU; for the folder's own tests something else may stand for it.

    Asked only when a device test is collected.
    """
    import torch

    from tests.device.chip import IS_PTX

    return torch.cuda.is_available() or (is_own and IS_PTX)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    needs_device = cache(lambda path: path.is_relative_to(TESTS / "device"))
    for item in items:
        if needs_device(item.path):
            item.add_marker(pytest.mark.device)
    marked = [item for item in items if item.get_closest_marker("device")]
    left_out = {item for item in marked if not has_device(is_own=needs_device(item.path))}
    # Who names one test of a table wants that one.
    if not config.getoption("--full") and not any("[" in argument for argument in config.args):
        left_out |= tests_left_to_full(items)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_collection() -> None:
    # Modules and tests stay to the end: nobody looks for garbage among them, now or later.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
    # Kernels keep what they compiled: a whole search of that takes a second and finds nothing.
    gc.set_threshold(20_000, 20, 1_000_000)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    # What outlives so many tests stays to the end of the run, as modules do.
    since = item.config.stash.get(TESTS_SINCE_FREEZE, 0) + 1
    if since >= TESTS_BETWEEN_FREEZES:
        gc.collect()
        gc.freeze()
        since = 0
    item.config.stash[TESTS_SINCE_FREEZE] = since


def tests_left_to_full(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Tests that are marked so, and of each long table what the short run does without."""
    left_out = {item for item in items if item.get_closest_marker("full")}
    tables: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        name, bracket, _ = item.name.partition("[")
        if bracket:
            tables[item.path.name, name].append(item)
    for (file, name), table in tables.items():
        share = find_share(file, name)
        if share is not None:
            left_out |= set(table) - short_table(table, share)
    return left_out


def find_share(file: str, test: str) -> Share | None:
    """The first entry that fits a table; None if all of it is run."""
    fitting = (item for item in SHARES if item.file == file and test.startswith(item.test))
    return next(fitting, None)


def short_table(table: list[pytest.Item], share: Share) -> set[pytest.Item]:
    """One of so many tests, chosen by name, and more until every value of a parameter is there."""
    chosen: set[pytest.Item] = set()
    seen: set[tuple[str, str]] = set()
    hashes = {item: crc32(item.name.encode()) for item in table}
    # Tests of the share come first, so that few others are needed for what they lack.
    for item in sorted(table, key=lambda item: (hashes[item] % share.one_of != 0, hashes[item])):
        values = parameters(item, share.optional)
        if hashes[item] % share.one_of == 0 or not values <= seen:
            chosen.add(item)
            seen |= values
    return chosen


def parameters(item: pytest.Item, optional: str) -> set[tuple[str, str]]:
    """Names and values of a test's parameters, without those that may be missing."""
    values = getattr(item, "callspec").params.items()  # noqa: B009  pytest does not declare it
    return {(name, str(value)) for name, value in values if name not in optional.split()}


def golden_path(test_file: Path, test_name: str, part: str = "") -> Path:
    """``tests/golden/<folder of the test>/<test>[-part].txt``."""
    folder = GOLDEN / test_file.parent.relative_to(TESTS)
    stem = re.sub(r"[^\w.-]+", "_", test_name.removeprefix("test_")).strip("_")
    return folder / (f"{stem}-{part}.txt" if part else f"{stem}.txt")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare text with the recorded text of this test; ``--update-golden`` records it.

    ``golden(text)``, or ``golden(text, part="ir")`` where one test records several texts.
    """
    update = request.config.getoption("--update-golden")

    def check(text: str, part: str = "") -> None:
        text = FOLDERS_OF_LINKS.sub("", text)
        path = golden_path(request.path, request.node.name, part)
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        assert path.exists(), f"no golden file {path.relative_to(TESTS)}; run with --update-golden"
        assert text == path.read_text(), f"differs from {path.relative_to(TESTS)}"

    return check
