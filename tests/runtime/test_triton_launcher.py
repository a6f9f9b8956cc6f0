"""What a launch on a GPU hands to Triton, call by call; Triton's part and the device are fakes."""

from __future__ import annotations

import ctypes
import gc
import linecache
import threading
import weakref
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import tilesmith.exc as errors
from tilesmith.artifacts import Artifact, LaunchParameter, TensorDescription, load_module
from tilesmith.runtime.arguments import FindOther, Launcher, LaunchOptions
from tilesmith.runtime.calls.reader import TensorReader, process_readers
from tilesmith.runtime.launchers import triton
from tilesmith.runtime.launchers.triton import TritonLauncher
from tilesmith.settings import Settings

DEVICE = torch.device("cuda", 1)
MODULE = '''
class Recorder:
    """Stands for a function under triton.jit."""

    def __init__(self):
        self.compiled = []
        self.failure = None
        self.device_caches = {1: ["what was compiled for a device"]}

    def __getitem__(self, grid):
        def compile_and_launch(*arguments, **options):
            if self.failure:
                raise self.failure
            self.compiled.append((grid, arguments, options))
            return self.make(len(self.compiled) - 1)
        return compile_and_launch

k = Recorder()
'''
X, Y = (LaunchParameter(name, name, True, "bf16") for name in ("x", "y"))


def integer(name: str, source: str = "", dtype: str = "i32") -> LaunchParameter:
    return LaunchParameter(name, source or name, False, dtype)


class Gpu:
    """Keeps what was launched, and where."""

    def __init__(self) -> None:
        self.runs: list[tuple[Any, ...]] = []
        self.current, self.count = 1, 1
        self.streams = {0: 70, 1: 71}
        self.entered: list[torch.device] = []
        self.while_running: Any = None

    def make(self, number: int) -> SimpleNamespace:
        def run(*values: Any) -> None:
            self.runs.append((f"kernel {number}", *values))
            if self.while_running is not None:
                self.while_running(*values[9:])

        return SimpleNamespace(run=run, function=f"f{number}", packed_metadata=f"m{number}")

    @contextmanager
    def device(self, device: torch.device):
        self.entered.append(device)
        before = self.current
        number = cast("int | None", device.index)
        self.current = before if number is None else number
        yield
        self.current = before

    @property
    def kernels(self) -> list[str]:
        """Which compiled kernel each launch took."""
        return [run[0] for run in self.runs]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    monkeypatch.setattr(torch.cuda, "device", made.device)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: made.current)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: made.count)
    monkeypatch.setattr(triton, "stream_finder", lambda: lambda index: made.streams[index])
    monkeypatch.setattr(triton, "get_num_sm", lambda device: 132)
    return made


@pytest.fixture(params=["native", "python"])
def reader(request: pytest.FixtureRequest) -> TensorReader | None:
    """Reads addresses; None where it could not be built."""
    if request.param == "python":
        return None
    found = process_readers().get(Path(Settings().cache_dir))
    return found or pytest.skip(process_readers().obstacle)


@pytest.fixture
def make(gpu: Gpu, tmp_path: Path, reader: TensorReader | None):
    """Makes launchers whose captured names are, unless said, those of the parameters."""

    def make_launcher(
        *parameters: LaunchParameter,
        grid: tuple[str, ...] = ("16",),
        constexprs: tuple[tuple[str, str], ...] = (),
        captured: tuple[str, ...] = (),
        keyed: frozenset[str] = frozenset({"x", "y"}),
        device: torch.device = DEVICE,
        described: tuple[TensorDescription, ...] = (),
        plain: Any = None,
        least_sms: int = 0,
        bytes_of_threads: str = "",
        find_other: FindOther | None = None,
    ) -> TritonLauncher:
        kernel = Artifact("k", MODULE, parameters, constexprs, grid, {"num_warps": 4})
        kernel = replace(kernel, descriptions=described, least_sms=least_sms)
        kernel = replace(kernel, bytes_of_threads=bytes_of_threads)
        names = captured or tuple(parameter.name for parameter in parameters)
        options = LaunchOptions(tmp_path, device, keyed, reader, find_other=find_other)
        launcher = TritonLauncher(kernel, names, (), options, plain)
        launcher._function.make = gpu.make
        return launcher

    return make_launcher


