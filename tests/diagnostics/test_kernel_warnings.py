"""Warnings are printed once for each place, unless their class is ignored."""

from __future__ import annotations

import io
import sys

import pytest

from tilesmith import exc
from tilesmith.diagnostics.kernel_warnings import WarningLog, find_warnings
from tilesmith.diagnostics.location import UNKNOWN, SourceLocation

HERE = SourceLocation("kernel.py", 3, "add")
THERE = SourceLocation("kernel.py", 4, "add")


def printed(log: WarningLog, *places: SourceLocation, operation: str = "torch.add") -> int:
    stream = io.StringIO()
    log._stream = stream
    for loc in places:
        log.warn(exc.TensorOperationInWrapper, loc=loc, operation=operation)
    return stream.getvalue().count("WARNING[TensorOperationInWrapper]: ")


def test_a_warning_is_printed_once_for_each_place():
    assert printed(WarningLog(), HERE, HERE, THERE) == 2


def test_logs_do_not_share_what_they_printed():
    assert printed(WarningLog(), HERE) == printed(WarningLog(), HERE) == 1


def test_warnings_without_a_place_are_told_apart_by_their_details():
    log = WarningLog()
    assert printed(log, UNKNOWN, UNKNOWN, operation="a") == 1
    assert printed(log, UNKNOWN, operation="b") == 1


def test_two_classes_at_one_place_are_both_printed():
    stream = io.StringIO()
    log = WarningLog(stream=stream)
    log.warn(exc.TensorOperationInWrapper, loc=HERE, operation="a")
    log.warn(exc.TensorOperationsInHostCall, loc=HERE, operation="a")
    assert stream.getvalue().count("WARNING[") == 2


@pytest.mark.parametrize("ignored", [exc.TensorOperationInWrapper, exc.BaseWarning])
def test_an_ignored_class_is_silent_with_its_subclasses(ignored):
    stream = io.StringIO()
    log = WarningLog((ignored,), stream)
    log.warn(exc.TensorOperationsInHostCall, loc=HERE, operation="a")
    assert stream.getvalue() == ""


def test_ignoring_a_subclass_leaves_its_parent():
    assert printed(WarningLog((exc.TensorOperationsInHostCall,)), HERE) == 1


def test_warnings_go_to_the_stderr_of_the_moment(capsys):
    WarningLog().warn(exc.BlockPtrIndexingUnavailable, loc=HERE)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("WARNING[BlockPtrIndexingUnavailable]: ")
    assert "kernel.py:3" in err


def test_a_stderr_that_takes_nothing_stops_no_kernel(monkeypatch):
    closed = io.StringIO()
    closed.close()
    for stream in (closed, None):
        monkeypatch.setattr(sys, "stderr", stream)
        WarningLog().warn(exc.BlockPtrIndexingUnavailable, loc=HERE)


def test_names_and_classes_are_found():
    assert find_warnings(["WrongDevice", exc.WrongDevice]) == (exc.WrongDevice, exc.WrongDevice)


@pytest.mark.parametrize(
    ("item", "hint"),
    [
        ("WrongDevise", "did you mean WrongDevice?"),
        ("Nonsense", "known: "),
        (exc.ShapeMismatch, "not a warning"),
        (UserWarning, "not a warning"),
    ],
)
def test_what_is_no_warning_is_refused_with_a_hint(item, hint):
    with pytest.raises(ValueError, match="ignore_warnings") as caught:
        find_warnings([item])
    assert hint in str(caught.value)
