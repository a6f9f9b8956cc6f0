"""The text that shows plans: as recorded for known kernels, complete, and the same every time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

import tilesmith as helion
from examples import (
    attention,
    cross_entropy,
    dot_compress,
    jagged_mean,
    layer_norm,
    long_sum,
    matmul,
    softmax,
)
from tests.backends.cpu import shown_kernels
from tests.lowering import for_target, schedule_function
from tests.specs import config_spec
from tilesmith.backends.cpu.loop_ir.statements import Kernel
from tilesmith.backends.cpu.lowering.kernel import lower_kernel
from tilesmith.backends.cpu.printing.kernel import print_kernel
from tilesmith.ir.function import Function
from tilesmith.ir.ops.control_flow import Yield
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.traversal import walk_function
from tilesmith.targets import cpu_target

TARGET = cpu_target("avx512")
PLAIN = {
    "cpu_threads": 0,
    "cpu_unroll": 4,
    "cpu_streaming_stores": False,
    "cpu_schedule": "static",
}
"""What a case does not say itself is fixed, so that new defaults change nothing here."""


@dataclass(frozen=True)
class Case:
    """A kernel with arguments and a config."""

    name: str
    kernel: Any
    args: tuple[Any, ...]
    config: dict[str, Any]

    def __str__(self) -> str:
        return self.name


def f32(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def bf16(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.bfloat16)


def i64(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


HEADS = tuple(f32(2, 4, 128, 64) for _ in range(3))
NORM = (bf16(64, 1000), bf16(1000), bf16(1000))
COUNTED = (f32(64, 1000), torch.zeros(32, dtype=torch.int32))
CASES = (
    Case("softmax", softmax.softmax, (f32(4096, 4096),), {"block_sizes": [1]}),
    Case("softmax_rows", softmax.softmax_decomposed, (bf16(100, 777),), {"block_sizes": [8]}),
    Case("layer_norm", layer_norm.layer_norm_fwd, NORM, {"block_sizes": [1]}),
    Case(
        "layer_norm_gradients",
        layer_norm.layer_norm_bwd,
        (*(f32(100, 512) for _ in range(2)), f32(512), f32(100), f32(100)),
        {"block_sizes": [32, 8], "cpu_threads": 4},
    ),
    Case("matmul", matmul.matmul, (f32(512, 256), f32(256, 384)), {"block_sizes": [64, 128, 64]}),
    Case("matmul_transposed", matmul.matmul, (bf16(100, 90), bf16(110, 90).t()),
         {"block_sizes": [32, 64, 32], "cpu_schedule": "dynamic"}),
    Case("attention", attention.attention, HEADS, {"block_sizes": [1, 32, 64]}),
    Case("causal_attention", attention.causal_attention, HEADS, {"block_sizes": [1, 32, 64]}),
    Case("jagged_mean", jagged_mean.jagged_mean, (f32(657, 40), i64(33), i64(32)),
         {"block_sizes": [8, 32, 16]}),
    Case("cross_entropy", cross_entropy.cross_entropy, (f32(128, 1000), i64(128)),
         {"block_sizes": [4]}),
    Case("long_sum_in_chunks", long_sum.long_sum, (f32(4, 130_000),),
         {"block_sizes": [1], "reduction_loops": [4096], "cpu_unroll": 8}),
    Case("branch_while_and_atomic", shown_kernels.halve_and_count, COUNTED,
         {"cpu_streaming_stores": True}),
    Case("while_over_tiles", shown_kernels.chase, (i64(9), f32(100)), {"block_sizes": [32]}),
    Case("atomics_with_results", shown_kernels.scatter_counts, (i64(100), i64(10)),
         {"block_sizes": [32]}),
    Case("two_grids", shown_kernels.flags_and_positions, (f32(20, 50),), {"block_sizes": [4, 32]}),
    Case("reversed_scan", shown_kernels.running_sums, (f32(20, 50),), {"block_sizes": [4]}),
    Case("combinations", shown_kernels.combine_rows_and_columns, (f32(20, 50), 0.5),
         {"block_sizes": [4]}),
    Case("reshape", shown_kernels.pair_up, (bf16(20, 64),), {"block_sizes": [4]}),
)  # fmt: skip


def lower(case: Case) -> tuple[Function, Kernel]:
    function = case.kernel.bind(case.args).function
    spec = config_spec(function, TARGET)
    function, schedule = schedule_function(
        function,
        spec,
        helion.Config(**{**PLAIN, **case.config}),  # pyright: ignore[reportArgumentType]
    )
    function = for_target(function, schedule)
    return function, lower_kernel(function, schedule)


def shown(case: Case) -> str:
    return print_kernel(lower(case)[1])


def find(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_plan_is_shown_as_recorded(case: Case, golden: Callable[..., None]) -> None:
    golden(shown(case))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_line_of_the_user_appears_once_in_full(case: Case) -> None:
    function, kernel = lower(case)
    text = print_kernel(kernel)
    quoted = re.findall(r"# (\w+\.py:\d+)  \S", text)
    assert len(quoted) == len(set(quoted))
    # A bare constant may belong to a line that does nothing else, like an argument's default.
    ops = [op for op in walk_function(function) if not isinstance(op, (Full, Yield))]
    assert {str(op.loc) for op in ops if op.loc.line} <= set(quoted)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_text_is_the_same_every_time(case: Case) -> None:
    assert shown(case) == shown(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_text_is_neat(case: Case) -> None:
    lines = shown(case).splitlines()
    assert max(map(len, lines)) <= 100
    assert all(line == line.rstrip() for line in lines)


def assigned(text: str) -> set[str]:
    """Names that are given a value somewhere."""
    loops = re.findall(r"(\w+) in (?:range|reversed)", text)
    return {*loops, *re.findall(r"^ *(\w+)(?:, \w+)* [-+*|&]?=", text, re.MULTILINE)}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_name_in_an_expression_is_defined(case: Case) -> None:
    function, kernel = lower(case)
    text = re.sub(r" *#.*", "", print_kernel(kernel))
    text = re.sub(r" by \d+.*:$", ":", text, flags=re.MULTILINE)
    known = assigned(text) | {parameter.value.name for parameter in function.parameters}
    calls = set(re.findall(r"(\w+)\(", text))
    words = set(re.findall(r"\b[a-zA-Z_]\w*", re.sub(r"'\w+'|\de[-+]?\d", "", text)))
    python = {"parallel", "for", "in", "while", "if", "else", "not", "break", "True", "False"}
    assert words - known - calls - python <= {"inf", "T", "f32", "bf16", "i64", "bool", "order"}


def test_schedule_choices_are_shown() -> None:
    assert "# threads: 4" in shown(find("layer_norm_gradients"))
    assert "# threads: as many as torch uses; whole vectors are stored past the caches" in shown(
        find("branch_while_and_atomic")
    )
    assert "programs, dynamic" in shown(find("matmul_transposed"))
    assert "programs, static" in shown(find("softmax"))
    assert "by 16, 8 at a time" in shown(find("long_sum_in_chunks"))


@pytest.mark.parametrize(
    ("columns", "header"),
    [
        (1, ""),
        (15, "for i in range(15) by 16, last 15 masked:"),
        (16, "for i in range(16) by 16:"),
        (17, "for i in range(17) by 16, last 1 masked:"),
        (63, "for i in range(63) by 16, last 15 masked:"),
        (64, "for i in range(64) by 16, 4 at a time:"),
        (65, "for i in range(65) by 16, 4 at a time, last 1 masked:"),
    ],
)
def test_loops_tell_what_becomes_of_the_last_elements(columns: int, header: str) -> None:
    text = shown(Case("", long_sum.long_sum, (f32(4, columns),), {"block_sizes": [1]}))
    loops = [line.strip() for line in text.splitlines() if line.strip().startswith("for ")]
    assert loops == ([header] if header else [])


def test_runtime_sizes_are_shown_by_name() -> None:
    kernel = helion.kernel(softmax.softmax_decomposed.fn, static_shapes=False)
    text = shown(Case("", kernel, (f32(100, 777),), {"block_sizes": [1]}))
    assert re.search(r"parallel for tile_m in range\(0, \w+\):  # static", text)
    assert re.search(r"for i in range\([a-z]\w*\) by 16, 4 at a time, rest masked:", text)


def test_buffers_are_declared_with_their_size() -> None:
    text = shown(find("matmul"))
    assert "acc = scratch(f32, [64, 128])  # 40,448 bytes, padded to 79 x 128" in text
    assert "out[tile_m + i, tile_n + j] = acc[i, j]" in text


def test_tiles_kept_in_place_of_a_result_are_marked() -> None:
    text = shown(find("softmax"))
    assert "out[tile_m, i] = exp_value  # kept where the result goes" in text
    assert "out[tile_m, i] = out[tile_m, i] * t" in text
    assert "scratch" not in text


def test_transposed_operands_of_products_are_marked() -> None:
    args = (f32(3, 37, 24), f32(3, 37, 20))
    text = shown(Case("", dot_compress.dot_compress_fwd, args, {"block_sizes": [32, 16]}))
    assert "acc[:, :] += x[tile_b, tile_m:, :].T @ y[tile_b, tile_m:, :]" in text
    assert "x[tile_m:, tile_k:] @ y[tile_k:, tile_n:]" in shown(find("matmul_transposed"))


def test_origin_lines_can_be_left_out() -> None:
    _, kernel = lower(find("softmax"))
    text = print_kernel(replace(kernel, shows_lines=False))
    assert "softmax.py" not in text
    assert "parallel for tile_m" in text


def test_values_that_swap_are_assigned_together() -> None:
    text = shown(Case("", shown_kernels.fibonacci, (f32(10), 9), {}))
    assert "before, now = now, before + now" in text
    assert "before = 0.0" in text


def test_masked_stores_and_unused_results_of_atomics() -> None:
    args = (f32(100, 50), torch.zeros(100, dtype=torch.bool), f32(50))
    text = shown(Case("", shown_kernels.count_visible, args, {"block_sizes": [16, 32]}))
    assert "if is_seen: x[tile_m + i, tile_n + j] = -values" in text
    assert re.search(r"^ +atomic_max\(counts\[tile_n \+ i\], largest\[i\]\)$", text, re.MULTILINE)
