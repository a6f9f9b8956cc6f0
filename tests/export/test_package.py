"""Exported packages: the same bits with torch alone, and clear refusals."""

from __future__ import annotations

import ast
import ctypes
import importlib.util
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.softmax import softmax
from tests.examples.cases import EXAMPLES
from tests.warm_python import warm_python
from tilesmith.experimental import export_package
from tilesmith.export import _cpu, _gpu, binaries, launcher
from tilesmith.export.launcher import PackageError
from tilesmith.numerics.compare import check_against
from tilesmith.store.lookup import make_key, winner_key
from tilesmith.store.winners import Winner, Winners

CASES = {case.name: case for case in EXAMPLES}
GALLERY = (
    *("softmax", "matmul", "attention", "layer_norm_fwd", "geglu", "cross_entropy"),
    "split_k_barrier",
)
"""The last one's host code looks at its config."""
ALONE = """
import gc, sys
gc.collect()  # what the server has left behind may close files whose numbers are used again
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tilesmith", "triton", "llvmlite"):
            raise ImportError("not here: " + name)
sys.meta_path.insert(0, Refuse())
import importlib, torch
sys.path.insert(0, ".")
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    torch.save(getattr(package, package.__all__[0])(*torch.load(f"{name}.pt")), f"{name}.out")
assert not [m for m in sys.modules if m.startswith(("tilesmith", "triton", "llvmlite"))]
"""
X = torch.randn(6, 10)


@helion.kernel(static_shapes=False)
def shifted(x, n: int, factor: float):
    out = torch.empty([x.size(0), helion.cdiv(x.size(1), 1)], dtype=x.dtype, device=x.device)
    for t in hl.tile(x.size(0)):
        out[t, :] = torch.softmax(x[t, :], 1) * factor + n
    return out


def load(folder: Path) -> Any:
    """The function of a package that is imported anew."""
    spec = importlib.util.spec_from_file_location(
        folder.name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[folder.name] = module
    spec.loader.exec_module(module)
    return getattr(module, module.__all__[0])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "softmax_package"
    samples = [(X,), (torch.randn(4, 33),)]
    return export_package(softmax, samples, folder, target="cpu,cuda:90")


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / made.name))


