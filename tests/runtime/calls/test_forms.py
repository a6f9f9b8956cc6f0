"""Native code recognises the arguments of earlier calls, and only those."""

from __future__ import annotations

import copy
import ctypes
import functools
import gc
import itertools
import sys
import threading
import time
import types
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from tilesmith.ir.types import dynamic_form
from tilesmith.runtime.calls.reader import ArgumentSignatures, process_readers
from tilesmith.settings import Settings

CACHE = Path(Settings().cache_dir)
READER = process_readers().get(CACHE)
pytestmark = pytest.mark.skipif(READER is None, reason=process_readers().obstacle)
LOW, HIGH, MAX_OFFSET = -100, 1000, 5000


def make_forms(otherwise: Any = None, *, are_sizes_fixed: bool = True) -> ArgumentSignatures:
    assert READER is not None
    rules = (are_sizes_fixed, LOW, HIGH, MAX_OFFSET)
    return READER.Forms(otherwise or (lambda *args: None), *rules)


class Result:
    """Something that can be watched."""


def test_results_come_back_for_arguments_like_those_given():
    forms = make_forms()
    results = [Result() for _ in range(5)]
    shapes = [(4, 5), (5, 4), (4, 5, 1), (), (0, 3)]
    for shape, result in zip(shapes, results):
        forms.add((torch.zeros(shape), 1.5), (), result)
    assert len(forms) == 5
    for order in (range(5), range(4, -1, -1), (0, 0, 3, 3, 1, 4)):
        for index in order:
            assert forms(torch.ones(shapes[index]), 2.5) is results[index]
    for other in [(torch.zeros(4, 6), 1.5), (torch.zeros(4, 5), 1), (torch.zeros(4, 5),), ()]:
        assert forms(*other) is None


def test_what_does_not_fit_goes_on_with_all_arguments():
    seen: list[tuple[Any, ...]] = []
    forms = make_forms(lambda *args: seen.append(args) or "elsewhere")
    x = torch.zeros(3)
    assert forms(x, 1, "a") == "elsewhere"
    forms.add((x, 1, "a"), (), "found")
    assert forms(x, 1, "a") == "found"
    assert forms(x, 1, "b") == "elsewhere"
    assert forms(x.double(), 1, "a") == "elsewhere"
    assert [args[1:] for args in seen] == [(1, "a"), (1, "b"), (1, "a")]
    forms.otherwise = lambda *args, **named: (len(args), named)  # pyright: ignore
    assert forms(x) == (1, {})
    assert forms(x, 1, mode="a") == (2, {"mode": "a"})  # pyright: ignore


def test_exceptions_of_the_other_way_pass():
    def fail(*args: Any) -> None:
        raise KeyError(len(args))

    forms = make_forms(fail)
    forms.add((torch.zeros(3),), (), 1)
    with pytest.raises(KeyError, match="2"):
        forms(torch.zeros(3), 2)


@pytest.mark.parametrize("number", [LOW - 1, LOW, 0, 1, HIGH, HIGH + 1, 2**63, -(2**63), 2**200])
def test_integers_count_by_width(number: int):
    forms = make_forms()
    forms.add((number,), (), True)
    for other in (LOW - 1, LOW, 7, HIGH, HIGH + 1, 2**64, -(2**90)):
        is_same = (LOW <= number <= HIGH) is (LOW <= other <= HIGH)
        assert (forms(other) is True) is is_same


def test_runtime_sizes_count_by_what_kernels_depend_on():
    """As in keys: 0 and 1 are told from all others, and offsets have a width."""
    shapes = [(), (0,), (1,), (2,), (9,), (1, 4), (4, 1), (3, 5), (7, 2), (0, 3), (5, 0), (99, 51)]
    tensors = [torch.empty(shape) for shape in shapes]
    tensors += [torch.empty(6, 4).t(), torch.empty(6, 8)[:, ::2], torch.empty(4).expand(3, 4)]
    tensors += [torch.empty(99, 51)[:98], torch.empty(99, 52)[:, 1:], torch.empty(0, 70, 90)]
    for one, other in itertools.product(tensors, tensors):
        forms = make_forms(are_sizes_fixed=False)
        forms.add((one,), (), "same")
        assert (forms(other) == "same") is (form_of(one) == form_of(other))


def form_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    shape, strides, _ = dynamic_form(tensor.shape, tensor.stride())
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()) if n)
    return shape, strides, last > MAX_OFFSET


def test_overlaps_are_seen_whatever_the_size():
    forms = make_forms(are_sizes_fixed=False)
    forms.add((torch.empty(9), torch.empty(9)), (0,), "apart")
    memory = torch.empty(100)
    assert forms(memory[:50], memory[50:]) == "apart"
    assert forms(memory[50:], memory[:50]) == "apart"
    assert forms(memory[:51], memory[50:]) is None
    assert forms(memory[49:], memory[:50]) is None
    assert forms(memory[10:20], memory[12:14]) is None
    assert forms(memory[12:14], memory[10:20]) is None


