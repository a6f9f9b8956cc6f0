"""Every class of the catalogue renders, from its documented details, to a text worth reading."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import tilesmith.exc
from tests.diagnostics.catalogue_samples import ALL_ERRORS, SAMPLES, SAMPLES_BY_NAME
from tilesmith.diagnostics.catalogue import (
    PARTS,
    Base,
    BaseError,
    BaseWarning,
    InternalError,
    placeholders,
)
from tilesmith.diagnostics.kernel_warnings import ALL_WARNINGS
from tilesmith.diagnostics.location import UNKNOWN, SourceLocation

DIAGNOSTICS = Path(tilesmith.exc.__file__).parent / "diagnostics"
EVERY_CLASS = pytest.mark.parametrize("cls", SAMPLES, ids=lambda cls: cls.__name__)


def templates(cls: type[Base]) -> list[str]:
    return [cls.message, *(getattr(cls, part) for part in PARTS)]


def sample(cls: type[Any]) -> Any:
    details: dict[str, Any] = SAMPLES[cls]
    return cls(**details)


@pytest.mark.parametrize("topic", ["errors", "warnings"])
def test_texts_are_as_recorded(topic, golden):
    listed = ALL_ERRORS if topic == "errors" else ALL_WARNINGS
    order = list(SAMPLES_BY_NAME)
    ordered = sorted(listed, key=lambda cls: order.index(cls.__name__))
    golden("\n\n".join(sample(cls).report() for cls in ordered) + "\n")


def test_the_lists_hold_every_class_defined():
    defined = {
        name
        for file in DIAGNOSTICS.rglob("*.py")
        if file.name != "logs.py"
        for name in re.findall(r"^class (\w+)\((?!NamedTuple)", file.read_text(), re.MULTILINE)
    }
    roots = {"Base", "BaseError", "BaseWarning", "WrappingError"}
    listed = {cls.__name__ for cls in (*ALL_ERRORS, *ALL_WARNINGS)}
    assert listed == defined - roots
    assert set(tilesmith.exc.__all__) == defined


def test_every_class_has_samples_and_no_sample_is_left_over():
    assert SAMPLES_BY_NAME.keys() == {cls.__name__ for cls in SAMPLES}


def test_exported_names_are_sorted_and_resolve():
    assert tilesmith.exc.__all__ == sorted(tilesmith.exc.__all__)
    assert all(issubclass(getattr(tilesmith.exc, name), Base) for name in tilesmith.exc.__all__)


@EVERY_CLASS
def test_a_class_that_says_no_more_is_documented_by_its_message(cls):
    assert cls.__doc__
    source = (DIAGNOSTICS / "statement_errors.py").read_text()
    if f"class {cls.__name__}(BaseError):\n    message" in source:
        assert cls.__doc__ == cls.message


@EVERY_CLASS
def test_the_samples_fill_every_placeholder(cls):
    asked = {name for template in templates(cls) for name in placeholders(template)}
    # `problem` may be given to a class whose own text does not need it: its parent wraps.
    assert asked <= SAMPLES[cls].keys()
    inherited = {name for parent in cls.__mro__ for name in _placeholders_of(parent)}
    assert SAMPLES[cls].keys() <= inherited | set(PARTS)


def _placeholders_of(cls: type) -> set[str]:
    if not issubclass(cls, Base):
        return set()
    return {name for template in templates(cls) for name in placeholders(template)}


@EVERY_CLASS
def test_all_details_missing_still_renders(cls):
    text = str(cls())
    assert text
    assert all(f"<{name}>" in text for name in placeholders(cls.message))


@EVERY_CLASS
def test_the_message_is_one_line_without_a_full_stop(cls):
    # The rest of the layout hangs under the first line.
    assert "\n" not in cls.message
    assert not cls.message.endswith(".")


@EVERY_CLASS
def test_every_error_says_what_to_expect_or_to_do(cls):
    wraps_a_free_text = placeholders(cls.message)[-1:] == ("problem",)
    has_advice = any(getattr(cls, part) for part in PARTS)
    if issubclass(cls, BaseWarning) or wraps_a_free_text:
        return
    assert has_advice or cls.__name__ in RAISE_SITE_KNOWS_BEST


RAISE_SITE_KNOWS_BEST = {
    "BackendUnsupported",
    "ErrorCompilingKernel",
    "FailedToUnpackTupleAssign",
    "NoConfigFound",
    "NonTensorSubscriptAssign",
    "ReductionOnNonTile",
    "SpecializeArgType",
    "TracedArgNotSupported",
    "UnsupportedTorchArgument",
}


@EVERY_CLASS
def test_errors_survive_pickling_and_copying(cls):
    place = SourceLocation("kernel.py", 3, "add", span=(4, 9))
    error = cls(loc=place, related={"first": place}, **SAMPLES[cls])
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is cls
        assert str(twin) == str(error)
        assert twin.loc == place


@EVERY_CLASS
def test_tracebacks_show_the_public_module(cls):
    assert cls.__module__ == "tilesmith.exc"


@pytest.mark.parametrize(
    ("name", "parents"),
    [
        ("UnsupportedArgumentType", [TypeError]),
        ("UnsupportedSignature", [TypeError]),
        ("WrongArguments", [TypeError]),
        ("UnsupportedDotDtype", [TypeError]),
        ("InvalidArgumentKind", [TypeError]),
        ("SourceNotAvailable", [OSError]),
        ("NotAKernelFunction", [AssertionError]),
        ("ConflictingArguments", [AssertionError]),
        ("DotShapeMismatch", [ValueError, tilesmith.exc.ShapeMismatch]),
        ("InvalidArgumentValue", [ValueError, tilesmith.exc.InvalidAPIUsage]),
        (
            "UnsupportedTorchFunction",
            [
                NotImplementedError,
                tilesmith.exc.InductorLoweringError,
                tilesmith.exc.BackendUnsupported,
            ],
        ),
        ("AssignmentMultipleTargets", [tilesmith.exc.NotAllowedOnDevice]),
        ("InvalidAssignment", [tilesmith.exc.NotAllowedOnDevice]),
        ("TensorOperationsInHostCall", [tilesmith.exc.TensorOperationInWrapper]),
        ("NumberChangedInControlFlow", [tilesmith.exc.CantCombineTypesInControlFlow]),
        ("MultiElementCondition", [tilesmith.exc.TypeInferenceError]),
        ("RecursiveHelper", [tilesmith.exc.TorchOpTracingError]),
        (
            "TileArithmetic",
            [tilesmith.exc.TorchOpTracingError, tilesmith.exc.IncorrectTileUsage],
        ),
        ("InvalidConfigKeys", [tilesmith.exc.InvalidConfig]),
    ],
)
def test_classes_are_caught_under_the_names_programs_use(name, parents):
    for parent in (*parents, BaseError if name != "TensorOperationsInHostCall" else BaseWarning):
        with pytest.raises(parent):
            raise getattr(tilesmith.exc, name)


def test_every_class_is_a_runtime_error():
    assert all(issubclass(cls, RuntimeError) for cls in SAMPLES)


def test_a_part_that_lacks_a_detail_is_left_out():
    error = tilesmith.exc.UndefinedVariable(name="tile_x")
    assert str(error) == "`tile_x` is not defined"


def test_the_raise_site_may_give_a_part_itself():
    error = tilesmith.exc.StatementNotSupported(statement="match", fix="use {braces} freely")
    assert "= fix: use {braces} freely" in str(error)


def test_known_statements_get_their_own_fix():
    assert "a list or tuple" in str(tilesmith.exc.UnsupportedPythonType(construct="a set"))
    assert "ordinary function" in str(tilesmith.exc.UnsupportedPythonType(construct="print"))


def test_braces_in_details_are_taken_as_they_are():
    assert "{x}" in str(tilesmith.exc.UndefinedVariable(name="{x}"))


def test_located_adds_a_place_only_where_none_is():
    first, second = SourceLocation("a.py", 1), SourceLocation("b.py", 2)
    placed = tilesmith.exc.UndefinedVariable(name="x", loc=UNKNOWN).located(first)
    assert placed.loc == first
    placed = tilesmith.exc.UndefinedVariable(name="x").located(first)
    assert placed.loc == first
    assert "a.py:1" in str(placed)
    assert placed.located(second) is placed


def test_wrapping_names_the_type_and_the_text():
    error = InternalError.wrapping(KeyError("tile_0"))
    assert error.details["problem"] == "KeyError: 'tile_0'"
    assert InternalError.wrapping(StopIteration()).details["problem"] == "StopIteration"


def test_reports_name_the_class():
    assert tilesmith.exc.NamingConflict(name="tl").report().startswith("ERROR[NamingConflict]: ")
    warning = tilesmith.exc.WrongDevice(operation="a", device="b", kernel_device="c")
    assert warning.report().startswith("WARNING[WrongDevice]: ")


def test_no_suggestion_is_no_question():
    assert "did you mean" not in str(
        tilesmith.exc.UnknownLanguageFunction(name="zz", suggestions=[])
    )
    assert "did you mean hl.zeros?" in str(
        tilesmith.exc.UnknownLanguageFunction(name="zero", suggestions=["hl.zeros"])
    )
