"""Rows of a file are chosen as what runs is; what cannot be chosen is said."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.made_up_rows import make_row, make_rows
from tilesmith.bench.plan import Options, PlanError, Shard
from tilesmith.bench.row import Owner
from tilesmith.bench.tables import choose_rows

ROWS = make_rows()


def chosen(**options: Any) -> list[tuple[str, int, str]]:
    found = choose_rows(ROWS, Options(**options))
    return [(row.operator, row.input_id, row.implementation) for row in found]


def test_all_rows_are_meant_if_nothing_is_said() -> None:
    assert choose_rows(ROWS, Options()) == ROWS


def test_operators_and_implementations_are_names_or_patterns() -> None:
    assert {row[0] for row in chosen(kernels=("rms_*",))} == {"rms_norm"}
    assert {row[2] for row in chosen(only=("tilesmith", "torch_*"))} == {
        *("tilesmith", "torch_compile", "torch_compile_max"),
    }


def test_our_names_mean_those_of_every_kernel() -> None:
    names = ("tilesmith_one", "tilesmith_two", "tilesmith_two_tuned", "helion_one", "eager")
    rows = [
        make_row(implementation=name, owner=Owner.OURS if "tile" in name else Owner.THEIRS)
        for name in names
    ]

    def only(name: str) -> list[str]:
        return [row.implementation for row in choose_rows(rows, Options(only=(name,)))]

    assert only("tilesmith") == ["tilesmith_one", "tilesmith_two"]
    assert only("tilesmith_tuned") == ["tilesmith_two_tuned"]
    assert only("helion") == ["helion_one"]


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"input_ids": (1, 3)}, {1, 3}),
        ({"num_inputs": 2}, {0, 1}),
        ({"input_ids": (2,), "num_inputs": 2}, {2, 3}),
        ({"input_ids": (3, 1), "num_inputs": 1}, {3}),
    ],
)
def test_inputs_are_chosen_of_each_operator(options: dict[str, Any], numbers: set[int]) -> None:
    found = chosen(**options)
    for operator in ("gemm", "rms_norm"):
        assert {row[1] for row in found if row[0] == operator} == numbers


def test_types_and_devices_are_chosen() -> None:
    rows = [make_row(), make_row(dtype="float32", device="cpu")]
    assert choose_rows(rows, Options(dtype="fp32")) == rows[1:]
    assert choose_rows(rows, Options(dtype="bfloat16")) == rows[:1]
    assert choose_rows(rows, Options(device="cpu")) == rows[1:]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernels": ("gem",)}, "--kernel gem: no row of the file; did you mean gemm?"),
        ({"only": ("xyz",)}, "--only xyz: no row of the file; there are tilesmith, "),
        ({"kernels": ("gemm",), "input_ids": (0, 17)}, "--input-id 17: no row of the file; there"),
        ({"dtype": "fp64"}, "--dtype float64: no row of the file; did you mean bfloat16?"),
        ({"device": "cpu"}, "--device cpu: no row of the file; there are cuda"),
        ({"shard": Shard(1, 2)}, "--input-shard does not go with --from"),
    ],
)
def test_what_no_row_has_is_a_mistake(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        chosen(**options)
    assert str(caught.value).startswith(message)
