"""Objects become functions that reach torch's thread pool, libm and libc."""

from __future__ import annotations

import gc
import math
import struct
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

import tilesmith.exc as errors
from tests.runtime.native.programs import ECHO, EXPONENTIALS, TEAM, artifact, scalar, tensor
from tilesmith.runtime.native import loader
from tilesmith.runtime.native.host_cpu import host_target
from tilesmith.runtime.native.loader import (
    SYMBOLS,
    find_addresses,
    load_artifact,
    openmp_addresses,
    process_loader,
)
from tilesmith.runtime.native.machine_code import code_maker
from tilesmith.targets import parse_target


def run_team(entry, num_threads: int) -> list[int]:
    out = torch.zeros(16, dtype=torch.int64)
    entry(struct.pack("=q", out.data_ptr()), num_threads)
    return [size for size in out.tolist() if size]


def test_a_function_gets_its_arguments(tmp_path: Path):
    entry = load_artifact(artifact("echo", ECHO, tensor("out"), scalar("n", "i64")), tmp_path)
    out = torch.zeros(2, dtype=torch.int64)
    entry(struct.pack("=qq", out.data_ptr(), -5), 3)
    assert out.tolist() == [3, -5]


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_a_team_has_the_size_asked_for(num_threads: int, tmp_path: Path):
    entry = load_artifact(artifact("team", TEAM, tensor("out")), tmp_path)
    assert run_team(entry, num_threads) == [num_threads] * num_threads


def test_the_pool_is_the_one_torch_uses():
    addresses = openmp_addresses()
    if addresses is None:
        pytest.skip("torch brings no OpenMP here")
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("needs Linux's list of loaded libraries")
    places = [line.split() for line in maps.read_text().splitlines() if "omp" in line]
    ranges = [[int(end, 16) for end in place[0].split("-")] for place in places]
    torch_folder = str(Path(torch.__file__).parent)
    for address in addresses.values():
        (found,) = (p[-1] for p, (low, high) in zip(places, ranges) if low <= address < high)
        assert "omp" in Path(found).name
        assert found.startswith(torch_folder) or len({p[-1] for p in places}) == 1


def test_without_openmp_one_thread_does_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loader, "openmp_addresses", lambda: None)
    entry = load_artifact(artifact("team", TEAM, tensor("out")), tmp_path)
    assert run_team(entry, 4) == [1]


def test_libraries_without_openmp_are_told_apart(tmp_path: Path):
    assert find_addresses(tmp_path / "nothing.so") is None
    not_a_library = tmp_path / "libtorch_cpu.so"
    not_a_library.write_text("text")
    assert find_addresses(not_a_library) is None
    found = loader.openmp_addresses()
    assert found is None or set(found) == set(SYMBOLS)


def test_libm_is_reached(tmp_path: Path):
    text = artifact("exponentials", EXPONENTIALS, tensor("out", "f64"), scalar("x", "f64"))
    out = torch.zeros(1, dtype=torch.float64)
    load_artifact(text, tmp_path)(struct.pack("=qd", out.data_ptr(), 1.5), 1)
    assert out.item() == math.exp(1.5)


def test_an_unknown_function_is_our_mistake(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    text = EXPONENTIALS.replace("@exp(", "@no_such_function(")
    wrong = artifact("exponentials", text, tensor("out", "f64"), scalar("x", "f64"))
    with pytest.raises(errors.InternalError, match="cannot link `exponentials`"):
        load_artifact(wrong, tmp_path)


def test_code_for_another_machine_is_refused(tmp_path: Path):
    other = parse_target("cpu:sse" if host_target().arch == "neon" else "cpu:neon")
    with pytest.raises(errors.BackendUnsupported, match="running code for cpu:"):
        load_artifact(artifact("team", TEAM, tensor("out"), target=other), tmp_path)


@pytest.mark.parametrize("name", ["sse", "avx2"])
def test_code_for_narrower_vectors_runs_here(name: str, tmp_path: Path):
    target = parse_target(f"cpu:{name}")
    if not loader.can_run(target, host_target()):
        pytest.skip(f"this machine has no {name}")
    echo = artifact("echo", ECHO, tensor("out"), scalar("n", "i64"), target=target)
    out = torch.zeros(2, dtype=torch.int64)
    load_artifact(echo, tmp_path)(struct.pack("=qq", out.data_ptr(), 9), 1)
    assert out.tolist() == [1, 9]


def test_functions_of_one_name_do_not_meet():
    entries = [
        process_loader().load(
            code_maker(host_target()).make_object(ECHO.replace("COUNT", str(count))), "echo"
        )
        for count in (1, 2, 3)
    ]
    for count, entry in reversed(list(enumerate(entries, 1))):
        out = torch.full((3,), -1, dtype=torch.int64)
        entry(struct.pack("=qqq", out.data_ptr(), 8, 9), 0)
        assert out.tolist() == [0, 8, 9][:count] + [-1] * (3 - count)


def test_code_goes_away_with_its_function():
    content = code_maker(host_target()).make_object(ECHO.replace("COUNT", "1"))
    for _ in range(300):
        process_loader().load(content, "echo")
    gc.collect()
    kept = process_loader().load(content, "echo")
    out = torch.zeros(1, dtype=torch.int64)
    kept(struct.pack("=q", out.data_ptr()), 7)
    assert out.item() == 7


def test_a_linker_goes_with_the_last_of_its_functions():
    """Linkers keep something of every object they had: 200 kernels left 5 MB behind."""
    content = code_maker(host_target()).make_object(ECHO.replace("COUNT", "1"))
    own = loader.Loader()
    entries: list[Any] = [own.load(content, "echo") for _ in range(2 * loader.MOST_LINKED + 1)]
    linkers = [weakref.ref(linker) for linker in dict.fromkeys(entry.linker for entry in entries)]
    assert len(linkers) == 3
    kept = entries[loader.MOST_LINKED]
    del entries
    gc.collect()
    assert [linker() is not None for linker in linkers] == [False, True, True]
    out = torch.zeros(1, dtype=torch.int64)
    kept(struct.pack("=q", out.data_ptr()), 7)
    assert out.item() == 7


def test_calls_release_the_interpreter(tmp_path: Path):
    """A thread inside native code that waits for another thread would hang otherwise."""
    text = """
    define void @wait(ptr %arguments, i64 %threads) {
    entry:
      %flag = load ptr, ptr %arguments
      br label %again
    again:
      %value = load atomic i64, ptr %flag seq_cst, align 8
      %is_set = icmp ne i64 %value, 0
      br i1 %is_set, label %done, label %again
    done:
      ret void
    }
    """
    entry = load_artifact(artifact("wait", text, tensor("flag")), tmp_path)
    flag = torch.zeros(1, dtype=torch.int64)
    timer = threading.Timer(0.05, lambda: flag.fill_(1))
    timer.start()
    entry(struct.pack("=q", flag.data_ptr()), 1)
    timer.join()
    assert flag.item() == 1


def test_a_process_with_loaded_code_ends_cleanly(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, '.')\n"
        "from tests.runtime.native.programs import *\n"
        "from tilesmith.runtime.native.loader import load_artifact\n"
        f"kept = [load_artifact(artifact('team', TEAM, tensor('out')), Path({str(tmp_path)!r}))\n"
        "        for _ in range(3)]\n"
    )
    root = Path(__file__).parents[3]
    result = subprocess.run(
        [sys.executable, "-c", "import sys; sys.path.insert(0, 'src')\n" + code],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
