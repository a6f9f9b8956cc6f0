"""The keywords of decorators, searches and Configs as type checkers know them.

What runs does not look here: settings and keys are checked when they are given, by the rules of
``settings`` and of a kernel's specification. Tests compare the names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union

from typing_extensions import TypedDict

from tilesmith.setting_rules import RefMode

Path = Union[str, "os.PathLike[str]"]


class SettingKeywords(TypedDict, total=False):
    """Every setting of a kernel, as ``Settings`` and ``@tilesmith.kernel`` take it."""

    backend: Literal["auto", "triton", "cpu", "reference", "cute", "tileir"]
    num_threads: int
    check: bool
    verify_passes: bool
    static_shapes: bool
    index_dtype: object
    dot_precision: Literal["ieee", "tf32", "tf32x3", "default", "high", "highest"]
    fast_math: bool
    ignore_warnings: Sequence[str | type]
    missing_gradient: Literal["derive", "warn", "error", "ignore"]
    persistent_reserved_sms: int
    distributed: bool
    allow_warp_specialize: bool
    triton_do_not_specialize: bool
    debug_dtype_asserts: bool
    print_output_code: bool
    print_repro: bool
    output_origin_lines: bool
    ref_mode: RefMode
    triton_interpret: bool
    torch_compile_fusion: bool
    cache_dir: Path
    team_cache: str
    skip_cache: bool
    assert_cache_hit: bool
    logs: str
    force_autotune: bool
    disallow_autotuning: bool
    autotune_effort: Literal["none", "quick", "full"]
    autotuner: str
    deterministic: bool
    autotuner_fn: Callable[..., object] | None
    autotune_cache: str
    autotune_force_persistent: bool
    autotune_log_level: int | str
    autotune_log: Path | None
    autotune_log_details: bool
    autotune_compile_timeout: int
    autotune_adaptive_timeout: bool
    autotune_precompile: Literal["fork", "spawn", False] | None
    autotune_precompile_jobs: int | None
    autotune_benchmark_subprocess: bool
    autotune_benchmark_timeout: int
    autotune_random_seed: int | None
    autotune_best_of_k: int
    autotune_accuracy_check: bool
    autotune_baseline_fn: Callable[..., object] | None
    autotune_baseline_atol: float | None
    autotune_baseline_rtol: float | None
    autotune_baseline_accuracy_check_fn: Callable[..., object] | None
    autotune_rebenchmark_threshold: float | None
    autotune_suspicious_rebenchmark_ratio: float | None
    autotune_search_acf: list[Path]
    autotune_progress_bar: bool
    autotune_max_generations: int | None
    autotune_budget_seconds: float | None
    autotune_stop_at_roofline: float | None
    autotune_ignore_errors: bool
    autotune_config_overrides: Mapping[str, object]
    autotune_seed_configs: object
    disable_autotuner_heuristics: bool
    autotune_config_filter: Callable[..., object] | None
    autotune_benchmark_fn: Callable[..., object] | None
    autotune_best_available_max_configs: int
    autotune_best_available_max_cache_scan: int
    autotune_initial_population_strategy: object
    autotune_with_torch_compile_fusion: bool
    autotune_log_search_space: bool
    autotune_log_search_space_verbose: bool
    autotune_log_search_space_path: Path | None


class SearchKeywords(SettingKeywords, total=False):
    """What ``autotune`` takes: settings, also without ``autotune_``, and options of methods."""

    effort: Literal["none", "quick", "full"]
    cache: str
    force_persistent: bool
    log_level: int | str
    log: Path | None
    log_details: bool
    compile_timeout: int
    adaptive_timeout: bool
    precompile: Literal["fork", "spawn", False] | None
    precompile_jobs: int | None
    benchmark_subprocess: bool
    benchmark_timeout: int
    random_seed: int | None
    best_of_k: int
    accuracy_check: bool
    baseline_fn: Callable[..., object] | None
    baseline_atol: float | None
    baseline_rtol: float | None
    baseline_accuracy_check_fn: Callable[..., object] | None
    rebenchmark_threshold: float | None
    suspicious_rebenchmark_ratio: float | None
    search_acf: Sequence[Path]
    progress_bar: bool
    max_generations: int | None
    budget_seconds: float | None
    stop_at_roofline: float | None
    ignore_errors: bool
    config_overrides: Mapping[str, object]
    seed_configs: object
    config_filter: Callable[..., object] | None
    benchmark_fn: Callable[..., object] | None
    best_available_max_configs: int
    best_available_max_cache_scan: int
    initial_population_strategy: object
    with_torch_compile_fusion: bool
    log_search_space: bool
    log_search_space_verbose: bool
    log_search_space_path: Path | None
    method: str
    algorithm: str
    initial_population: int
    copies: int
    count: int
    crossover_rate: float
    generation_size: int
    max_seeds: int
    population_size: int
    configs: Sequence[Any]


Integers = Sequence[int]
Flags = Sequence["bool | None"]


class ConfigKeywords(TypedDict, total=False):
    """The keys of a ``Config``; a kernel's own tunables are given by ``updated`` or ``from_dict``.

    Example:
        ``Config(block_sizes=[64]).updated(split_k=4)``
    """

    block_sizes: Sequence[int | Integers] | None
    block_size: int | Integers | None
    loop_orders: Sequence[Integers] | None
    loop_order: Integers | Sequence[Integers] | None
    flatten_loops: Sequence[bool] | None
    flatten_loop: bool | Sequence[bool] | None
    l2_groupings: Integers | None
    l2_grouping: int | Integers | None
    reduction_loops: Sequence[int | None] | None
    reduction_loop: int | Sequence[int | None] | None
    range_unroll_factors: Integers | None
    range_unroll_factor: int | Integers | None
    range_warp_specializes: Flags | None
    range_warp_specialize: bool | Flags | None
    range_num_stages: Integers | None
    range_num_stage: int | Integers | None
    range_multi_buffers: Flags | None
    range_multi_buffer: bool | Flags | None
    range_flattens: Flags | None
    range_flatten: bool | Flags | None
    static_ranges: Sequence[bool] | None
    static_range: bool | Sequence[bool] | None
    num_warps: int | None
    num_stages: int | None
    indexing: str | Sequence[str] | None
    atomic_indexing: str | Sequence[str] | None
    pid_type: str | None
    num_sm_multiplier: int | None
    load_eviction_policies: Sequence[str] | None
    load_cache_modifiers: Sequence[str] | None
    store_cache_modifiers: Sequence[str] | None
    waves_per_eu: int | None
    matrix_instr_nonkdim: int | None
    xcd_remap: bool | None
    maxnreg: int | None
    epilogue_subtile: int | bool | None
    cpu_threads: int | None
    cpu_unroll: int | None
    cpu_streaming_stores: bool | None
    cpu_schedule: str | None
    structure: Any
    stages: Sequence[Mapping[str, Any]] | None
    advanced_controls_file: str | None
    num_ctas: int | None
    occupancy: int | None
