"""What is read from the machine: features, caches, cores."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilesmith.runtime.device import resolve_target
from tilesmith.runtime.native import host_cpu
from tilesmith.runtime.native.host_cpu import (
    can_run,
    host_features,
    host_target,
    name_architecture,
    read_caches,
    request_tile_registers,
)
from tilesmith.targets import parse_target

ALL_OF_AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma", "f16c"}


def features(names: set[str]) -> dict[str, bool]:
    return dict.fromkeys(names, True)


def test_the_host_is_a_cpu_with_everything_filled_in():
    host = host_target()
    assert not host.is_gpu
    assert host.num_sms >= 1
    assert host.vector_lanes == (16 if host.arch == "avx512" else 8)
    assert 1 << 10 <= host.l1_bytes <= host.l2_bytes
    assert host.features


@pytest.mark.parametrize("is_granted", [False, True])
@pytest.mark.parametrize("lacking", ["", "amx-tile", "amx-bf16"])
def test_amx_needs_both_parts_and_permission(
    monkeypatch: pytest.MonkeyPatch, is_granted: bool, lacking: str
):
    names = ("amx-bf16", "amx-int8", "amx-tile", "avx2")
    llvm = SimpleNamespace(get_host_cpu_features=lambda: {n: n != lacking for n in names})
    monkeypatch.setattr(host_cpu, "llvm", lambda: llvm)
    monkeypatch.setattr(host_cpu, "request_tile_registers", lambda: is_granted)
    has_tiles = is_granted and not lacking
    assert host_features() == {
        "amx-bf16": has_tiles, "amx-int8": False, "amx-tile": has_tiles, "avx2": True
    }  # fmt: skip


def test_tiles_are_used_only_where_granted():
    assert host_target().has_matrix_tiles <= request_tile_registers()
    assert not any(parse_target(f"cpu:{n}").has_matrix_tiles for n in ("avx512", "avx2", "sse"))


@pytest.mark.parametrize(
    ("system", "machine"), [("win32", "AMD64"), ("darwin", "x86_64"), ("linux", "aarch64")]
)
def test_other_systems_are_not_asked_for_tiles(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str
):
    monkeypatch.setattr(host_cpu.sys, "platform", system)
    monkeypatch.setattr(host_cpu.platform, "machine", lambda: machine)
    monkeypatch.setattr(host_cpu.ctypes, "CDLL", None)
    assert not request_tile_registers()


def test_features_spell_out_what_the_machine_lacks():
    names = host_target().features.split(",")
    assert {name[0] for name in names} <= {"+", "-"}
    assert len(names) == len(host_features())


@pytest.mark.parametrize("missing", sorted(ALL_OF_AVX512))
def test_an_architecture_needs_all_its_features(missing: str):
    assert name_architecture("x86_64", features(ALL_OF_AVX512)) == "avx512"
    reduced = name_architecture("x86_64", features(ALL_OF_AVX512 - {missing}))
    assert reduced == ("avx2" if missing.startswith("avx512") else "sse")


@pytest.mark.parametrize(
    ("machine", "arch"), [("aarch64", "neon"), ("arm64", "neon"), ("AMD64", "sse"), ("riscv64", "")]
)
def test_machines_have_names_for_their_vectors(machine: str, arch: str):
    assert name_architecture(machine, {}) == arch


def write_cache(folder: Path, index: int, kind: str, level: str, size: str) -> None:
    entry = folder / f"index{index}"
    entry.mkdir()
    for name, text in (("type", kind), ("level", level), ("size", size)):
        (entry / name).write_text(f"{text}\n")


def test_caches_are_read_from_linux(tmp_path: Path):
    write_cache(tmp_path, 0, "Data", "1", "48K")
    write_cache(tmp_path, 1, "Instruction", "1", "64K")
    write_cache(tmp_path, 2, "Unified", "2", "2M")
    write_cache(tmp_path, 3, "Unified", "3", "32M")
    assert read_caches(tmp_path, (1, 2)) == (48 << 10, 2 << 20)


@pytest.mark.parametrize("size", ["", "huge", "K", "0K"])
def test_unreadable_caches_take_the_defaults(tmp_path: Path, size: str):
    write_cache(tmp_path, 0, "Data", "1", size)
    assert read_caches(tmp_path, (32 << 10, 1 << 20)) == (32 << 10, 1 << 20)
    assert read_caches(tmp_path / "none", (5, 6)) == (5, 6)


def test_narrower_code_runs_on_wider_machines_only():
    sse, avx2, avx512, neon = (parse_target(f"cpu:{n}") for n in ("sse", "avx2", "avx512", "neon"))
    assert all(can_run(target, avx512) for target in (sse, avx2, avx512))
    assert can_run(avx2, replace(avx2, num_sms=3, features="+avx2"))
    assert not can_run(avx512, avx2)
    assert not can_run(avx2, sse)
    assert not can_run(neon, avx512)
    assert not can_run(sse, neon)


def test_a_cpu_without_a_name_is_this_machine():
    assert resolve_target("cpu") == host_target()
    assert resolve_target("cpu:neon").arch == "neon"


@pytest.mark.skipif(platform.system() != "Linux", reason="reads Linux's list of CPU features")
def test_features_agree_with_the_kernels_list():
    flags = Path("/proc/cpuinfo").read_text().split()
    for name in ("avx2", "avx512f", "fma", "f16c"):
        if name in host_features():
            assert host_features()[name] == (name in flags)
