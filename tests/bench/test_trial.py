"""One implementation inside its process: what is right is timed, what is wrong is said to be."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.bench.tiny_suite import NAME, double_operator, eager_double, suite
from tilesmith.bench import reference, timing, worker
from tilesmith.bench.case import Operator
from tilesmith.bench.implementations import (
    Implementation,
    ImplementationKind,
    is_helion_installed,
    load_function,
    preloaded_for,
)
from tilesmith.bench.job_rows import MakeReference, blank_row
from tilesmith.bench.plan import Options, make_plan
from tilesmith.bench.reference import Reference, with_types, work_out
from tilesmith.bench.row import Cause, Row, Status
from tilesmith.bench.timing import time_in_turns
from tilesmith.bench.trial import Trial
from tilesmith.measure.timer import Timing, Work
from tilesmith.numerics.compare import ErrorReport, measure_by

OPTIONS = Options(suite=NAME, kernels=("double",), device="cpu", tune_budget_s=0.0)
CPU = torch.device("cpu")


def make_trial(
    function: Callable[..., Any] | None = None,
    operator: Operator | None = None,
    *,
    monkeypatch: pytest.MonkeyPatch | None = None,
    has_reference: bool = True,
) -> Trial:
    """A trial of a function, or of eager."""
    operator = operator or double_operator()
    implementation = Implementation("eager", ImplementationKind.EAGER)
    if function is not None and monkeypatch is not None:
        module = ModuleType("module_of_test")
        module.__dict__["function"] = function
        monkeypatch.setitem(sys.modules, module.__name__, module)
        target = f"{module.__name__}:function"
        implementation = Implementation("plugin", ImplementationKind.FUNCTION, target)
    job = replace(make_plan(suite(), OPTIONS)[0], implementation=implementation, input_id=1)
    arguments = operator.inputs[1].make(CPU, torch.float32)
    exact = None
    if has_reference:
        exact = with_types(work_out(operator, arguments), operator, arguments)
    return Trial(job, OPTIONS, operator, arguments, exact, blank_row(job))


def check(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Row:
    return make_trial(function, monkeypatch=monkeypatch).check()


def leaves_out_the_last(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    out[:-1] = x[:-1] * 2
    return out


def changes_its_argument(x: torch.Tensor) -> torch.Tensor:
    out = x * 2
    x[3] = 0.0
    return out


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x * 2.00001, "elements are beyond the budget"),
        (lambda x: x[1:] * 2, "shapes differ"),
        (lambda x: (x * 2).int(), "dtypes differ"),
        (lambda x: (x * 2).sum().item(), "0 tensors returned, expected 1"),
        (lambda x: None, "0 tensors returned"),
        (lambda x: (x * 2).half(), "float16, narrower than eager's torch.float32"),
        (lambda x: (x * 2).to("meta"), "result 0 is on meta, not cpu"),
        (leaves_out_the_last, "beyond the budget"),
        (changes_its_argument, "changed its arguments"),
    ],
)
def test_a_wrong_result_is_one(
    function: Callable[..., Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = check(function, monkeypatch)
    assert (row.status, row.cause) == (Status.FAILED, Cause.WRONG_RESULT)
    assert reason in row.reason
    assert row.latency_ms is None


class WordlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("there are no words")


def test_an_exception_without_words_is_the_implementations(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise WordlessError

    row = check(fails, monkeypatch)
    assert (row.status, row.cause) == (Status.FAILED, Cause.EXCEPTION)
    assert row.reason.startswith("WordlessError\n")


def test_what_moves_a_cursor_is_no_part_of_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("\x1b[31mred\x1b[0m \x00 \x07end")

    row = check(fails, monkeypatch)
    assert row.reason.splitlines()[0].split() == ["ValueError:", "red", "end"]


def test_eager_may_look_at_values_and_then_says_nothing_of_types(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = replace(
        double_operator(), eager=lambda x: x * (2 if bool(x.isfinite().all()) else 0)
    )
    trial = make_trial(lambda x: x * 2, operator, monkeypatch=monkeypatch)
    assert trial.check().status is Status.OK


def test_a_result_that_is_handed_out_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[torch.Tensor] = []

    def remembers(x: torch.Tensor) -> torch.Tensor:
        kept.append(x * 2)
        return kept[0]

    row = check(remembers, monkeypatch)
    assert (row.status, row.cause) == (Status.FAILED, Cause.WRONG_RESULT)
    assert row.reason.startswith("a second call: ")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2, "and more", x),
        lambda x: [x.double().mul(2).float()],
        lambda x: {"out": (x * 2).view(10, 10).t().contiguous().t().reshape(-1)},
        lambda x: torch.add(x, x, out=torch.empty(200)[::2]),
    ],
)
def test_a_right_result_may_come_in_many_forms(
    function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = check(function, monkeypatch)
    assert (row.status, row.error, row.reason) == (Status.OK, 0.0, "")


def test_a_result_that_is_an_argument_is_not_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = replace(double_operator(), eager=lambda x: x)
    trial = make_trial(lambda x: x[:], operator, monkeypatch=monkeypatch)
    assert trial.check().status is Status.OK


def test_eager_is_its_own_baseline() -> None:
    trial = make_trial()
    assert trial.check().status is Status.OK
    row = trial.measure()
    assert row.speedup == 1.0
    assert row.baseline_ms == row.latency_ms


def test_a_baseline_that_raises_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(x: torch.Tensor) -> torch.Tensor:
        raise OSError("no eager form here")

    operator = replace(double_operator(), eager=fail, exact=lambda x: x.double() * 2)
    trial = make_trial(eager_double, operator, monkeypatch=monkeypatch)
    trial.check()
    trial.try_baseline()
    row = trial.measure()
    assert (row.status, row.speedup) == (Status.OK, None)
    assert row.reason == "no speedup: eager raised OSError: no eager form here"


def test_without_a_reference_nothing_is_said_of_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = make_trial(lambda x: x * 3, monkeypatch=monkeypatch, has_reference=False)
    row = trial.check()
    assert (row.status, row.error, row.error_share) == (Status.OK, None, None)


def test_inputs_that_differ_between_processes_are_the_harnesss_failure() -> None:
    operator = double_operator()
    other = operator.inputs[2].make(CPU, torch.float32)
    arguments = operator.inputs[1].make(CPU, torch.float32)
    job, reference = make_plan(suite(), OPTIONS)[0], work_out(operator, other)
    with pytest.raises(ValueError, match="not the same in every process"):
        Trial(job, OPTIONS, operator, arguments, reference, blank_row(job))


def test_a_judge_that_fails_is_not_the_implementations_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("no room for float64")

    trial = make_trial(eager_double, monkeypatch=monkeypatch)
    monkeypatch.setattr(reference, "measure_by", fail)
    row = trial.check()
    assert row.status is Status.HARNESS_FAILED
    assert "no room for float64" in row.reason


def test_a_result_that_cannot_be_judged_on_its_device_is_judged_on_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts: list[int] = []

    def fail_once(*given: Any, **options: Any) -> ErrorReport:
        attempts.append(1)
        if len(attempts) == 1:
            raise torch.OutOfMemoryError("no room for float64")
        return measure_by(*given, **options)

    trial = make_trial(eager_double, monkeypatch=monkeypatch)
    monkeypatch.setattr(reference, "measure_by", fail_once)
    # The second call gives the bits of the first, which are judged.
    assert (trial.check().status, len(attempts)) == (Status.OK, 2)


def test_a_reference_is_read_as_it_was_saved(tmp_path: Path) -> None:
    arguments = double_operator().inputs[1].make(CPU, torch.float32)
    saved = work_out(double_operator(), arguments)
    saved.save(tmp_path / "reference.pt")
    with_types(saved, double_operator(), arguments).save_types(tmp_path / "reference.pt")
    loaded = Reference.load(tmp_path / "reference.pt", CPU, Reference)
    assert (loaded.arguments, loaded.dtypes) == (saved.arguments, [torch.float32])
    assert loaded.results[0].dtype == torch.float64
    assert torch.equal(loaded.results[0], arguments[0].double() * 2)


def test_a_reference_made_faster_than_it_is_read_is_made_again(tmp_path: Path) -> None:
    arguments = double_operator().inputs[1].make(CPU, torch.float32)
    made = work_out(double_operator(), arguments)
    read_in_s = sum(result.nbytes for result in made.results) / reference.READ_BYTES_PER_S
    assert made.is_worth_reading(2 * read_in_s)
    assert not made.is_worth_reading(read_in_s / 2)
    path = tmp_path / "reference.pt"
    made.save(path, with_results=False)
    again = Reference([made.results[0] + 1], [0])
    loaded = Reference.load(path, CPU, lambda: again)
    assert (loaded.results, loaded.arguments) == (again.results, made.arguments)


def test_workers_make_a_quick_reference_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_plan(suite(), OPTIONS)[0]
    monkeypatch.setattr(reference, "READ_BYTES_PER_S", 1e-9)
    for can_make_again, is_kept in ((True, False), (False, True)):
        path = tmp_path / f"{can_make_again}.pt"
        worker.answer(MakeReference(job, path, can_make_again))
        assert (torch.load(path)["made"] is not None) is is_kept
        arguments = reference.make_arguments(double_operator(), job)
        found = worker.find_reference(path, CPU, double_operator(), arguments)
        assert found is not None
        assert torch.equal(found.results[0], arguments[0].double() * 2)


@pytest.mark.parametrize("kind", ImplementationKind)
def test_processes_that_compile_have_the_compiler_imported(kind: ImplementationKind) -> None:
    is_compiled = kind in (ImplementationKind.COMPILED, ImplementationKind.COMPILED_MAX)
    assert preloaded_for(Implementation("some", kind)) == (
        ("tilesmith.bench.implementations:import_compiler",) if is_compiled else ()
    )


@pytest.fixture
def helion_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of that name is loaded before or after, our own names under it included."""
    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if isinstance(f, type)])
    for name in _loaded_helion():
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in _loaded_helion():
        del sys.modules[name]