def tensors(count: int, size: int = 64) -> list[torch.Tensor]:
    return [torch.zeros(size, dtype=torch.bfloat16) for _ in range(count)]


def test_tensors_made_alike_are_not_the_same(make, gpu):
    made = "torch.empty((4, 37), dtype=torch.float32, device=x.device)"
    parts = [LaunchParameter(name, made, True, "f32") for name in ("one", "other")]
    launcher = make(X, *parts, captured=("x",))
    for _ in range(3):
        launcher.launch(*tensors(1))
    for run in gpu.runs:
        x, one, other = run[-3:]
        assert len({x, one, other}) == 3


def test_what_was_compiled_goes_with_the_launcher(make):
    """Triton 3.7 keeps all functions in a table; what they have compiled is what takes memory."""
    launcher = make(X)
    function = launcher._function
    launcher.launch(*tensors(1))
    gc.collect()
    assert function.device_caches
    del launcher
    gc.collect()
    assert function.device_caches == {}


def test_lines_of_a_module_are_not_kept(tmp_path):
    path = tmp_path / "made.py"
    path.write_text("import inspect\ndef k(): pass\nlines = inspect.getsourcelines(k)\n")
    assert load_module(path).lines == (["def k(): pass\n"], 2)
    assert str(path) not in linecache.cache


@pytest.mark.parametrize("least", [0, 132, 133])
def test_programs_that_wait_are_refused_where_they_have_no_room(make, monkeypatch, least):
    monkeypatch.setattr(triton, "get_num_sm", lambda device: 132)
    if least <= 132:
        make(X, least_sms=least)
        return
    with pytest.raises(errors.InvalidConfig, match="wait for each other") as caught:
        make(X, least_sms=least)
    assert "133 multiprocessors or more" in str(caught.value)


def test_sizes_that_would_take_minutes_to_compile_go_elsewhere(make, gpu):
    problems: list[errors.TritonError] = []
    elsewhere: list[int] = []

    def find_other(problem: errors.TritonError) -> Launcher:
        problems.append(problem)
        return lambda x, n: elsewhere.append(n)

    size = LaunchParameter("n", "n", False, "i32")
    long = {"bytes_of_threads": "BLOCK * 4", "find_other": find_other}
    launcher = make(X, size, constexprs=(("BLOCK", "n"),), **long)
    sizes = (64, 64, 2048, 64, 4096, 128)
    for n in sizes:
        launcher.launch(*tensors(1), n)
    assert elsewhere == [2048, 4096]
    assert len(problems) == 1
    assert [options["BLOCK"] for _, _, options in launcher._function.compiled] == [64, 128]


def misaligned() -> torch.Tensor:
    return torch.zeros(65, dtype=torch.bfloat16)[1:]


def test_the_first_call_compiles_with_tensors_and_later_ones_pass_addresses(make, gpu):
    launcher = make(X, Y, grid=("16", "2"), constexprs=(("BLOCK", "64"),))
    x, y = tensors(2)
    launcher.launch(x, y)
    ((grid, arguments, options),) = launcher._function.compiled
    assert grid == (16, 2, 1)
    assert arguments[0] is x
    assert arguments[1] is y
    assert options == {"BLOCK": 64, "num_warps": 4}
    assert gpu.entered == [DEVICE]
    x, y = tensors(2)
    launcher.launch(x, y)
    fixed = (16, 2, 1, 71, "f0", "m0", None, None, None)
    assert gpu.runs == [("kernel 0", *fixed, x.data_ptr(), y.data_ptr(), 64)]
    assert len(launcher.kernels) == 1


def test_each_pattern_of_alignment_has_its_kernel(make, gpu):
    launcher = make(X, Y)
    even, odd = tensors(1)[0], misaligned()
    pairs = [(even, even), (odd, even), (even, odd), (odd, odd)]
    for pair in (*pairs, *reversed(pairs)):
        launcher.launch(*pair)
    assert len(launcher._function.compiled) == 4
    assert gpu.kernels == ["kernel 3", "kernel 2", "kernel 1", "kernel 0"]
    for run, pair in zip(gpu.runs, reversed(pairs)):
        assert run[-2:] == tuple(tensor.data_ptr() for tensor in pair)


