"""Whole calls in native code: what is made, handed to machine code and returned."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tilesmith.runtime.calls.reader import process_readers
from tilesmith.settings import Settings

READER = process_readers().get(Path(Settings().cache_dir))
pytestmark = pytest.mark.skipif(READER is None, reason=process_readers().obstacle)
ADDRESS, INTEGER, FLOAT = range(3)
_CODE = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint64), ctypes.c_int64)


class Code:
    """In the place of machine code: notes the words that it is given."""

    def __init__(self, num_words: int) -> None:
        self.calls: list[tuple[list[int], int]] = []
        self._function = _CODE(lambda words, threads: self._note(words, num_words, threads))
        self.address = ctypes.cast(self._function, ctypes.c_void_p).value

    def _note(self, words: Any, num_words: int, threads: int) -> None:
        self.calls.append((words[:num_words], threads))


def make_call(code: Code, num_leaves: int, slots: Sequence[tuple[int, int]], **given: Any) -> Any:
    assert READER is not None
    usual: dict[str, Any] = {
        "owner": 0,
        "makers": (), "constants": (), "watched": (), "results": (), "is_tuple": False,
        "after": None, "count_threads": lambda: 1, "otherwise": lambda *args: "otherwise",
    }  # fmt: skip
    return READER.FixedCall(
        address=code.address, num_leaves=num_leaves, slots=tuple(slots), kept=code,
        **(usual | given),
    )  # fmt: skip


def bits(number: float) -> int:
    return int.from_bytes(ctypes.c_double(number), "little")


def test_words_are_addresses_and_numbers_in_the_order_of_slots():
    code = Code(5)
    slots = [(FLOAT, 1), (ADDRESS, 0), (INTEGER, 2), (INTEGER, 3), (FLOAT, 4)]
    call = make_call(code, 3, slots, constants=(-7, 0.25), count_threads=lambda: 3)
    x = torch.zeros(4)
    assert call(x[1:], -2.5, 2**40) is None
    assert call(x, 3, True) is None
    start = x.data_ptr()
    first = [bits(-2.5), start + 4, 2**40, 2**64 - 7, bits(0.25)]
    assert code.calls == [(first, 3), ([bits(3.0), start, 1, 2**64 - 7, bits(0.25)], 3)]


def test_tensors_are_made_anew_in_each_call():
    code = Code(2)
    maker = (torch.zeros, ((3,), torch.float64, torch.device("cpu")), ("dtype", "device"))
    call = make_call(
        code, 1, [(ADDRESS, 1), (ADDRESS, 2)],
        makers=(maker, (torch.empty, (2, 5), ())), results=(2, 1, 0), is_tuple=True,
    )  # fmt: skip
    kept = [call("x") for _ in range(3)]
    for (made, zeros, given), (words, _) in zip(kept, code.calls):
        assert words == [zeros.data_ptr(), made.data_ptr()]
        assert zeros.dtype is torch.float64
        assert zeros.tolist() == [0, 0, 0]
        assert made.shape == (2, 5)
        assert given == "x"
    assert len({result[1].data_ptr() for result in kept}) == 3


def test_results_alone_or_in_a_tuple_or_of_a_function():
    code, x = Code(0), torch.zeros(2)
    assert make_call(code, 1, [], results=(0,))(x) is x
    assert make_call(code, 1, [], results=(0,), is_tuple=True)(x) == (x,)
    assert make_call(code, 1, [], is_tuple=True)(x) == ()
    assert make_call(code, 1, [])(x) is None
    after = make_call(code, 1, [], results=(1, 0), constants=(5,), after=lambda a, b: [a, b])
    assert after(x) == [5, x]
    assert len(code.calls) == 5


def test_exceptions_of_what_comes_after_pass():
    def fail(x: Any) -> None:
        raise KeyError(x)

    code = Code(0)
    call = make_call(code, 1, [], results=(0,), after=fail)
    with pytest.raises(KeyError, match="17"):
        call(17)
    assert len(code.calls) == 1, "it ran, and not once more"


def negated() -> torch.Tensor:
    return torch.zeros(3, dtype=torch.complex64).conj().imag


@pytest.mark.parametrize(
    "args",
    [
        (torch.zeros(2), 2**63),
        (torch.zeros(2), 1.5),
        (torch.zeros(2, device="meta"), 1),
        (negated(), 1),
        ("text", 1),
        (torch.zeros(2),),
        (torch.zeros(2), 1, 2),
        ([torch.zeros(2)], 1),
    ],
    ids=str,
)
def test_what_it_cannot_run_goes_the_other_way(args: tuple[Any, ...]):
    code = Code(2)
    call = make_call(
        code, 2, [(ADDRESS, 0), (INTEGER, 1)], otherwise=lambda *given: ("other", given)
    )
    result: Any = call(*args)
    assert result[0] == "other"
    assert all(one is other for one, other in zip(result[1], args))
    assert code.calls == []
    assert call(torch.zeros(0), 1) is None, "no element, no memory"


def test_what_makers_raise_is_left_to_the_other_way():
    code = Code(0)
    maker = (torch.empty, ((-3,),), ())
    assert make_call(code, 0, [], makers=(maker,))() == "otherwise"
    assert code.calls == []


def test_an_interrupt_ends_the_call():
    def interrupt() -> None:
        raise KeyboardInterrupt

    code = Code(0)
    with pytest.raises(KeyboardInterrupt):
        make_call(code, 0, [], makers=((interrupt, (), ()),))()
    assert code.calls == []


def test_what_was_read_of_other_arguments_is_not_used():
    assert READER is not None
    code, x, y = Code(1), torch.zeros(2), torch.ones(2)
    found = SimpleNamespace()
    call = make_call(code, 1, [(ADDRESS, 0)], results=(0,), owner=id(found))
    forms: Any = READER.Forms(lambda *args: None, True, 0, 0, 0)
    forms.add((x,), (), found, True)
    found.call = lambda given: (call(y), call(given))
    first, second = forms.run(x)
    assert first is y
    assert second is x
    found.call = call
    assert forms.run(x) is x
    words = [tensor.data_ptr() for tensor in (y, x, x)]
    assert code.calls == [([word], 1) for word in words]


def test_names_and_functions_that_are_watched():
    def helper() -> int:
        return 1

    def other() -> int:
        return 2

    scope: dict[str, Any] = {"n": 1000, "f": helper}
    watched = ((scope, "n", scope["n"], None), (scope, "f", helper, helper.__code__))
    code = Code(0)
    call = make_call(code, 0, [], watched=watched)
    assert call() is None
    for name, value in (("n", int("1001")), ("f", other)):
        kept, scope[name] = scope[name], value
        assert call() == "otherwise"
        scope[name] = kept
        assert call() is None
    del scope["n"]
    assert call() == "otherwise"
    scope["n"] = watched[0][2]
    helper.__code__ = other.__code__
    assert call() == "otherwise"


def test_leaves_of_containers_and_closures_have_numbers():
    x, y, z = torch.zeros(1), torch.zeros(2), torch.zeros(3)

    def holding() -> torch.Tensor:
        return z

    code = Code(3)
    # The tuple, x, y, the list, y; the function, z.
    call = make_call(code, 7, [(ADDRESS, 1), (ADDRESS, 4), (ADDRESS, 6)])
    call((x, y), [y], holding)
    assert code.calls == [([x.data_ptr(), y.data_ptr(), z.data_ptr()], 1)]


def test_it_may_be_let_go_of_while_it_runs():
    code = Code(0)
    held: list[Any] = []
    held.append(make_call(code, 0, [], after=lambda: held.clear() or "done"))
    assert held[0]() == "done"
    assert held == []


class Marked:
    def __call__(self, *args: Any) -> Any:
        return self


def test_cycles_through_it_are_collected():
    marked: Any = Marked()
    marked.call = make_call(Code(0), 0, [], otherwise=marked)
    watched = weakref.ref(marked)
    del marked
    gc.collect()
    assert watched() is None


WRONG: dict[str, dict[str, Any]] = {
    "slots": {"slots": ((ADDRESS, 2),)},
    "kinds": {"slots": ((3, 0),)},
    "results": {"results": (-1,)},
    "makers": {"makers": ((torch.empty, (), ("size",)),)},
    "watched": {"watched": (({}, "f", 1, (lambda: 0).__code__),)},
    "leaves": {"num_leaves": 1000},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_numbers_of_values_that_there_are_not(wrong: str):
    code = Code(1)
    given = {"num_leaves": 1, "slots": ((ADDRESS, 0),)} | WRONG[wrong]
    make: Callable[..., Any] = make_call
    with pytest.raises((IndexError, ValueError, TypeError)):
        make(code, **given)


def test_tensors_are_made_by_the_example_of_an_argument():
    code = Code(2)
    maker = (torch.empty_like, (), (), 1)
    call = make_call(code, 2, [(ADDRESS, 1), (ADDRESS, 2)], makers=(maker,), results=(2,))
    for x in (torch.randn(3, 4).t(), torch.zeros(0, 2, dtype=torch.int8)):
        made = call(None, x)
        assert (made.shape, made.stride(), made.dtype) == (x.shape, x.stride(), x.dtype)
        assert code.calls[-1][0] == [x.data_ptr(), made.data_ptr()]
    for number in (2, 3):
        with pytest.raises(IndexError, match="leaf"):
            make_call(code, 2, [], makers=((torch.empty_like, (), (), number),))