@pytest.mark.parametrize(
    "names", [GALLERY[:2], pytest.param(GALLERY[2:], marks=pytest.mark.full)], ids=["two", "five"]
)
def test_gallery_kernels_run_with_torch_alone(tmp_path: Path, names: tuple[str, ...]) -> None:
    expected: dict[str, Any] = {}
    for name in names:
        case = CASES[name]
        args = case.make_inputs(case.sizes[-1], case.dtypes[0], "cpu")
        export_package(case.kernel, [args], tmp_path / name, config=case.config)
        given = args[: len(args) - callable(args[-1])]
        torch.save(given, tmp_path / f"{name}.pt")
        expected[name] = case.kernel.bind(args).compile_config(case.config)(*args)
    (tmp_path / "alone.py").write_text(ALONE)
    command = [*warm_python(), "alone.py", *names]
    ended = subprocess.run(
        command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert not ended.returncode, ended.stderr
    for name in names:
        torch.testing.assert_close(
            torch.load(tmp_path / f"{name}.out"), expected[name], rtol=0, atol=0, equal_nan=True
        )


def test_each_sample_has_its_code(made: Path) -> None:
    run = load(made)
    for x in (X, torch.randn(4, 33)):
        assert torch.equal(run(x), softmax(x))


def test_another_shape_is_refused_with_all_it_was_made_for(made: Path) -> None:
    with pytest.raises(ValueError, match="softmax: no code for this call") as caught:
        load(made)(torch.randn(5, 5))
    assert "cpu_avx" in str(caught.value) or "cpu_" in str(caught.value)
    assert "sizes (6, 10)" in str(caught.value)
    assert "sizes (4, 33)" in str(caught.value)
    assert "given torch.float32, sizes (5, 5)" in str(caught.value)


def test_a_shape_that_has_run_is_still_checked_for_all_else(made: Path) -> None:
    run = load(made)
    for _ in range(2):  # the second finds its code by its sizes
        assert torch.equal(run(X), softmax(X))
    for other in (
        X.double(),
        torch.randn(10, 6).T,
        X.to("meta"),
        torch.randn(60).view(6, 10)[:, :9],
    ):
        with pytest.raises(ValueError, match="softmax: no code for this call"):
            run(other)


def test_runtime_sizes_need_one_code(tmp_path: Path) -> None:
    samples = [(X, 3, 2.0), (torch.randn(9, 70), 4, 1.0)]
    folder = export_package(shifted, samples, tmp_path / "shifted_package")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert len(manifest["code"]) == 1
    x = torch.randn(31, 17)
    expected = torch.softmax(x.double(), 1) * 0.5 - 7
    check_against(load(folder)(x, -7, 0.5), expected, reduction_length=17)


def test_files_need_torch_and_the_standard_library_only(made: Path) -> None:
    for path in made.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                continue
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            roots = {name.partition(".")[0] for name in names}
            assert roots <= {"torch", *sys.stdlib_module_names}


def test_the_manifest_says_what_was_made(made: Path) -> None:
    manifest = launcher.read_manifest(made)
    assert [entry["target"].partition(":")[0] for entry in manifest["code"]] == ["cpu", "cuda"] * 2
    cpu, cuda = manifest["code"][:2]
    assert cpu["arguments"] == "x: float32[6, 10]"
    assert cuda["entry"] == "_softmax"
    assert cuda["arch"] == "sm_90"
    assert cuda["layout"].startswith("QQ")
    assert set(cuda["layout"][2:]) <= {"Q"}  # pointers to scratch, as this Triton adds them
    assert cuda["config"]["block_sizes"]
    assert {"torch", "triton", "llvmlite"} <= manifest["toolchain"].keys()


def test_the_manifest_has_the_time_of_a_config_that_a_search_found(tmp_path: Path) -> None:
    kernel = helion.kernel(softmax.fn, cache_dir=str(tmp_path / "cache"))
    bound, config = kernel.bind((X,)), helion.Config(block_sizes=[2])
    key = winner_key(make_key(bound, (X,)), (), {}, False)
    Winners(tmp_path / "cache").add([Winner(key, bound.config_spec.normalize(config), 0.25)])
    (found,) = launcher.read_manifest(export_package(kernel, [(X,)], tmp_path / "p"))["code"]
    assert found["config_from"] == "found by a search"
    assert (found["measured_ms"], found["measured_on"]) == (0.25, key.device)
    assert found["config"]["block_sizes"] == [2]
    given = export_package(kernel, [(X,)], tmp_path / "given", config=config)
    assert launcher.read_manifest(given)["code"][0]["measured_ms"] is None


@pytest.mark.parametrize("name", ["softmax.py", "_launcher.py", "binaries"])
def test_changed_files_are_refused(copy: Path, name: str) -> None:
    path = copy / name
    path = next(path.iterdir()) if path.is_dir() else path
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(RuntimeError, match=f"{path.name} is missing or was changed after export"):
        load(copy)


def changed(copy: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = copy / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def test_a_manifest_that_was_edited_is_refused(copy: Path) -> None:
    changed(copy, lambda manifest: manifest["code"][0].update(entry="other"))
    with pytest.raises(RuntimeError, match=r"manifest.json was changed after export"):
        load(copy)


def test_another_format_is_refused(copy: Path) -> None:
    changed(copy, lambda manifest: manifest.update(format=99, tilesmith="9.9"))
    with pytest.raises(RuntimeError, match=r"format 99, made by tilesmith 9.9; .* reads format 3"):
        load(copy)


def test_a_manifest_that_is_no_json_is_refused(copy: Path) -> None:
    (copy / "manifest.json").write_text("{")
    with pytest.raises(RuntimeError, match=r"manifest.json cannot be read"):
        load(copy)


def test_code_for_another_cpu_is_not_run() -> None:
    here = f"{sys.platform} {__import__('platform').machine()}"
    assert _cpu.cpu_problem(here, []) is None
    assert "made for plan9 mips" in str(_cpu.cpu_problem("plan9 mips", []))
    if _cpu.cpu_features():
        assert "lacks avx9000" in str(_cpu.cpu_problem(here, ["avx9000"]))


def test_parameters_lie_where_the_abi_puts_them() -> None:
    begin = struct.calcsize(f"@{_gpu.HEAD}")
    assert begin == 56  # of the driver's CUlaunchConfig
    assert [x - begin for x in _gpu.parameter_offsets("QiQdf")] == [0, 8, 16, 24, 32]


def test_without_a_gpu_its_code_says_so(made: Path) -> None:
    entry = launcher.read_manifest(made)["code"][1]
    code = _gpu.GpuCode(made, entry)
    if not torch.cuda.is_available():
        assert code.problem == "torch sees no CUDA device"
        other = _gpu.GpuCode(made, {**entry, "kind": "hip"})
        assert other.problem == "torch sees no ROCm device"


FUNCTION, STREAM = 7 << 40, 9 << 40


class Driver:
    """Stands for a GPU's driver: notes what a launch is given, and has lost its context once."""

    def __init__(self, layout: str) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.described: list[tuple[Any, ...]] = []
        self._codes = layout

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def cuLaunchKernelEx(self, config: Any, function: Any, pointers: Any, extra: Any) -> int:  # noqa: N802
        *sizes, stream, attributes, count = struct.unpack_from("@7I4xQQI", config)
        assert (function.value, attributes, count, extra) == (FUNCTION, 0, 0, None)
        return self.launch(sizes, stream, pointers)

    def cuLaunchCooperativeKernel(self, function: Any, *given: Any) -> int:  # noqa: N802
        *sizes, stream, pointers = given
        assert function.value == FUNCTION
        return self.launch([size.value for size in sizes], stream.value, pointers)

    def hipModuleLaunchKernel(self, function: Any, *given: Any) -> int:  # noqa: N802
        assert given[-1] is None
        return self.cuLaunchCooperativeKernel(function, *given[:-1])

    def cuModuleGetFunction(self, found: Any, *_: Any) -> int:  # noqa: N802
        found._obj.value = FUNCTION
        return 0

    hipModuleGetFunction = cuModuleGetFunction  # noqa: N815

    def launch(self, sizes: list[int], stream: int, pointers: Any) -> int:
        assert stream == STREAM
        kinds = {"D": ctypes.c_uint64, "Q": ctypes.c_uint64, "q": ctypes.c_int64, "i": ctypes.c_int}
        places = zip(self._codes, pointers)
        values = [ctypes.cast(p, ctypes.POINTER(kinds[code]))[0] for code, p in places]
        self.launches.append((*sizes, values))
        return 0 if len(self.launches) > 1 else 201

    def cuTensorMapEncodeTiled(self, place: Any, *given: Any) -> int:  # noqa: N802
        assert place.value % 64 == 0
        self.described.append(tuple([*x] if isinstance(x, ctypes.Array) else x for x in given))
        ctypes.cast(place, ctypes.POINTER(ctypes.c_uint64))[0] = 1000 + len(self.described)
        return 0


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Driver]:
    """Puts a driver in place of the machine's, for a layout of arguments."""
    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(_gpu, "_current_device", lambda: 0)
    monkeypatch.setattr(_gpu, "_raw_stream", lambda _: STREAM)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: stream)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))

    def put(layout: str) -> Driver:
        driver = Driver(layout)
        monkeypatch.setattr(_gpu, "driver", lambda _: driver)
        return driver

    return put