def test_sizes_and_strides_of_tensors_are_passed(make, gpu):
    n, m, k = integer("n", "x.size(1)"), integer("m", "x.stride(0)"), integer("k", "y.size(0) + 1")
    launcher = make(n, X, m, Y, k, grid=("cdiv(n, 2)",), captured=("x", "y"))
    x, y = torch.zeros(4, 6)[:, :5], torch.zeros(7)
    for _ in range(2):
        launcher.launch(x, y)
    assert launcher._function.compiled[0][0] == (3, 1, 1)
    assert gpu.runs[0][1:4] == (3, 1, 1)
    assert gpu.runs[0][-5:] == (5, x.data_ptr(), 6, y.data_ptr(), 8)


def test_tensors_without_memory_are_refused(make, gpu):
    launcher = make(X, Y)
    x, y = tensors(2)
    launcher.launch(x, y)
    with pytest.raises(errors.UnsupportedArgumentType, match="`x` is a tensor"):
        torch.func.functionalize(launcher.launch)(x, y)
    launcher.launch(torch.zeros(0), y)
    assert gpu.runs[0][-2:] == (0, y.data_ptr())


def test_one_tensor_may_be_passed_twice(make, gpu):
    launcher = make(X, Y)
    (x,) = tensors(1)
    for _ in range(2):
        launcher.launch(x, x)
    assert gpu.runs[0][-2:] == (x.data_ptr(), x.data_ptr())


@pytest.mark.parametrize(
    ("same", "other"),
    [
        ((16, 32, -48, 2**31 - 16), 17),
        ((5, 17, 2, -1), 1),
        ((5, 2**31 - 1, -(2**31) + 1), 2**31 + 1),
        ((32,), 0x1_0000_0010),
        ((1,), 0),
    ],
)
def test_integers_count_by_what_triton_specialises_on(make, gpu, same, other):
    launcher = make(X, integer("n"))
    (x,) = tensors(1)
    for n in same:
        launcher.launch(x, n)
    assert len(launcher._function.compiled) == 1
    assert [run[-1] for run in gpu.runs] == list(same[1:])
    launcher.launch(x, other)
    assert len(launcher._function.compiled) == 2


def test_floats_and_truth_values_count_for_nothing(make, gpu):
    launcher = make(X, integer("a", dtype="f32"), integer("b", dtype="bool"))
    (x,) = tensors(1)
    for a, b in ((1.0, True), (16.0, False), (0.5, True)):
        launcher.launch(x, a, b)
    assert gpu.kernels == ["kernel 0"] * 2
    assert gpu.runs[-1][-2:] == (0.5, True)


def test_grids_and_constants_follow_runtime_sizes(make, gpu):
    launcher = make(
        X,
        integer("n", "x.size(0)"),
        grid=("cdiv(n, 8)", "min(num_sms, 200)"),
        constexprs=(("FIXED", "3"), ("WIDTH", "next_power_of_2(n)")),
        captured=("x",),
    )
    for size in (24, 24, 40, 56, 44):
        launcher.launch(tensors(1, size)[0])
    assert [grid for grid, *_ in launcher._function.compiled] == [(3, 132, 1), (5, 132, 1)]
    assert gpu.kernels == ["kernel 0", "kernel 1", "kernel 1"]
    assert [run[1:4] for run in gpu.runs] == [(3, 132, 1), (7, 132, 1), (6, 132, 1)]
    assert [run[-3:] for run in gpu.runs] == [(24, 3, 32), (56, 3, 64), (44, 3, 64)]


def test_parameters_are_not_confused_with_captured_names(make, gpu):
    first, second = (LaunchParameter(n, s, True, "bf16") for n, s in (("x", "xs[1]"), ("y", "x")))
    launcher = make(
        first,
        second,
        integer("n", "x.size(0)"),
        captured=("xs", "x"),
        grid=("n",),
        keyed=frozenset({"xs", "x"}),
    )
    a, b = torch.zeros(16), torch.zeros(32)
    for _ in range(2):
        launcher.launch([None, a], b)
    assert gpu.runs[0][-3:] == (a.data_ptr(), b.data_ptr(), 32)


