"""Versions, processors, caches and trial runs of this machine, each as a line that may be pasted.

Nothing here raises: what cannot be found out is a line that says so.
"""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import tilesmith.language as hl
from tilesmith.diagnostics.wording import counted
from tilesmith.disk.trust import reason_against
from tilesmith.exc import OutOfBoundsAccess
from tilesmith.jit.typed import kernel
from tilesmith.runtime.native.host_cpu import host_target
from tilesmith.schedule.config import Config
from tilesmith.settings import SettingError, Settings
from tilesmith.store.winners import Winners
from tilesmith.version import __version__

PACKAGES = ("tilesmith", "torch", "triton", "llvmlite", "numpy")
SIZE = (37, 130)
"""Of trial runs. Neither is a multiple of a block: masks take part."""
GPU_TARGET = "cuda:90"
CPU_NAMES = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, what was found, and what to do where it is not as it should."""

    name: str
    text: str
    is_good: bool = True
    hint: str = ""


def examine(*, with_trials: bool = True) -> Iterator[Finding]:
    """Everything, one after the other; trial runs take a few seconds."""
    for name, look in (
        ("versions", _versions), ("system", _system), ("cpu", _cpu), ("threads", _threads),
        ("gpu", _gpu), ("settings", _settings), ("cache", _cache),
    ):  # fmt: skip
        yield _guarded(name, look)
    if with_trials:
        for trial in TRIALS:
            yield _guarded(trial.name, lambda trial=trial: _tried(trial))


def _guarded(name: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except Exception as error:  # a report of a broken machine must not break, too
        first = str(error).strip().splitlines()[:1]
        return Finding(name, f"{type(error).__name__}: {''.join(first)}", is_good=False)


def _tried(trial: Trial) -> Finding:
    text = trial.run()
    return Finding(trial.name, text or trial.absent, is_good=bool(text) or trial.is_optional)


def _version(name: str) -> str:
    try:
        return __version__ if name == "tilesmith" else version(name)
    except PackageNotFoundError:
        return "missing"


def _versions() -> Finding:
    found = {name: _version(name) for name in PACKAGES}
    missing = [name for name, text in found.items() if text == "missing" and name != "tilesmith"]
    # Triton is for GPUs: where no wheel exists, the rest works without it.
    needed = [name for name in missing if name != "triton"]
    hint = f"pip install {' '.join(needed)}" if needed else ""
    listed = ", ".join(f"{name} {text}" for name, text in found.items())
    return Finding("versions", f"python {platform.python_version()}, {listed}", not needed, hint)


def _system() -> Finding:
    is_posix = sys.platform != "win32"
    hint = "" if is_posix else "Windows is not supported; WSL is"
    return Finding("system", f"{platform.system()} {platform.release()}", is_posix, hint)


def _cpu() -> Finding:
    target = host_target()
    caches = f"L1 {target.l1_bytes >> 10} KiB, L2 {target.l2_bytes >> 10} KiB"
    units = [name for name, has in (("AMX", target.has_matrix_tiles), ("VNNI", _vnni())) if has]
    parts = [cpu_name(), target.arch, caches, *units]
    return Finding("cpu", ", ".join(filter(None, parts)), bool(target.arch))


def _vnni() -> bool:
    return host_target().has_byte_products


def cpu_name() -> str:
    """What the processor calls itself, where the system tells."""
    try:
        lines = CPU_NAMES.read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _threads() -> Finding:
    cores, used = host_target().num_sms, torch.get_num_threads()
    asked = Settings().num_threads
    text = f"{counted(cores, 'core')}, torch uses {counted(used, 'thread')}"
    text += f", TILESMITH_NUM_THREADS asks for {asked}" if asked else ""
    hint = "" if used <= cores else "more threads than cores slow kernels down"
    return Finding("threads", text, used <= cores, hint)


def _gpu() -> Finding:
    if not torch.cuda.is_available():
        built = torch.version.cuda or torch.version.hip
        why = "torch sees none" if built else "this torch is built for CPUs"
        return Finding("gpu", f"none: {why}; kernels run on the CPU")
    names: list[str] = []
    for number in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(number)
        kind = getattr(found, "gcnArchName", "") or f"sm_{found.major}{found.minor}"
        names.append(f"{found.name} ({kind}, {found.total_memory >> 30} GiB)")
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"HIP {torch.version.hip}"
    return Finding("gpu", f"{', '.join(names)}, torch for {built}")


def _settings() -> Finding:
    try:
        found = Settings().to_dict()
    except SettingError as error:
        return Finding("settings", str(error), is_good=False)
    plain = Settings.from_environment({}, environ={}).to_dict()
    changed = [n for n, value in found.items() if value != plain[n] and n != "cache_dir"]
    text = ", ".join(f"{name}={found[name]!r}" for name in changed)
    return Finding("settings", text or "the environment changes none")


def _cache() -> Finding:
    folder = Path(Settings().cache_dir)
    if not folder.exists():
        return Finding("cache", f"{shortened(folder)}, empty")
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    winners = counted(len(Winners(folder).entries()), "tuned config")
    text = f"{shortened(folder)}, {counted(len(files), 'file')}, {size >> 20} MiB, {winners}"
    problem = _find_problem(folder)
    return Finding("cache", text, not problem, problem)


def _find_problem(folder: Path) -> str:
    """Why what is compiled is not kept there; "" where it is."""
    reason = reason_against(folder)
    if reason:
        return f"compiled code is kept elsewhere: {reason}"
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"nothing can be written there ({error.strerror}): every process compiles anew"


def shortened(path: Path) -> str:
    """The path with the home folder as ``~``: reports are pasted where others read them."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)


