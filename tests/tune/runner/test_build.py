"""Compiling candidates for their launch arguments, natively and with Triton."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver

from tests.backends.triton.kernels import make, matmul
from tests.backends.triton.test_build_kernel import TensorAt, fake_driver, launch_path
from tests.tune.runner.cases import matmul_case, with_llvm
from tilesmith.artifacts import Artifact, LaunchParameter
from tilesmith.backends.triton.backend import TRITON_BACKEND
from tilesmith.backends.triton.build import Pointer, build_launcher
from tilesmith.lab.failures import classify
from tilesmith.lab.processes.build_pool import BuildPool
from tilesmith.lab.workload.binding import Binding, TensorRef
from tilesmith.store.outcome import Verdict
from tilesmith.targets import parse_target
from tilesmith.tune.jobs import Program
from tilesmith.tune.places import find_preloads
from tilesmith.tune.runner.build import build_program, launch_arguments, publish_program, triton_dir

__all__ = ["fake_driver"]
SYMBOLS = {"tile_m": 32, "tile_n": 32, "tile_k": 32}


@pytest.fixture(autouse=True)
def triton_cache(tmp_path, monkeypatch):
    """What Triton would use without us, in a folder of the test."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "usual"))
    with knobs.cache.scope():
        yield tmp_path / "usual"


def gpu_program(offset: int = 0, stages: int = 2) -> Program:
    artifact = make(matmul(64, 64, 64), symbols=SYMBOLS, num_stages=stages)
    tensors = ((name, TensorRef(0, "float16", (64, 64), (64, 1), offset)) for name in "xy")
    out = TensorRef(1, "float16", (64, 64), (64, 1), 0)
    return Program("gpu", artifact, Binding((*tensors, ("out", out))))


def test_native_code_lands_where_the_runner_looks(tmp_path, own_cache):
    reply = build_program(matmul_case(tmp_path).program())
    assert reply.verdict is Verdict.OK
    assert reply.seconds > 0.0
    assert len(list(own_cache.rglob("*.o"))) == 1


def test_rejected_code_is_a_build_error_in_one_line(tmp_path):
    reply = build_program(with_llvm(matmul_case(tmp_path).program(), " fadd ", " nonsense "))
    assert reply.verdict is Verdict.BUILD_ERROR
    assert "expected instruction opcode" in reply.reason
    assert "\n" not in reply.reason


def test_triton_code_is_compiled_into_a_cache_of_its_own(own_cache, triton_cache):
    reply = build_program(gpu_program())
    assert reply.verdict is Verdict.OK, reply.reason
    assert reply.resources.shared_bytes is not None
    assert reply.resources.shared_bytes > 0
    assert reply.resources.registers is None
    assert list(triton_dir(own_cache).rglob("*.cubin"))
    assert not triton_cache.exists()


def test_the_winner_is_published_to_where_launches_look(own_cache, triton_cache):
    program = gpu_program()
    build_program(program)
    knobs.cache.dir = str(triton_cache)
    publish_program(program, own_cache)
    published = {path.name for path in triton_cache.rglob("*") if path.is_file()}
    built = {path.name for path in triton_dir(own_cache).rglob("*") if path.is_file()}
    assert published == built


def test_a_launch_compiles_nothing_after_publishing(
    own_cache, triton_cache, fake_driver, monkeypatch
):
    program = gpu_program()
    build_program(program)
    knobs.cache.dir = str(triton_cache)
    hits: list[bool] = []
    listener = "listener"
    monkeypatch.setattr(
        knobs.compilation, listener, lambda **facts: hits.append(facts["cache_hit"])
    )
    fake_driver(GPUTarget("cuda", 90, 32))
    tensors = {name: TensorAt(torch.float16, 4096) for name in ("x", "y", "out")}
    publish_program(program, own_cache)
    launch_path(program.artifact, tensors, {})
    assert hits == [True, True]
    other = replace(program, artifact=gpu_program(stages=3).artifact)
    launch_path(other.artifact, tensors, {})
    assert hits == [True, True, False]


def test_builders_do_without_torch(tmp_path, own_cache):
    """Importing it takes longer than most builds."""
    environment = {"TILESMITH_CACHE_DIR": str(own_cache)}
    builder = BuildPool(
        "tests.tune.runner.looking_builder:build_and_look",
        jobs=1,
        timeout_s=60.0,
        preload=find_preloads(TRITON_BACKEND.tuning),
        environment=environment,
    )
    with builder:
        for number, program in enumerate([gpu_program(), matmul_case(tmp_path).program()]):
            builder.submit(str(number), program)
            (outcome,) = builder.wait(60.0)
            assert outcome.reply == (Verdict.OK, False)


