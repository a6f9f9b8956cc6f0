"""What names stand for in device code: helpers, ``math`` and builtins that know device values."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch

import tilesmith.language as hl
from tests.frontend.traced import lines_of, trace_of
from tilesmith import exc
from tilesmith.frontend.device_forms import DeviceForms
from tilesmith.frontend.device_loops import RUNTIME_FUNCTIONS

LIMIT = 3


def smaller(value: Any) -> Any:
    return min(value, LIMIT)


def twice(value: Any) -> Any:
    return smaller(smaller(value))


def test_helpers_run_over_device_forms_of_what_they_name() -> None:
    forms = DeviceForms(RUNTIME_FUNCTIONS)
    made = forms.of(twice)
    assert made.__code__ is twice.__code__
    assert made.__globals__["smaller"] is forms.of(smaller)
    assert made.__globals__["__builtins__"]["min"] is not min
    assert made(7) == 3
    assert forms.of(made) is made


def factorial(n: int) -> int:
    return 1 if n < 2 else n * factorial(n - 1)


def test_a_recursive_helper_has_one_form() -> None:
    made = DeviceForms(RUNTIME_FUNCTIONS).of(factorial)
    assert made.__globals__["factorial"] is made
    assert made(5) == 120


def test_partials_methods_and_short_lists_are_seen_through() -> None:
    forms = DeviceForms(RUNTIME_FUNCTIONS)
    assert forms.of(functools.partial(smaller, 9))() == 3
    assert forms.of([smaller, 1])[0] is forms.of(smaller)
    numbers = [1, 2]
    assert forms.of(numbers) is numbers
    long = [smaller] * 65
    assert forms.of(long) is long


def test_math_of_plain_numbers_is_python_s() -> None:
    form = DeviceForms(RUNTIME_FUNCTIONS).of(math)
    assert form.sqrt(4.0) == 2.0
    assert form.pi == math.pi


def uses_math(x, n):
    for t in hl.tile(x.size(0)):
        x[t] = math.sqrt(n) + max(n, 2) + float(n)


def test_math_and_builtins_of_runtime_numbers_are_computed_on_the_device() -> None:
    text = "\n".join(lines_of(uses_math, torch.zeros(4), 5.0))
    for function in ("sqrt", "maximum", "add"):
        assert f'fn="{function}"' in text


def zips(x, ys):
    for t in hl.tile(x.size(0)):
        for _, scale in zip(ys, [1.0, 2.0]):
            x[t] = scale


def test_zip_wants_sequences_of_one_length() -> None:
    with pytest.raises(exc.InvalidArgumentValue, match="2 and 3 items"):
        trace_of(zips, torch.zeros(4), [1, 2, 3])