def test_the_driver_is_given_grid_threads_and_addresses(
    made: Path, gpu: Callable[[str], Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = launcher.read_manifest(made)["code"][1]
    driver = gpu(entry["layout"])
    values = (4096, 8192)
    assert entry["fixed"] == [0] * (len(entry["layout"]) - 2)
    code = _gpu.GpuCode(made, entry)
    assert code.run(values, (6, 1, 1), 0) is None
    first, again = driver.launches
    assert first == again
    *sizes, handed = again
    assert sizes == [6, 1, 1, entry["threads"], 1, 1, entry["shared_bytes"]]
    assert handed[:2] == [4096, 8192]
    assert not any(handed[2:])
    assert "does not fit" in str(code.run((-1, *values[1:]), (6, 1, 1), 0))
    assert code.run(values, (6, 0, 1), 0) is None
    assert len(driver.launches) == 2  # nothing to do
    together = _gpu.GpuCode(made, {**entry, "is_cooperative": True})
    assert together.run((1, 2), (3, 1, 1), 0) is None
    assert driver.launches[-1][:4] == (3, 1, 1, entry["threads"])
    assert driver.launches[-1][-1][:2] == [1, 2]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    other = _gpu.GpuCode(made, entry).run(values, (6, 1, 1), 0)
    assert other == "made for sm_90, this GPU is sm_80"


def test_tiles_of_clusters_have_several_programs(made: Path, gpu: Callable[[str], Driver]) -> None:
    entry: dict[str, Any] = {**launcher.read_manifest(made)["code"][1], "cluster": 2}
    driver = gpu(entry["layout"])
    code = _gpu.GpuCode(made, entry)
    assert code.run((4096, 8192), (6, 2, 1), 0) is None
    assert driver.launches[-1][:3] == (12, 2, 1)


@helion.kernel
def copied(x):
    out = torch.empty_like(x)
    for t, u in hl.tile(x.size()):
        out[t, u] = x[t, u]
    return out


def test_descriptors_are_written_by_the_driver(
    tmp_path: Path, gpu: Callable[[str], Driver]
) -> None:
    config = helion.Config(block_sizes=[16, 32], indexing="tensor_descriptor")
    folder, x = tmp_path / "copied_package", torch.randn(64, 96)
    export_package(copied, [(x,)], folder, target="cuda:90", config=config)
    (entry,) = launcher.read_manifest(folder)["code"]
    assert entry["layout"].startswith("QQ" + "Diiqq" * 2)
    driver = gpu(entry["layout"])
    module = load(folder).__globals__
    # Without a GPU its checks refuse the tensors, so they are told that these lie on one.
    x.get_device = lambda: 0  # type: ignore[method-assign]
    reader = module["_cuda_90_0"]
    scope = {**module, "_cuda_90_0_checks": lambda *_: None}
    code = _gpu.GpuCode(folder, entry)
    for _ in range(3):
        assert FunctionType(reader.__code__, scope)(code.run, x, x) is None
    address, fp32, swizzle_128, promoted = x.data_ptr(), 7, 3, 2
    form = [96, 64], [96 * 4, 0], [32, 16], [1, 1], 0, swizzle_128, promoted, 0
    assert driver.described == [(fp32, 2, mock.ANY, *form)] * 2  # once for each tensor
    handed = driver.launches[-1][-1]
    assert handed[:7] == [address, address, 1001, 64, 96, 96, 1]
    assert handed[7:12] == [1002, 64, 96, 96, 1]
    # Other memory has other descriptors.
    y = torch.randn(64, 96)
    y.get_device = lambda: 0  # type: ignore[method-assign]
    assert FunctionType(reader.__code__, scope)(code.run, x, y) is None
    assert driver.launches[-1][-1][:3] == [address, y.data_ptr(), 1001]
    assert driver.launches[-1][-1][7:9] == [1003, 64]


def test_hip_code_is_packed_as_its_assembly_says(
    tmp_path: Path, gpu: Callable[[str], Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = export_package(shifted, [(X, 3, 2.0)], tmp_path / "package", target="hip:gfx942")
    (entry,) = launcher.read_manifest(folder)["code"]
    assert entry["kind"] == "hip"
    assert entry["layout"].startswith("QQiiiiif")
    assert (folder / entry["binary"]).read_bytes().startswith(b"\x7fELF")
    assert entry["threads"] % 64 == 0
    driver = gpu(entry["layout"].replace("f", "i"))
    found = SimpleNamespace(gcnArchName="gfx942:sramecc+:xnack-")
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: found)
    values = (16, 32, 6, 10, 10, 3, 10, 2.0)
    assert entry["fixed"] == [0] * (len(entry["layout"]) - 8)
    assert _gpu.GpuCode(folder, entry).run(values, (6, 1, 1), 0) is None
    bits = struct.unpack("i", struct.pack("f", 2.0))[0]
    assert driver.launches[-1][-1][:8] == [16, 32, 6, 10, 10, 3, 10, bits]


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("cuda:90,riscv", "unknown target 'riscv'"),
        ("cpu:neon", "there is no linker for it"),
    ],
)
def test_targets_that_cannot_be_had(tmp_path: Path, target: str, problem: str) -> None:
    with pytest.raises((ValueError, helion.exc.CannotExport), match=problem):
        export_package(softmax, [(X,)], tmp_path / "package", target=target)
    assert not list(tmp_path.iterdir())


def test_without_a_linker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "LINKERS", ("no_such_compiler",))
    with pytest.raises(helion.exc.CannotExport, match="no linker is on the path"):
        export_package(softmax, [(X,)], tmp_path / "package")


