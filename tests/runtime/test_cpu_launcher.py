"""The generated launch function: what native code gets, what it never sees."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch

import tilesmith.exc as errors
from tests.runtime.native.programs import ECHO, TEAM, artifact, scalar, tensor
from tilesmith.runtime.arguments import LaunchOptions
from tilesmith.runtime.calls.reader import process_readers
from tilesmith.runtime.launchers import cpu
from tilesmith.runtime.launchers.cpu import make_caller, native_launcher
from tilesmith.settings import Settings

KEYED = frozenset({"x", "n"})
LARGE = torch.empty(4 << 20, dtype=torch.uint8)
SMALL = torch.empty((4 << 20) - 1, dtype=torch.uint8)


class Recorder:
    """Stands for native code: keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[bytes, int]] = []

    def __call__(self, packed: bytes, num_threads: int) -> None:
        self.calls.append((packed, num_threads))


def record(*parameters, captured: tuple[str, ...], values: tuple, **options) -> bytes:
    """The packed arguments of one call."""
    entry = Recorder()
    written = options.pop("written", ())
    kernel = artifact("k", "", *parameters, written=written)
    make_caller(kernel, entry, captured, (), LaunchOptions(Path(), **options))(*values)
    ((packed, _),) = entry.calls
    return packed


def test_the_native_reader_lays_out_the_same():
    reader = process_readers().get(Path(Settings().cache_dir))
    if reader is None:
        pytest.skip(process_readers().obstacle)
    x, y = torch.zeros(3), torch.zeros(4, 5).t()[1:]
    cases = [
        ((tensor("x"), tensor("y", source="ys[0]"), tensor("x")), ("x", "ys"), (x, [y])),
        ((tensor("x"), scalar("n", "i64")), ("x", "n"), (x, 7)),
        ((tensor("x"), scalar("m", "i64", "x.size(0)")), ("x",), (x,)),
        ((scalar("m", "i64", "y.stride(1)"), tensor("y"), scalar("s", "f32")), ("y", "s"), (y, 2)),
        ((), ("x",), (x,)),
    ]
    for parameters, captured, values in cases:
        expected = record(*parameters, captured=captured, values=values)
        assert record(*parameters, captured=captured, values=values, reader=reader) == expected
        assert len(expected) == 8 * len(parameters)


@pytest.mark.parametrize(
    ("dtype", "value", "layout"),
    [
        ("i32", -7, "=q"),
        ("i64", -(2**63), "=q"),
        ("i64", 2**63 - 1, "=q"),
        ("i64", 0, "=q"),
        ("bool", True, "=q"),
        ("bool", False, "=q"),
        ("f32", 0.1, "=d"),
        ("f64", -1e300, "=d"),
        ("f32", float("inf"), "=d"),
        ("f32", 3, "=d"),
        ("bf16", 1.5, "=d"),
        ("f16", -0.0, "=d"),
    ],
)
def test_scalars_arrive_in_their_slot(dtype: str, value: float, layout: str):
    packed = record(scalar("n", dtype), captured=("n",), values=(value,))
    assert packed == struct.pack(layout, value)


def test_tensors_arrive_as_the_address_of_their_first_element():
    x = torch.arange(24.0).view(4, 6)
    views = {"x": x, "t": x.t(), "s": x[1:, 2:], "e": x[:1].expand(5, 6)}
    packed = record(
        *(tensor(name, "f32") for name in views),
        captured=tuple(views),
        values=tuple(views.values()),
    )
    assert struct.unpack("=4q", packed) == tuple(view.data_ptr() for view in views.values())
    assert views["s"].data_ptr() == x.data_ptr() + 4 * 8


def test_expressions_are_read_at_each_call():
    xs = [torch.zeros(3), torch.ones(2, 5)]
    parameters = (tensor("x", "f32", "xs[1]"), scalar("m", "i64", "xs[1].size(1)"))
    packed = record(*parameters, captured=("xs", "unused"), values=(xs, object()))
    assert struct.unpack("=qq", packed) == (xs[1].data_ptr(), 5)