@pytest.mark.parametrize("grid", [("0",), ("4", "0"), ("n",), ("2", "n", "2")])
def test_an_empty_grid_launches_nothing(make, gpu, grid):
    launcher = make(X, integer("n"), grid=grid)
    launcher.launch(tensors(1)[0], 0)
    assert not launcher._function.compiled
    assert not gpu.runs


def test_the_stream_is_that_of_the_moment(make, gpu):
    launcher = make(X)
    (x,) = tensors(1)
    for stream in (5, 6, 7):
        gpu.streams[1] = stream
        launcher.launch(x)
    assert [run[4] for run in gpu.runs] == [6, 7]


def test_the_tensors_device_is_made_current_where_there_are_several(make, gpu):
    gpu.count, gpu.current = 2, 0
    launcher = make(X)
    (x,) = tensors(1)
    for _ in range(2):
        launcher.launch(x)
    assert gpu.current == 0
    assert len(gpu.entered) == 3, "around each launch, and where Triton compiles"
    gpu.current = 1
    launcher.launch(x)
    assert len(gpu.entered) == 3
    assert [run[4] for run in gpu.runs] == [71, 71]


def test_a_device_without_a_number_is_the_current_one(make, gpu):
    gpu.count = 2
    launcher = make(X, device=torch.device("cuda"))
    (x,) = tensors(1)
    for current in (0, 1, 0, 1):
        gpu.current = current
        launcher.launch(x)
    assert [run[4] for run in gpu.runs] == [70, 71]
    assert gpu.kernels == ["kernel 0", "kernel 1"], "a kernel is loaded on one device"


def test_tensors_of_host_code_must_be_on_the_device(make, gpu):
    made_by_host = LaunchParameter("t", "t", True, "bf16")
    launcher = make(made_by_host)
    for _ in range(2):
        with pytest.raises(errors.UnsupportedArgumentType, match="`t` is a tensor on cpu") as info:
            launcher.launch(tensors(1)[0])
        assert "cuda:1" in str(info.value)
    assert not launcher._function.compiled


def test_lazily_negated_views_are_refused_at_every_call(make, gpu):
    launcher = make(LaunchParameter("x", "x", True, "f32"))
    launcher._device = torch.device("cpu")
    z = torch.zeros(4, dtype=torch.complex64)
    for _ in range(2):
        launcher.launch(z.imag)
        with pytest.raises(errors.UnsupportedArgumentType, match=r"`x` is .*resolve_neg"):
            launcher.launch(z.conj().imag)
    assert len(gpu.runs) == 1


def test_what_a_launch_makes_is_alive_while_it_runs(make, gpu):
    counter = LaunchParameter("c", "torch.zeros(1, dtype=torch.int32)", True, "i32")
    launcher = make(X, counter, captured=("x",))
    seen: list[int] = []

    def count_up(x: int, address: int) -> None:
        noise = [torch.full((1,), 9, dtype=torch.int32) for _ in range(8)]
        cell = ctypes.c_int32.from_address(address)
        seen.append(cell.value)
        cell.value = 7
        assert len(noise) == 8

    gpu.while_running = count_up
    for _ in range(4):
        launcher.launch(tensors(1)[0])
    assert seen == [0, 0, 0]


def test_failures_of_triton_are_reported_each_time(make, gpu):
    launcher = make(X)
    launcher._function.failure = ValueError("out of resource: shared memory")
    for _ in range(2):
        with pytest.raises(errors.TritonError, match="shared memory"):
            launcher.launch(tensors(1)[0])
    launcher._function.failure = None
    launcher.launch(tensors(1)[0])
    assert len(launcher.kernels) == 1


