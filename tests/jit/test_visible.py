"""What profilers, prompts and notebooks see of kernels."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.profiler import ProfilerActivity, profile, record_function

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.jit import definition
from tilesmith.runtime.calls.reader import process_readers
from tilesmith.settings import Settings
from tilesmith.store.lookup import make_key
from tilesmith.store.winners import Winners


@helion.kernel
def scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * factor
    return out


@helion.kernel
def row_total(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(x.size(0))
    for rows, columns in hl.tile(x.size()):
        hl.atomic_add(out, [rows], x[rows, columns].sum(-1))
    return out


@pytest.fixture(params=["native", "python"])
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without a native reader of tensors."""
    if request.param == "python":
        store = SimpleNamespace(get=lambda cache_dir: None)
        monkeypatch.setattr(definition, "process_readers", lambda: store)
    elif process_readers().get(Path(Settings().cache_dir)) is None:
        pytest.skip(process_readers().obstacle)
    scale.reset()


def ranges(run: Callable[[], Any]) -> Counter[str]:
    """How often each of our ranges is in a trace of a run."""
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        run()
    events = trace.events()
    assert events is not None
    return Counter(event.name for event in events if "tilesmith" in event.name)


@pytest.mark.usefixtures("calls")
def test_profilers_see_every_call_once():
    x = torch.randn(64)
    assert ranges(lambda: scale(x)) == {"tilesmith::scale": 1}, "the first call"
    assert ranges(lambda: [scale(x) for _ in range(3)]) == {"tilesmith::scale": 3}
    assert ranges(lambda: scale(x[::2], factor=3.0)) == {"tilesmith::scale": 1}, "another form"
    assert ranges(lambda: scale.bind((x,))(x)) == {"tilesmith::scale": 1}
    assert ranges(lambda: None) == {}


def test_gradients_are_seen_too():
    x = torch.randn(64, requires_grad=True)
    found = ranges(lambda: scale(x).sum().backward())
    assert found == {"tilesmith::scale": 1, "tilesmith::scale_backward": 1}


def test_graphs_have_no_ranges_of_ours():
    """There a call is an operator, which torch itself shows; a range would be a node."""
    x = torch.randn(64)
    scale(x)

    def trace() -> None:
        graph = make_fx(scale)(x, 2.0)
        names = [str(node.target) for node in graph.graph.nodes]
        assert not any("record_function" in name for name in names)

    trace()
    ranges(trace)


def test_ranges_lie_within_those_of_the_user(tmp_path: Path):
    x = torch.randn(64)
    scale(x)

    def run() -> None:
        with record_function("mine"):
            scale(x)

    with profile(activities=[ProfilerActivity.CPU]) as trace:
        run()
    trace.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    found = {event["name"]: event for event in events if "ts" in event and "dur" in event}
    mine, ours = found["mine"], found["tilesmith::scale"]
    assert mine["ts"] <= ours["ts"]
    assert ours["ts"] + ours["dur"] <= mine["ts"] + mine["dur"]


def test_kernels_say_what_they_are():
    kernel = helion.kernel(
        scale.fn, config=helion.Config(block_sizes=[32]), static_shapes=False, cache_dir="elsewhere"
    )
    text = "kernel scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor"
    assert repr(kernel) == f"<{text}, static_shapes=False, Config(block_sizes=[32])>"
    several = [helion.Config(block_sizes=[size]) for size in (8, 16)]
    assert repr(helion.kernel(scale.fn, configs=several)) == f"<{text}, 2 configs>"
    scale.reset()
    scale(torch.randn(3))
    assert repr(scale) == f"<{text}, bound 1 time>"


def test_bound_kernels_say_how_they_run():
    x = torch.randn(60, 70)
    kernel = helion.kernel(row_total.fn, config=helion.Config(block_sizes=[4, 16]))
    bound = kernel.bind((x,))
    start = f"<bound kernel row_total(x: float32[60, 70]) on {bound.target}"
    assert repr(bound) == f"{start}, not called yet>"
    kernel(x)
    assert repr(bound).startswith(f"{start}, Config(block_sizes=[4, 16]")
    assert "(given), may differ from run to run: floats are added to `out`" in repr(bound)
    bound.set_config(helion.Config(block_sizes=[4, 128]))
    assert repr(bound).endswith("(searched or set), the same bits in every run>")
    assert bound.determinism == "the same bits in every run"
    interpreted = helion.kernel(row_total.fn, backend="reference")
    interpreted(x)
    assert repr(interpreted.bind((x,))).endswith("(interpreted), the same bits in every run>")


class _Table(HTMLParser):
    """Rows of a table; every element must be closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: dict[str, str] = {}
        self._open: list[str] = []
        self._cells: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._open.append(tag)
        if tag in ("th", "td", "pre"):
            self._cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "tr":
            self.rows[self._cells[-2]] = self._cells[-1]

    def handle_data(self, data: str) -> None:
        if self._cells:
            self._cells[-1] += data

    @property
    def code(self) -> str:
        return self._cells[-1]


def test_notebooks_show_a_kernel_and_its_source():
    kernel = helion.kernel(scale.fn, ignore_warnings=["WrongDevice"])
    table = _Table(kernel._repr_html_())
    assert table.rows["settings"] == "ignore_warnings=('WrongDevice',)"
    assert re.fullmatch(r"test_visible\.py:\d+", table.rows["where"])
    assert "out[tile] = x[tile] * factor" in table.code
    kernel(torch.randn(3))
    assert "scale(x: float32[3], factor: 2.0)" in _Table(kernel._repr_html_()).rows["bound"]


def test_notebooks_show_how_a_bound_kernel_runs(tmp_path: Path):
    x = torch.randn(50, 60)
    kernel = helion.kernel(row_total.fn, cache_dir=str(tmp_path))
    bound = kernel.bind((x,))
    table = _Table(bound._repr_html_())
    assert table.rows["time"].endswith("ms, predicted")
    assert "out" in table.code
    config = bound.config_spec.normalize(helion.Config(block_sizes=[4, 64]))
    Winners(tmp_path).commit(make_key(bound, (x,)), config, median_ms=0.25)
    bound.set_config(config)
    table = _Table(bound._repr_html_())
    assert table.rows["time"] == "0.25 ms, measured"
    assert table.rows["config"].endswith("(searched or set)")
    assert table.rows["results"] == "the same bits in every run"


def test_texts_are_escaped():
    @helion.kernel(static_shapes=False)
    def less(x: torch.Tensor, mark: str = "<b>&") -> torch.Tensor:
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = torch.where(x[tile] < 3, x[tile], 0.0)
        return out

    bound = less.bind((torch.randn(4), "<script>"))
    for page in (less._repr_html_(), bound._repr_html_()):
        assert "<b>" not in page
        assert "<script>" not in page
        _Table(page)
    assert html.escape("< 3") in less._repr_html_()


def test_kernels_of_several_launches_say_so():
    @helion.kernel
    def twice(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * 2
        shift = float(2)
        for tile in hl.tile(x.size(0)):
            out[tile] = out[tile] + shift
        return out

    x = torch.randn(5)
    text = repr(twice.bind((x,)))
    assert text.startswith("<bound kernel twice of 2 launches:\n")
    assert text.count("<bound kernel") == 3