def test_module_constants_are_reached():
    entry, module = Recorder(), {"SCALE": 3}
    kernel = artifact("k", "", scalar("n", "i64", "__constants__[0]['SCALE']"))
    launch = make_caller(kernel, entry, (), (module,), LaunchOptions(Path()))
    launch()
    module["SCALE"] = 4
    launch()
    assert [struct.unpack("=q", packed)[0] for packed, _ in entry.calls] == [3, 4]


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_integers_beyond_64_bits_are_refused(value: int):
    with pytest.raises(errors.UnsupportedArgumentType, match="`n` is an integer of more than 64"):
        record(scalar("n", "i64"), captured=("n",), values=(value,))


def test_tensors_elsewhere_are_refused():
    with pytest.raises(errors.UnsupportedArgumentType, match="`y` is a tensor on meta"):
        record(tensor("y"), captured=("y",), values=(torch.zeros(2, device="meta"),))


def test_lazily_negated_views_are_refused():
    z = torch.randn(4, dtype=torch.complex64)
    negated, x = (z.conj().imag,), tensor("x", "f32")
    for arguments in (KEYED, frozenset[str]()):
        with pytest.raises(errors.UnsupportedArgumentType, match=r"resolve_neg"):
            record(x, captured=("x",), values=negated, arguments=arguments)
    record(x, captured=("x",), values=(z.imag,))


def test_gradients_and_inference_tensors_need_no_care():
    x = torch.randn(3, requires_grad=True)
    with torch.inference_mode():
        y = torch.randn(3)
    packed = record(tensor("x"), tensor("y"), captured=("x", "y"), values=(x, y))
    assert struct.unpack("=qq", packed) == (x.data_ptr(), y.data_ptr())


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(cpu, "advise_huge_pages", seen.append)
    return seen


@pytest.mark.parametrize(
    ("value", "name", "written", "is_advised"),
    [
        (LARGE, "out", True, True),
        (SMALL, "out", True, False),
        (LARGE, "out", False, False),
        (LARGE, "x", True, False),
    ],
    ids=["fresh and large", "small", "only read", "an argument"],
)
def test_huge_pages_are_for_large_fresh_outputs(value, name, written, is_advised, advised):
    names = ("p",) if written else ()
    record(
        tensor("p", "u8", name), captured=(name,), values=(value,), written=names, arguments=KEYED
    )
    assert [t is value for t in advised] == [True] * is_advised


def test_parts_of_arguments_are_no_fresh_memory(advised):
    parameters = (tensor("a", "u8", "x[0]"), tensor("b", "u8", "xs[0]"))
    record(
        *parameters,
        captured=("x", "xs"),
        values=([LARGE], [LARGE]),
        written=("a", "b"),
        arguments=KEYED,
    )
    assert len(advised) == 1


def test_threads_are_as_many_as_torch_has_or_as_the_setting_says(tmp_path: Path):
    echo = artifact("echo", ECHO, tensor("out"))
    follows = native_launcher(echo, ["out"], (), LaunchOptions(tmp_path))
    fixed = native_launcher(echo, ["out"], (), LaunchOptions(tmp_path, num_threads=7))
    out = torch.zeros(1, dtype=torch.int64)
    before = torch.get_num_threads()
    try:
        for count in (1, 3, 2):
            torch.set_num_threads(count)
            follows(out)
            assert out.item() == count
            fixed(out)
            assert out.item() == 7
    finally:
        torch.set_num_threads(before)


def test_a_launcher_runs_native_code_on_threads(tmp_path: Path):
    team = artifact("team", TEAM, tensor("out"))
    out = torch.zeros(8, dtype=torch.int64)
    native_launcher(team, ["out"], (), LaunchOptions(tmp_path, num_threads=3))(out)
    assert out.tolist() in ([3, 3, 3, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0])