def _loaded_helion() -> list[str]:
    return [name for name in sys.modules if "helion" in name.partition(".")[0]]


@pytest.mark.usefixtures("helion_alone")
def test_helion_gets_the_source_of_our_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "helion"
    package.mkdir()
    (package / "__init__.py").write_text("from tilesmith import kernel\nIS_THE_OTHER = True\n")
    (package / "language.py").write_text("from tilesmith.language import tile\n")
    monkeypatch.syspath_prepend(tmp_path)
    implementation = Implementation("helion", ImplementationKind.HELION, f"{NAME}:double")
    function: Any = load_function(implementation, double_operator())
    assert function.fn.__globals__["helion"].IS_THE_OTHER
    assert function.fn.__globals__["hl"].__name__ == "helion.language"
    x = torch.arange(5.0)
    assert torch.equal(function(x), x * 2)
    assert is_helion_installed()


class FakeDevice:
    """Stands in for a GPU: captures what may be captured, times by counting."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refuse: Work | None = None) -> None:
        self.timed: dict[str, Work] = {}
        self.is_warm = False
        self._refuse = refuse
        monkeypatch.setattr(timing, "capture_graph", self.capture)
        monkeypatch.setattr(timing, "time_on_device", self.time)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def capture(self, work: Work) -> Work:
        if work is self._refuse:
            raise RuntimeError("operation not permitted when stream is capturing")
        return partial(work)

    def time(self, works: dict[str, Work], **options: Any) -> dict[str, Timing]:
        self.timed = works
        self.is_warm = options["conditions"].is_warm
        times = {"work": (1.0, 2.0, 3.0), "again": (2.0, 3.0, 4.0), "baseline": (4.0, 5.0, 6.0)}
        return {name: Timing(times[name]) for name in works}


def work() -> int:
    return 1


def baseline() -> int:
    return 2


GPU = ("cuda", Options())


def test_graphs_of_all_are_timed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(monkeypatch)
    timed = time_in_turns(work, baseline, lambda graph: graph() == 1, *GPU)
    assert list(device.timed) == ["work", "again", "baseline"]
    assert all(entry not in (work, baseline) for entry in device.timed.values())
    assert (timed.timer, timed.notes) == ("graph, cold", [])
    fields = timed.fields()
    assert fields["latency_ms"] == 2.5
    assert fields["noise_floor"] == pytest.approx(1 / 2.5)
    assert fields["spread"] == pytest.approx((3.0 - 2.0) / 2 / 2.5)
    assert fields["speedup"] == pytest.approx(2.0)
    assert fields["samples"] == 6


@pytest.mark.parametrize("refuse", [work, baseline])
def test_what_cannot_be_captured_is_timed_by_events(
    refuse: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeDevice(monkeypatch, refuse)
    timed = time_in_turns(work, baseline, lambda graph: True, *GPU)
    assert timed.timer == ("events, cold" if refuse is work else "graph, cold")
    assert (device.timed["work"] is work) == (refuse is work)
    assert (device.timed["again"] is work) == (refuse is work)
    assert (device.timed["baseline"] is baseline) == (refuse is baseline)
    assert len(timed.notes) == 1


def test_a_graph_with_other_results_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(monkeypatch)
    timed = time_in_turns(work, None, lambda graph: False, *GPU)
    assert device.timed["work"] is work
    assert timed.timer == "events, cold"
    assert timed.notes == ["its graph gives other results than its calls"]
    assert "speedup" not in timed.fields()


def test_graphs_and_cold_caches_can_be_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(monkeypatch)
    plain = ("cuda", Options(regime="warm", use_graph=False))
    timed = time_in_turns(work, baseline, lambda graph: True, *plain)
    assert device.timed["baseline"] is baseline
    assert device.is_warm
    assert timed.timer == "events, warm"