def test_types_count_exactly():
    values = [torch.zeros(2), torch.nn.Parameter(torch.zeros(2)), 1, 1.0, True, None, "1"]
    values += [torch.float32, torch.device("cpu")]
    for one, other in itertools.product(values, values):
        forms = make_forms()
        forms.add((one,), (), "same")
        assert (forms(other) == "same") is (type(one) is type(other))


def test_every_position_is_looked_at():
    args = (torch.zeros(2), 1, torch.zeros(3), None, "a", torch.zeros(4))
    others = (torch.zeros(2, 1), HIGH + 1, torch.zeros(3).half(), 0, "b", torch.zeros(8)[::2])
    forms = make_forms()
    forms.add(args, (), "found")
    assert forms(*args) == "found"
    for position, other in enumerate(others):
        assert forms(*args[:position], other, *args[position + 1 :]) is None


def test_more_arguments_than_are_looked_at():
    forms = make_forms()
    args = tuple(torch.zeros(2) for _ in range(64))
    forms.add(args, (), "found")
    assert forms(*args) == "found"
    for more in ((*args, args[0]), (list(args) * 4,)):
        with pytest.raises(RuntimeError, match="more arguments"):
            forms.add(more, (), "more")
        assert forms(*more) is None


X = torch.zeros(2)
CONTAINERS: list[Any] = [
    [],
    (),
    {},
    [X],
    (X,),
    {"a": X},
    {"b": X},
    {"a": X, "b": X},
    {"b": X, "a": X},
    [X, X],
    [[X], X],
    [X, [X]],
    [[X, X]],
    [1, X],
    [1.0, X],
    [torch.zeros(3)],
    (0.5, 0.25),
    (1, 2),
    ("a", None),
]


def test_containers_count_by_what_they_hold():
    for one, other in itertools.product(CONTAINERS, CONTAINERS):
        forms = make_forms()
        forms.add((one, 1), (), "same")
        assert (forms(other, 1) == "same") is (one is other)
        assert (forms(copy.copy(other), 2) == "same") is (one is other)


def test_numbers_in_containers_count_like_others():
    forms = make_forms()
    forms.add(((0.5, 1), {"eps": 2.5, "tags": ["a"]}), (), "found")
    assert forms((1.5, HIGH), {"eps": 0.0, "tags": ["a"]}) == "found"
    assert forms((1.5, HIGH + 1), {"eps": 0.0, "tags": ["a"]}) is None
    assert forms((1.5, 1), {"eps": 0.0, "tags": ["b"]}) is None
    assert forms((1.5, 1), {1: 0.0, "tags": ["a"]}) is None


def test_parameters_in_containers_are_tensors():
    """The key of a container does not tell them apart either."""
    forms = make_forms()
    forms.add(([X, X],), (), "found")
    assert forms([torch.nn.Parameter(X), X]) == "found"
    assert forms([torch.zeros(2).as_subclass(Special), X]) is None


class Special(torch.Tensor):
    """Not one that native code reads."""


def test_written_tensors_in_containers_must_not_overlap():
    forms = make_forms()
    memory = torch.empty(8)
    forms.add(([torch.empty(2), torch.empty(2)], {"x": torch.empty(2)}), (0,), "apart")
    first, second, third = memory[:2], memory[2:4], memory[4:6]
    assert forms([first, second], {"x": third}) == "apart"
    assert forms([first, first], {"x": third}) is None
    assert forms([first, second], {"x": second}) is None
    forms.clear()
    forms.add(([torch.empty(2), torch.empty(2)], {"x": torch.empty(2)}), (1,), "apart")
    assert forms([first, first], {"x": third}) == "apart", "only reads"
    assert forms([first, second], {"x": second}) is None


def test_a_list_that_holds_itself():
    forms = make_forms()
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(RuntimeError, match="more arguments"):
        forms.add((endless,), (), 1)
    assert forms(endless) is None


def test_containers_may_change_meanwhile():
    """What a call reads is held, whatever another thread does to the list."""
    forms = make_forms()
    held = [torch.zeros(3)]
    forms.add((held, 1), (), "found")

    def empty_it() -> bool:
        held.clear()
        gc.collect()
        return False

    forms.watches = (empty_it,)
    assert forms(held, 1) is None  # and does not touch what is gone


def double(value: Any) -> Any:
    return value * 2


