"""Kernels built ahead of a launch: Triton's own launch path must find them in its cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.backends.triton.kernels import block, function, make, matmul, tensor
from tilesmith.artifacts import Artifact
from tilesmith.backends.triton.build import (
    Pointer,
    build_kernel,
    evaluate_constexprs,
    load_function,
    publish_kernel,
    use_cache_dir,
)
from tilesmith.runtime.launchers.triton import Descriptors
from tilesmith.schedule.schedule import AccessOptions

SYMBOLS = {"tile_m": 32, "tile_n": 32, "tile_k": 32}


class DriverWithoutDevice:
    """What Triton's launch path asks of a driver before it launches."""

    def __init__(self, target: GPUTarget) -> None:
        self._target = target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return self._target


class TensorAt:
    """A tensor argument with a chosen address."""

    def __init__(self, dtype: torch.dtype, address: int) -> None:
        self.dtype = dtype
        self._address = address

    def data_ptr(self) -> int:
        return self._address

    def ptr_range(self) -> int:
        return 1 << 20


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """Triton's cache in a folder of the test."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    with knobs.cache.scope():
        yield tmp_path


@pytest.fixture
def fake_driver():
    """Installs a driver for a target, and takes it away again."""
    before = driver._active

    def install(target: GPUTarget) -> None:
        driver.set_active(DriverWithoutDevice(target))  # type: ignore[arg-type]

    yield install
    driver._active = before


def launch_path(artifact: Artifact, values: dict[str, Any], numbers: dict[str, int]) -> Any:
    """What Triton compiles when a kernel is called, short of the launch."""
    kernel = load_function(artifact)
    constexprs = evaluate_constexprs(artifact, artifact.target, numbers)
    described = [
        Descriptors(item, list(values), {"TensorDescriptor": TensorDescriptor}).construct(
            *values.values()
        )
        for item in artifact.descriptions
    ]
    return kernel.warmup(*values.values(), *described, grid=(1,), **constexprs, **artifact.options)


def scale(size_type: str = "i32", factor_type: str = "f32", bits: str = "i32") -> str:
    """``out[t] = x[t] * factor`` for ``n`` elements."""
    return function(
        "scale",
        tensor("x", "f32", 4096),
        tensor("out", "f32", 4096),
        f'param %n: {size_type}[] from "n"',
        f'param %factor: {factor_type}[] from "factor"',
        block("tile"),
        f"""
        %zero = full() {{value=0}} : {bits}[]
        grid([%zero], [%n]) {{blocks=["tile"], slot=0}}
        (%begin: {bits}[]) {{
          %i = tile_index(%begin) {{block="tile"}} : {bits}[tile]
          %v = load(%x, none, [%i]) {{slot=0}} : f32[tile]
          %f = cast(%factor) : f32[]
          %e = expand_dims(%f) {{axes=[0]}} : f32[1]
          %b = broadcast(%e) : f32[tile]
          %r = elementwise(%v, %b) {{fn="mul"}} : f32[tile]
          store(%out, %r, none, [%i]) {{slot=1}}
        }}
        """,
    )


@pytest.mark.parametrize("target", [GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)])
@pytest.mark.parametrize("offset", [0, 8])
def test_tensors_are_specialised_as_the_launch_path_does(own_cache, fake_driver, target, offset):
    name = "cuda:90" if target.backend == "cuda" else "hip:gfx942"
    artifact = make(matmul(64, 64, 64), symbols=SYMBOLS, target=name, pid_type="persistent_blocked")
    starts = {"x": offset, "y": 0, "out": 16}
    built = build_kernel(
        artifact, {name: Pointer("float16", at, 1 << 20) for name, at in starts.items()}
    )
    fake_driver(target)
    launched = launch_path(
        artifact, {name: TensorAt(torch.float16, 4096 + at) for name, at in starts.items()}, {}
    )
    assert launched.hash == built.hash
    assert launched.metadata_group == built.metadata_group


@pytest.mark.parametrize("number", [1, 16, 17, 2**31 + 16])
@pytest.mark.parametrize("wide", [False, True])
def test_numbers_are_specialised_as_the_launch_path_does(own_cache, fake_driver, number, wide):
    text = scale("i64", "f64", "i64") if wide else scale()
    artifact = make(text, symbols={"tile": 128})
    built = build_kernel(
        artifact,
        {
            "x": Pointer("float32", 0, 1 << 14),
            "out": Pointer("float32", 4, 1 << 14),
            "n": number,
            "factor": 0.5,
        },
    )
    fake_driver(GPUTarget("cuda", 90, 32))
    values = {
        "x": TensorAt(torch.float32, 512),
        "out": TensorAt(torch.float32, 516),
        "n": number,
        "factor": 0.5,
    }
    assert launch_path(artifact, values, {"n": number}).hash == built.hash


def test_alignment_makes_another_kernel(own_cache):
    artifact = make(matmul(64, 64, 64), symbols=SYMBOLS)
    aligned = {name: Pointer("float16", 0, 1 << 13) for name in ("x", "y", "out")}
    first = build_kernel(artifact, aligned)
    second = build_kernel(artifact, {**aligned, "x": Pointer("float16", 2, 1 << 13)})
    assert first.hash != second.hash
    assert first.hash == build_kernel(artifact, aligned).hash


def test_kernels_with_descriptors_are_built_ahead(own_cache):
    accesses = {slot: AccessOptions("tensor_descriptor") for slot in range(3)}
    artifact = make(matmul(64, 64, 64), symbols=SYMBOLS, accesses=accesses)
    aligned = {name: Pointer("float16", 0, 1 << 13) for name in ("x", "y", "out")}
    assert "cp.async.bulk.tensor" in build_kernel(artifact, aligned).asm["ptx"]


def test_descriptors_are_asked_for_in_the_words_of_the_launch_path(own_cache, fake_driver):
    fake_driver(GPUTarget("cuda", 90, 32))
    accesses = {slot: AccessOptions("tensor_descriptor") for slot in range(3)}
    artifact = make(matmul(64, 64, 64), symbols=SYMBOLS, accesses=accesses)
    values = {name: torch.empty(64, 64, dtype=torch.float16) for name in ("x", "y", "out")}
    launched = launch_path(artifact, values, {})
    ahead = {name: Pointer("float16", 0, 1 << 13) for name in values}
    assert build_kernel(artifact, ahead).hash == launched.hash


def test_a_published_kernel_is_found_where_launches_look(own_cache, monkeypatch):
    artifact = make(matmul(64, 64, 64), symbols=SYMBOLS)
    aligned = {name: Pointer("float16", 0, 1 << 13) for name in ("x", "y", "out")}
    usual, candidates = own_cache / "triton", own_cache / "candidates"
    use_cache_dir(candidates)
    built = build_kernel(artifact, aligned)
    use_cache_dir(usual)
    publish_kernel(artifact, aligned, candidates)
    found = build_kernel(artifact, aligned)
    assert found.hash == built.hash
    assert found.kernel == built.kernel
    assert all(Path(path).is_relative_to(usual) for path in found.metadata_group.values())


def test_building_again_does_not_compile_again(own_cache, monkeypatch):
    artifact = make(matmul(64, 64, 64), symbols=SYMBOLS)
    aligned = {name: Pointer("float16", 0, 1 << 13) for name in ("x", "y", "out")}
    hits: list[bool] = []
    monkeypatch.setattr(
        knobs.compilation, "listener", lambda **facts: hits.append(facts["cache_hit"])
    )
    build_kernel(artifact, aligned)
    build_kernel(artifact, aligned)
    assert hits == [False, True]


def test_another_version_of_triton_costs_a_second_compilation_at_most(own_cache, monkeypatch):
    artifact = make(matmul(64, 64, 64), symbols=SYMBOLS)
    aligned = {name: Pointer("float16", 0, 1 << 13) for name in ("x", "y", "out")}
    monkeypatch.delattr("triton.runtime.jit.create_function_from_signature")
    assert build_kernel(artifact, aligned).kernel
    with pytest.raises(ImportError):
        build_kernel(artifact, {**aligned, "x": Pointer("float16", 2, 1 << 13)})