def test_threads_do_not_mix_their_values(make, gpu):
    launcher = make(X, Y)
    pairs = [tensors(2), [misaligned(), tensors(1)[0]], [tensors(1)[0], misaligned()]]
    for pair in pairs:
        launcher.launch(*pair)

    def launch_often(pair: list[torch.Tensor]) -> None:
        for _ in range(200):
            launcher.launch(*pair)

    threads = [threading.Thread(target=launch_often, args=(pair,)) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {
        (f"kernel {number}", *(tensor.data_ptr() for tensor in pair))
        for number, pair in enumerate(pairs)
    }
    assert {(run[0], *run[-2:]) for run in gpu.runs} == expected
    assert len(gpu.runs) == 600


def describe(*sizes: str) -> TensorDescription:
    return TensorDescription("x_description", "x", "bf16", sizes, (8, 1), (4, 8))


def grids(count: int, rows: int = 8) -> list[torch.Tensor]:
    return [torch.zeros(rows, 8, dtype=torch.bfloat16) for _ in range(count)]


def test_descriptors_serve_again_for_the_same_address(make, gpu):
    launcher = make(X, described=(describe("8", "8"),))
    a, b = grids(2)
    for x in (a, a, b, a, b):
        launcher.launch(x)
    ((_, first, _),) = launcher._function.compiled
    assert first[1].base is a, "Triton's compiler looks at the tensor"
    assert [run[-1].base.data_ptr() for run in gpu.runs] == [x.data_ptr() for x in (a, b, a, b)]
    assert gpu.runs[0][-1] is gpu.runs[2][-1]
    assert gpu.runs[1][-1] is gpu.runs[3][-1]
    made = gpu.runs[0][-1]
    assert (made.shape, made.strides, made.block_shape) == ([8, 8], [8, 1], [4, 8])


def test_descriptors_follow_runtime_sizes(make, gpu):
    launcher = make(X, integer("m", "x.size(0)"), captured=("x",), described=(describe("m", "8"),))
    (x,) = grids(1, rows=32)
    for rows in (32, 16, 32, 16, 4):
        launcher.launch(x[:rows])
    assert [run[-1].shape for run in gpu.runs] == [[16, 8], [32, 8], [16, 8]]


def test_descriptors_keep_no_tensor_alive_and_do_not_pile_up(make, gpu, monkeypatch):
    monkeypatch.setattr(triton, "MAX_KEPT", 3)
    launcher = make(X, described=(describe("8", "8"),))
    launcher.launch(grids(1)[0])
    many = grids(7)
    for place in range(7):
        launcher.launch(many[place])
    assert len(launcher._descriptors[0].kept) <= 3
    watched = weakref.ref(many[-1])
    launcher._function.compiled.clear()
    del many
    gc.collect()
    assert watched() is None


def test_misaligned_and_empty_tensors_go_without_descriptors(make, gpu):
    plain: list[torch.Tensor] = []
    launcher = make(
        X, Y, described=(describe("8", "8"),), plain=lambda: lambda *values: plain.append(values[0])
    )
    (y,) = tensors(1)
    odd = torch.zeros(65, dtype=torch.bfloat16)[1:].view(8, 8)
    empty = grids(1)[0][3:3]
    launcher.launch(odd, y)
    launcher.launch(empty, y)
    assert [p is x for p, x in zip(plain, (odd, empty))] == [True, True]
    for other in (y, y, misaligned(), misaligned()):
        launcher.launch(grids(1)[0], other)
    assert len(plain) == 2
    assert gpu.kernels == ["kernel 0", "kernel 1"], "others may have any alignment"


def test_launches_too_long_along_a_later_axis_go_along_one(make, gpu):
    plain: list[int] = []
    launcher = make(
        X, integer("n"), grid=("4", "n", "cdiv(n, 2)"), plain=lambda: lambda _, n: plain.append(n)
    )
    for n in (65535, 65536, 65535, 200_000):
        launcher.launch(*tensors(1), n)
    assert plain == [65536, 200_000]
    assert [run[1:4] for run in gpu.runs] == [(4, 65535, 32768)], "the first launch is Triton's"


def test_the_first_axis_has_no_limit(make, gpu):
    launcher = make(X, integer("n"), grid=("n", "4"))
    for n in (16, 1 << 20):
        launcher.launch(*tensors(1), n)
    assert gpu.runs[-1][1:4] == (1 << 20, 4, 1)