def test_functions_count_by_their_code():
    forms = make_forms()
    forms.add((double,), (), "found")
    twin = types.FunctionType(double.__code__, double.__globals__)
    assert forms(double) == forms(twin) == "found"
    for other in (
        lambda value: value * 2,
        types.FunctionType(double.__code__, {}),
        types.FunctionType(double.__code__, double.__globals__, "double", (1,)),
        print,
        functools.partial(double),
    ):
        assert forms(other) is None


def test_tensors_that_cannot_be_read():
    forms = make_forms()
    strange = [torch.zeros(3, device="meta"), torch.zeros(3, 3).to_sparse()]
    for tensor in strange:
        with pytest.raises(RuntimeError):
            forms.add((torch.zeros(3), tensor), (), 1)
    assert len(forms) == 0
    forms.add((torch.zeros(3), torch.zeros(3)), (), "found")
    for tensor in strange:
        assert forms(torch.zeros(3), tensor) is None
    assert forms(torch.zeros(3), torch.zeros(3)) == "found"


def test_mistakes_of_the_caller():
    forms = make_forms()
    x = torch.zeros(3)
    for written in ((1,), (-1,), (2**70,)):
        with pytest.raises((IndexError, OverflowError)):
            forms.add((x,), written, 1)
    for given in [((x,), (0,)), ([x], (0,), 1), ((x,), [0], 1), ((x,), ("a",), 1)]:
        with pytest.raises(TypeError):
            forms.add(*given)  # pyright: ignore
    assert len(forms) == 0
    assert READER is not None
    for arguments in [(), (print,), (print, True, 1, 2, "a"), (print, True, 1, 2**70, 1)]:
        with pytest.raises((TypeError, OverflowError)):
            READER.Forms(*arguments)  # pyright: ignore
    with pytest.raises(TypeError, match="no keywords"):
        READER.Forms(otherwise=print, are_sizes_fixed=True, low=0, high=1, max_offset=1)


def test_forms_can_be_forgotten():
    forms = make_forms()
    x = torch.zeros(3)
    for number in range(3):
        forms.add((x, None, "abc"[number]), (), number)
    assert forms(x, None, "c") == 2
    forms.clear()
    assert len(forms) == 0
    assert forms(x, None, "c") is None
    forms.add((x, None, "c"), (), 5)
    assert forms(x, None, "c") == 5


def test_nothing_is_leaked():
    text, result, x = "a text " + str(id(gc)), Result(), torch.zeros(3)
    before = sys.getrefcount(text), sys.getrefcount(result), sys.getrefcount(torch.Tensor)
    forms = make_forms()
    for _ in range(50):
        forms = make_forms()
        forms.add((x, text), (0,), result)
        forms.add((x, text, 1), (0,), result)
        with pytest.raises(IndexError):
            forms.add((x, text), (9,), result)
        with pytest.raises(RuntimeError):
            forms.add((x, text, torch.zeros(2, device="meta")), (), result)
        assert forms(x, text) is result
        assert forms(x, "b") is None
    del forms
    assert (sys.getrefcount(text), sys.getrefcount(result), sys.getrefcount(torch.Tensor)) == before


def test_cycles_are_collected():
    result = Result()
    forms = make_forms([result].append)
    result.forms = forms  # pyright: ignore
    forms.add((torch.zeros(3),), (), result)
    watched = weakref.ref(result)
    del result, forms
    gc.collect()
    assert watched() is None


def test_threads_may_add_forget_and_find():
    forms = make_forms()
    tensors = [torch.zeros(size) for size in range(1, 9)]
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for step in range(2000):
            index = (seed * 3 + step) % len(tensors)
            found = forms(tensors[index], 1.0)
            if found is None:
                forms.add((tensors[index], 1.0), (0,), index)
            elif found != index:
                wrong.append((index, found))
            if step % 97 == seed:
                forms.clear()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class Runs:
    """A result that keeps what it was called with, and reads its tensors at the launch."""

    def __init__(self, change: Any = None) -> None:
        assert READER is not None
        self.layout = READER.Layout(1, ((0, 0, 0),), id(self))
        self.change = change

    def call(self, *args: Any) -> Any:
        if self.change is not None:
            self.change(*args)
        return self.layout.values(args[0])[1], self.layout.values(args[0])[1], args[1:]


def make_running(result: Any, *, is_read_once: bool) -> tuple[ArgumentSignatures, torch.Tensor]:
    forms = make_forms()
    forms.anew = lambda *args: ("anew", *args)
    x = torch.zeros(3)
    forms.add((x, 1), (), result, is_read_once)
    return forms, x