@kernel(static_shapes=True)
def scaled_rows(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """A softmax of each row, scaled before."""
    out = torch.empty_like(x)
    for row in hl.tile(x.size(0)):
        out[row, :] = torch.softmax(x[row, :] * scale[row][:, None], dim=1)
    return out


@dataclass(frozen=True)
class Trial:
    """What is tried; ``run`` says how it went, "" where there is nothing to try it on."""

    name: str
    run: Callable[[], str]
    absent: str = ""
    is_optional: bool = False


def _arguments(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SIZE, generator=generator)
    return x.to(device), torch.arange(float(SIZE[0])).to(device)


def _run_on(device: str) -> str:
    x, scale = _arguments(device)
    expected = torch.softmax(x.double() * scale.double()[:, None], 1)
    begin = time.perf_counter()
    found = scaled_rows(x, scale)
    seconds = time.perf_counter() - begin
    error = (found.double() - expected).abs().max().item()
    if not error < 1e-5:
        raise RuntimeError(f"a softmax is wrong by {error:.3g}: please report this")
    return f"works: a softmax compiled and run in {1e3 * seconds:.0f} ms, largest error {error:.1g}"


def _run_on_gpu() -> str:
    return _run_on("cuda") if torch.cuda.is_available() else ""


def _make_gpu_code() -> str:
    bound = scaled_rows.bind(_arguments("cpu"), target=GPU_TARGET)
    lines = bound.to_triton_code(target=GPU_TARGET).count("\n")
    return f"works: {lines} lines of Triton for {GPU_TARGET}, which need not be here"


def _check_bounds() -> str:
    checked = kernel(scaled_rows.fn, check=True, config=Config(block_sizes=[8]))
    x, scale = _arguments("cpu")
    try:
        checked(x, scale[:-1])
    except OutOfBoundsAccess:
        return "works: a read past the end was noticed"
    raise RuntimeError("a read past the end was not noticed: please report this")


TRIALS = (
    Trial("native code", lambda: _run_on("cpu")),
    Trial("gpu kernels", _run_on_gpu, "not tried: torch sees no GPU", is_optional=True),
    Trial("gpu code", _make_gpu_code),
    Trial("checks", _check_bounds),
)