def made_for(target: str) -> Artifact:
    return Artifact("k", "", (), (), (), target=parse_target(target), backend="triton")


def test_host_code_of_launches_is_built_where_triton_makes_it(monkeypatch):
    made: list[tuple[str, str]] = []
    compiled = SimpleNamespace(src="source", metadata="metadata")
    launcher = "CudaLauncher"
    monkeypatch.setattr(driver, launcher, lambda *facts: made.append(facts))
    monkeypatch.delattr(driver, "make_launcher", raising=False)
    build_launcher(made_for("cuda:90"), compiled)
    assert made == []
    monkeypatch.setattr(driver, "make_launcher", None, raising=False)
    build_launcher(made_for("cuda:90"), compiled)
    assert made == [("source", "metadata")]
    monkeypatch.setattr(driver, launcher, None)
    build_launcher(made_for("cuda:90"), compiled)


def test_native_code_needs_no_publishing(tmp_path, own_cache):
    publish_program(matmul_case(tmp_path).program(), own_cache)
    assert not own_cache.exists()


def test_too_much_shared_memory_is_said_in_numbers():
    program = gpu_program()
    small = replace(parse_target("cuda:90"), shared_bytes=1000)
    reply = build_program(replace(program, artifact=replace(program.artifact, target=small)))
    assert reply.verdict is Verdict.OUT_OF_RESOURCES
    assert f"needs {reply.resources.shared_bytes} bytes of shared memory" in reply.reason
    assert "the device has 1000" in reply.reason


def test_an_error_of_triton_ends_with_what_is_wrong():
    program = gpu_program()
    source = program.artifact.source.replace("tl.dot(", "tl.no_such_function(")
    assert source != program.artifact.source
    reply = build_program(replace(program, artifact=replace(program.artifact, source=source)))
    assert reply.verdict is Verdict.BUILD_ERROR
    assert "no_such_function" in reply.reason


def test_pointers_are_aligned_as_their_offsets_in_memory_say():
    program = gpu_program(offset=4)
    arguments = launch_arguments(program.artifact, program.binding)
    assert arguments["x"] == Pointer("float16", 8, 8192)
    assert arguments["out"] == Pointer("float16", 0, 8192)


def test_counters_of_barriers_and_numbers_are_arguments_too():
    parameters = (
        LaunchParameter("n", "x.size(0)", False, "i32"),
        LaunchParameter(
            "counter", "torch.zeros(1, dtype=torch.int32, device=x.device)", True, "i32"
        ),
    )
    artifact = Artifact("k", "", parameters, (), (), backend="triton")
    arguments = launch_arguments(artifact, Binding((("n", 7),)))
    assert arguments == {"n": 7, "counter": Pointer("int32", 0, 4)}
    with pytest.raises(ValueError, match="no value"):
        launch_arguments(artifact, Binding(()))


class OutOfResources(Exception):  # noqa: N818 - named as Triton names it
    def __init__(self, required: int, limit: int, name: str) -> None:
        super().__init__("out of resource")
        self.required, self.limit, self.name = required, limit, name


def raised_from(cause: Exception) -> Exception:
    error = RuntimeError("the launch failed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "verdict", "text"),
    [
        (
            OutOfResources(300, 200, "shared memory"),
            "OUT_OF_RESOURCES",
            "needs 300 bytes of shared",
        ),
        (OutOfResources(2048, 1024, "threads"), "OUT_OF_RESOURCES", "needs 2048 threads"),
        (RuntimeError("Triton Error [CUDA]: out of memory"), "OUT_OF_MEMORY", "out of memory"),
        (RuntimeError("ptxas: Register allocation failed"), "OUT_OF_RESOURCES", "Register"),
        (ValueError("numel (9) exceeds triton maximum tensor numel (8)"), "OUT_OF_RESOURCES", "9"),
        (MemoryError(), "OUT_OF_MEMORY", "MemoryError"),
        (torch.OutOfMemoryError("2 GiB"), "OUT_OF_MEMORY", "2 GiB"),
        (KeyError("x"), "RUN_ERROR", "KeyError: 'x'"),
    ],
)
def test_causes_of_failures_are_recognised(error, verdict, text):
    for found in (error, raised_from(error)):
        got, reason = classify(found, Verdict.RUN_ERROR)
        assert got is Verdict[verdict]
        assert text in reason