TABLE = torch.ones(10)


@helion.kernel
def reads_a_global(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = x[t, :] * TABLE[None, :]
    return out


@helion.kernel
def several_launches(x, n: int):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = x[t, :] + 1
    total = out.sum()
    for step in range(n):
        for t in hl.tile(x.size(0)):
            out[t, :] = out[t, :] * x[t, :] + step
    if n > 100:
        for t in hl.tile(x.size(0)):
            out[t, :] = out[t, :] + 1
    return out, total


def test_a_kernel_of_several_launches(tmp_path: Path) -> None:
    folder = export_package(several_launches, [(X, 3)], tmp_path / "staged_package")
    names = [entry["name"] for entry in launcher.read_manifest(folder)["code"]]
    assert {name.partition("_")[0] for name in names} == {"stage1", "stage2"}
    run = load(folder)
    for n in (0, 1, 5):
        torch.testing.assert_close(run(X, n), several_launches(X, n), rtol=0, atol=0)
    with pytest.raises(NotImplementedError, match="not reached"):
        run(X, 101)
    both = export_package(several_launches, [(X, 3), (X, 101)], tmp_path / "all_stages")
    torch.testing.assert_close(load(both)(X, 101), several_launches(X, 101), rtol=0, atol=0)
    with pytest.raises(ValueError, match="no code for this call"):
        run(torch.randn(7, 10), 2)


@helion.kernel
def calls_its_module(x):
    out = load_nothing(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = x[t, :]
    return out


def load_nothing(x):
    return torch.empty_like(x)


@pytest.mark.parametrize(
    ("kernel", "problem"),
    [
        (reads_a_global, "reads a tensor that is no argument|uses `TABLE`"),
        (calls_its_module, "its host code uses `load_nothing`"),
    ],
    ids=["global", "module"],
)
def test_kernels_that_a_package_cannot_hold(tmp_path: Path, kernel: Any, problem: str) -> None:
    with pytest.raises(helion.exc.CannotExport, match=problem):
        export_package(kernel, [(X,)], tmp_path / "package")


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(helion.exc.CannotExport, match="exists"):
        export_package(softmax, [(X,)], tmp_path)
    with pytest.raises(helion.exc.CannotExport, match="is no name of a Python package"):
        export_package(softmax, [(X,)], tmp_path / "not-a-name")


def test_packages_are_the_same_bytes_twice(made: Path, tmp_path: Path) -> None:
    samples = [(X,), (torch.randn(4, 33),)]
    again = export_package(softmax, samples, tmp_path / made.name, target="cpu,cuda:90")
    assert (again / "manifest.json").read_bytes() == (made / "manifest.json").read_bytes()


def test_package_errors_are_runtime_errors() -> None:
    assert issubclass(PackageError, RuntimeError)


@pytest.mark.parametrize(
    "given", [5, None, [1.0], "text", X.numpy()], ids=lambda given: type(given).__name__
)
def test_what_is_no_tensor_is_refused_by_name(made: Path, given: Any) -> None:
    with pytest.raises(TypeError, match="softmax: this package was made for a tensor as x, and"):
        load(made)(given)


def test_errors_of_host_code_stay_what_they_are(tmp_path: Path) -> None:
    folder = export_package(shifted, [(X, 3, 2.0)], tmp_path / "shifted_package")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'factor'"):
        load(folder)(X, 3)
    with pytest.raises(TypeError, match=r"made for a tensor as x, and was given 4 of type int"):
        load(folder)(4, 3, 2.0)
