"""Pictures of a run: drawn for odd rows too, and with the limits of the right device."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.bench.made_up_rows import ENVIRONMENT, disturbed_row, fail, make_row
from tilesmith.backends.triton.model.costs import device_of
from tilesmith.bench.report.pictures import (
    draw_bandwidth,
    draw_geomeans,
    draw_inputs,
    draw_roofline,
    find_limits,
    intensity_of,
    styles_of,
)
from tilesmith.bench.row import Cause, Owner
from tilesmith.lab.drawing.chart import marks_between, standalone
from tilesmith.targets import parse_target


@pytest.mark.parametrize("speedups", [[1.0], [0.001, 5000.0, None]])
def test_bars_of_any_speedups(speedups):
    rows = [make_row(input_label=str(n), speedup=value) for n, value in enumerate(speedups)]
    for picture in (draw_geomeans(rows), draw_inputs("gemm", rows)):
        assert picture is not None
        ElementTree.fromstring(standalone(picture))


def test_no_legend_without_a_bar():
    """An implementation that failed everywhere stood in the legend with a colour of its own."""
    theirs = make_row(implementation="triton", owner=Owner.THEIRS)
    picture = draw_inputs("gemm", [make_row(), fail(theirs, Cause.CRASH, "")]) or ""
    legend = picture.partition("<g transform")[0]
    assert "tilesmith</text>" in legend
    assert "triton" not in legend
    assert "triton: crash" in picture


def test_bars_say_what_they_are():
    assert "<title>tilesmith: 1.20x" in (draw_geomeans([make_row()]) or "")


def test_nothing_to_draw_is_no_picture():
    rows = [fail(make_row(), Cause.CRASH, "")]
    assert draw_geomeans(rows) is None
    assert draw_inputs("gemm", rows) is None
    assert draw_roofline(rows, None) is None
    assert draw_bandwidth(rows, None) is None


def test_disturbed_numbers_are_not_drawn():
    rows = [disturbed_row(is_disturbed=True)]
    assert draw_geomeans(rows) is None
    assert draw_inputs("gemm", rows) is None
    assert draw_roofline(rows, None) is None
    assert draw_inputs("gemm", [*rows, make_row(input_label="8")]) is not None


def test_rows_are_on_one_of_the_rooflines():
    products, norm = [make_row()], [make_row(tflops=None)]
    assert draw_roofline(products, None) is not None
    assert draw_bandwidth(products, None) is None
    assert draw_roofline(norm, None) is None
    assert draw_bandwidth(norm, find_limits(ENVIRONMENT, norm)) is not None


def test_intensity_is_work_over_bytes():
    # 2 x 1024^3 operations on three matrices of 16-bit numbers.
    flops, moved, ms = 2 * 1024**3, 3 * 2 * 1024**2, 0.01
    row = make_row(latency_ms=ms, tflops=flops / ms / 1e9, gbps=moved / ms / 1e6)
    assert intensity_of(row) == pytest.approx(flops / moved)
    assert intensity_of(make_row(gbps=None)) is None


def test_limits_are_those_of_the_device_model():
    limits = find_limits(ENVIRONMENT, [make_row(), make_row(dtype="float32")])
    device = device_of(parse_target("cuda:90"))
    assert limits is not None
    assert limits.device == "NVIDIA H200"
    assert limits.dram_gbps == device.dram_rate
    assert limits.tflops == {"16-bit": 770.0, "fp32": 54.0, "tf32": 395.0}


def test_models_of_one_architecture_are_told_apart():
    h100 = find_limits({"target": "cuda:90", "device": "NVIDIA H100 80GB HBM3"}, [])
    h200 = find_limits({"target": "cuda:90", "device": "NVIDIA H200"}, [])
    assert h100 is not None
    assert h200 is not None
    assert h100.dram_gbps < h200.dram_gbps


def test_limits_of_a_cpu_depend_on_cores_and_tiles():
    plain = {"target": "cpu:avx512", "cores": "2"}
    rows = [make_row(), make_row(dtype="float32")]
    few, many = find_limits(plain, rows), find_limits({**plain, "cores": "4"}, rows)
    tiles = find_limits({**plain, "matrix tiles": "amx-bf16"}, rows)
    assert few is not None
    assert many is not None
    assert tiles is not None
    assert many.dram_gbps == 2 * few.dram_gbps
    assert tiles.tflops["16-bit"] > max(few.tflops.values())


@pytest.mark.parametrize("environment", [{}, {"target": "toaster"}])
def test_an_unknown_device_has_no_limits(environment):
    assert find_limits(environment, [make_row()]) is None


@pytest.mark.parametrize("ends", [(0.9, 1.35), (0.001, 2000.0), (0.97, 1.03), (0.5, 1.1), (1, 9)])
def test_marks_are_few_and_include_one(ends):
    marks = marks_between(*ends)
    assert 1.0 in marks
    assert 3 <= len(marks) <= 9
    assert min(marks) >= ends[0]
    assert max(marks) <= ends[1]


def test_implementations_keep_their_colour():
    theirs = make_row(implementation="triton", owner=Owner.THEIRS)
    rows = [make_row(implementation="eager", owner=Owner.THEIRS), theirs, make_row()]
    styles = styles_of(rows)
    assert (styles["tilesmith"], styles["triton"], styles["eager"]) == (
        *("series0", "series1"),
        "plain",
    )