def test_what_is_found_is_run():
    forms, x = make_running(Runs(), is_read_once=False)
    assert forms.run(x, 1) == (x.data_ptr(), x.data_ptr(), (1,))
    assert forms.run(x, 2.5) == ("anew", x, 2.5)
    forms.watches = (lambda: True,)
    assert forms.run(x, 1) == ("anew", x, 1)
    forms.watches = ()
    forms.otherwise = lambda *args: Runs()
    assert forms.run(x, "a") == (x.data_ptr(), x.data_ptr(), ("a",))


def test_calls_with_gradients_have_their_own_way():
    result = Runs()
    forms, x = make_running(result, is_read_once=True)
    x.requires_grad_()
    forms.are_recorded = torch.is_grad_enabled
    result.recorded = None  # pyright: ignore
    assert forms.run(x, 1) == ("anew", x, 1)
    assert forms(x, 1) is None
    result.recorded = lambda *args: ("recorded", *args)  # pyright: ignore
    assert forms.run(x, 1) == ("recorded", x, 1)
    assert forms.run(x, 1.5) == ("anew", x, 1.5)
    assert forms(x, 1) is None, "what it gives is for calls without"
    with torch.no_grad():
        assert forms.run(x, 1)[2] == (1,)
        assert forms(x, 1) is result
    forms.is_observed, forms.observer = lambda: True, lambda call, *args: ("seen", call(*args))
    time.sleep(1e-4)  # nobody was there just now
    assert forms.run(x, 1) == ("seen", ("recorded", x, 1))
    forms.watches = (lambda: True,)
    assert forms.run(x, 1) == ("anew", x, 1)


def test_tensors_in_lists_are_asked_for_gradients():
    forms = make_forms()
    x = torch.zeros(3)
    forms.add(([x], 1), (), "found")
    forms.are_recorded = lambda: True
    assert forms([x], 1) == "found"
    assert forms([x.clone().requires_grad_()], 1) is None


def give_other_memory(tensor: torch.Tensor, *others: Any) -> None:
    tensor.data = torch.ones(3)


@pytest.mark.parametrize("is_read_once", [False, True])
def test_tensors_are_read_again_unless_nothing_can_change_them(is_read_once: bool):
    forms, x = make_running(Runs(give_other_memory), is_read_once=is_read_once)
    kept = x.detach()  # its memory is not given to anybody else
    first, second, _ = forms.run(x, 1)
    assert first == (kept.data_ptr() if is_read_once else x.data_ptr())
    assert second == x.data_ptr() != kept.data_ptr(), "a reading serves one launch"


def test_only_the_launch_of_the_same_kernel_takes_what_was_read():
    assert READER is not None
    other, seen = READER.Layout(1, ((0, 0, 0),), 12345), []

    def change_and_look(tensor: torch.Tensor, *others: Any) -> None:
        give_other_memory(tensor)
        seen.append(other.values(tensor)[1] == tensor.data_ptr())

    result = Runs(change_and_look)
    forms, x = make_running(result, is_read_once=True)
    forms.run(x, 1)
    assert seen == [True]
    give_other_memory(x)
    assert result.layout.values(x)[1] == x.data_ptr(), "the call is over"


def test_nothing_that_was_read_outlives_a_call_that_fails():
    def fail(*args: Any) -> None:
        raise KeyError("no")

    result = Runs(fail)
    forms, x = make_running(result, is_read_once=True)
    with pytest.raises(KeyError):
        forms.run(x, 1)
    give_other_memory(x)
    assert result.layout.values(x)[1] == x.data_ptr()


def test_results_that_cannot_be_run():
    forms, x = make_running(object(), is_read_once=True)
    with pytest.raises(AttributeError):
        forms.run(x, 1)
    with pytest.raises(RuntimeError, match="not recognised"):
        make_forms().run(x)


def test_machine_code_gets_bytes_and_a_number():
    assert READER is not None
    seen: list[Any] = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    code = kind(lambda place, count: seen.append((ctypes.string_at(place, 3), count)))
    function = READER.Function(ctypes.cast(code, ctypes.c_void_p).value or 0)
    assert function(b"abc", 7) is None
    assert seen == [(b"abc", 7)]
    for given in [(), (b"abc",), ("abc", 1), (b"abc", "1"), (b"abc", 2**70)]:
        with pytest.raises((TypeError, OverflowError)):
            function(*given)  # pyright: ignore


def test_exact_forms_stand_beside_others():
    forms = make_forms(are_sizes_fixed=False)
    x, y = torch.zeros(4, 5), torch.zeros(6, 5)
    forms.add((x, 3), (), "exact", False, (0, 1), True)
    for args, found in (((x, 3), "exact"), ((x, 4), None), ((y, 3), None)):
        assert forms(*args) is found
    forms.add((y, 3), (), "any")
    for args, found in (((x, 3), "exact"), ((x, 4), "any"), ((y, 3), "any"), ((y, 7), "any")):
        assert forms(*args) is found
