"""Exported packages against the process that made them: the same bits, and what a call costs.

``python -m benchmarks.exported FOLDER`` exports seven kernels for this device, ``--jobs`` at once,
runs them in a process where importing tilesmith, Triton and llvmlite fails, and prints one line for
each. ``--made`` is a folder of packages that were exported elsewhere (``--only-export --target
cuda:90`` on a machine without a GPU, with another compiler); they run as well. ``--small`` leaves
out the large arguments, to try it on a CPU. What a call costs is timed in turns in one process, and
again where there is torch alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import tilesmith
import tilesmith.language as hl
from benchmarks import exported_alone
from benchmarks.exported_alone import time_call
from examples.attention import attention
from examples.cross_entropy import cross_entropy
from examples.layer_norm import layer_norm_fwd
from examples.matmul import matmul
from examples.softmax import softmax
from examples.split_k_barrier import split_k_barrier
from tilesmith.experimental import export_package
from tilesmith.runtime.device import target_of
from tilesmith.targets import parse_target


@tilesmith.kernel
def power_steps(a: torch.Tensor, x: torch.Tensor, steps: int) -> torch.Tensor:
    """Power iteration: host code has a loop with two launches, and a norm between them."""
    y = torch.empty_like(x)
    for _ in range(steps):
        for rows in hl.tile(a.size(0)):
            y[rows] = (a[rows, :] * x[None, :]).sum(-1)
        norm = y.square().sum().sqrt()
        for rows in hl.tile(a.size(0)):
            x[rows] = y[rows] / norm[()]
    return x.clone()


@dataclass(frozen=True)
class Case:
    """A kernel, its arguments for results and for the cost of a call, and what it should give."""

    kernel: Any
    make: Callable[..., tuple[Any, ...]]
    large: tuple[int, ...]
    small: tuple[int, ...]
    exact: Callable[..., torch.Tensor]
    gpu: dict[str, Any] = field(default_factory=dict[str, Any])
    """The config on a GPU; empty: the default."""


def _normal(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(size).to(dtype)


def _norm_args(m: int, n: int) -> tuple[Any, ...]:
    return _normal(m, n), _normal(n), _normal(n)


def _products(m: int, n: int, k: int) -> tuple[Any, ...]:
    return _normal(m, k, dtype=torch.float16), _normal(k, n, dtype=torch.float16)


def _heads(*size: int) -> tuple[Any, ...]:
    return tuple(_normal(*size, dtype=torch.float16) for _ in range(3))


def _labels(m: int, n: int) -> tuple[Any, ...]:
    return _normal(m, n), torch.randint(n, (m,))


def _power_args(n: int, steps: int) -> tuple[Any, ...]:
    return _normal(n, n), _normal(n), steps


def _power(a: torch.Tensor, x: torch.Tensor, steps: int) -> torch.Tensor:
    for _ in range(steps):
        y = a @ x
        x = y / y.norm()
    return x


DESCRIBED = {
    "block_sizes": [128, 128, 64], "num_warps": 8, "num_stages": 3,
    "indexing": "tensor_descriptor",
}  # fmt: skip
CASES = {
    "softmax": Case(
        softmax, lambda m, n: (_normal(m, n),), (4096, 2560), (64, 512),
        lambda x: x.softmax(1),
    ),
    "matmul": Case(
        matmul, _products, (2048, 2048, 2048), (128, 128, 128), torch.matmul, DESCRIBED
    ),
    "layer_norm": Case(
        layer_norm_fwd, _norm_args, (4096, 2560), (64, 512),
        lambda x, w, b: torch.nn.functional.layer_norm(x, w.shape, w, b),
    ),
    "attention": Case(
        attention, _heads, (2, 16, 2048, 128), (1, 2, 256, 128),
        torch.nn.functional.scaled_dot_product_attention,
    ),
    "power_steps": Case(power_steps, _power_args, (1024, 5), (64, 1), _power),
    "cross_entropy": Case(
        cross_entropy, _labels, (2048, 8192), (64, 512), torch.nn.functional.cross_entropy
    ),
    "split_k_barrier": Case(
        split_k_barrier, _products, (256, 256, 4096), (64, 64, 256), torch.matmul,
        {"block_sizes": [64, 64, 64, 64, 64], "splits": 4},
    ),
}  # fmt: skip
"""The last but two has several launches, the last one programs that wait for each other."""


IS_SMALL = "--small" in sys.argv
TURNS = 40
HEADING = (
    "                         triton  bits of both  error from fp64   us of a call\n"
    "kernel           made            shapes       ours     package  in process package  alone"
)


def samples(case: Case) -> list[tuple[Any, ...]]:
    """The same values in every process."""
    torch.manual_seed(0)
    return [case.make(*(case.small if IS_SMALL else case.large)), case.make(*case.small)]


def package_of(name: str) -> str:
    """What the package of a case is called."""
    return f"{name}_package"


def export(folder: Path, target: str, names: Sequence[str] = tuple(CASES)) -> None:
    """Packages of cases."""
    for name in names:
        case = CASES[name]
        given = case.gpu if target != "cpu" else {}
        config = tilesmith.Config.from_dict(given) if given else None
        try:
            path = folder / package_of(name)
            export_package(case.kernel, samples(case), path, target=target, config=config)
        except tilesmith.exc.BaseError as error:
            print(f"{name}: {error}", flush=True)


def tensors(result: Any) -> list[torch.Tensor]:
    """All tensors of a result."""
    return [result] if isinstance(result, torch.Tensor) else [x for x in result if x is not None]


def on(device: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with their tensors on a device."""
    return tuple(x.to(device) if isinstance(x, torch.Tensor) else x for x in args)


def same_bits(left: Any, right: Any) -> bool:
    """Whether two results of a kernel are equal to the bit."""
    return all(
        torch.equal(a.cpu().reshape(-1).view(torch.uint8), b.cpu().reshape(-1).view(torch.uint8))
        for a, b in zip(tensors(left), tensors(right), strict=True)
    )


def prepare(folder: Path, target: str, device: str, jobs: int) -> None:
    """Packages of all cases, made side by side; what they compile in process is then compiled."""
    if jobs < 2:
        export(folder, target)
        return
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["--target", target, "--device", device, *["--small"] * IS_SMALL]
    command = [sys.executable, "-m", "benchmarks.exported", str(folder), *flags]
    waiting = list(CASES)
    running: list[subprocess.Popen[bytes]] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(subprocess.Popen([*command, "--case", waiting.pop(0)]))
        running.pop(0).wait()


def prepare_case(folder: Path, target: str, device: str, name: str) -> None:
    """The package of one case, and a call in process."""
    export(folder, target, [name])
    manifest = folder / package_of(name) / "manifest.json"
    if manifest.exists():
        run_in_process(CASES[name], json.loads(manifest.read_text()), device)


def in_process(case: Case, manifest: dict[str, Any], device: str) -> tuple[list[Any], float]:
    """Results with the configs of a package, and microseconds of a small call."""
    results = run_in_process(case, manifest, device)
    return results, time_call(case.kernel, on(device, samples(case)[1]))


def run_in_process(case: Case, manifest: dict[str, Any], device: str) -> list[Any]:
    """Results with the configs of a package."""
    results: list[Any] = []
    for position, args in enumerate(samples(case)):
        placed = on(device, args)
        if case.kernel.staged is None:
            config = tilesmith.Config.from_dict(
                manifest["code"][min(position, len(manifest["code"]) - 1)]["config"]
            )
            case.kernel.bind(placed).set_config(config)
        results.append([x.cpu() for x in tensors(case.kernel(*placed))])
    return results


def load_package(path: Path) -> Any:
    """The function of a package, here."""
    where = str(path.resolve() / "__init__.py")
    name = f"{path.resolve().parent.name}_{path.name}"
    spec = importlib.util.spec_from_file_location(
        name, where, submodule_search_locations=[str(path.resolve())]
    )
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, module.__all__[0])


def time_in_turns(functions: Sequence[Callable[..., Any]], args: tuple[Any, ...]) -> list[float]:
    """The least microseconds of a call of each, one after the other in every round."""
    best = [math.inf] * len(functions)
    for _ in range(TURNS):
        for position, function in enumerate(functions):
            best[position] = min(best[position], time_call(function, args, rounds=1))
    return best


def run_alone(folder: Path, work: Path, device: str) -> dict[str, float | str]:
    """What a call of each package costs where there is torch alone, or why it fails."""
    names = [path.name for path in sorted(folder.glob(package_of("*")))]
    for name, case in CASES.items():
        torch.save(samples(case), work / f"{package_of(name)}.args.pt")
    command = [sys.executable, exported_alone.__file__, str(folder.resolve()), device, *names]
    ended = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if ended.returncode:
        return dict.fromkeys(names, ended.stderr.strip()[-600:])
    return json.loads(ended.stdout.splitlines()[-1])


def relative_error(case: Case, result: Any) -> float:
    """Distance of the first tensor of the large result from fp64, relative in norm."""
    args = samples(case)[0]
    wide = [
        x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in args
    ]
    exact = case.exact(*on("cuda" if torch.cuda.is_available() else "cpu", tuple(wide))).cpu()
    return float((tensors(result)[0].cpu().double() - exact).norm() / exact.norm())


def report(folder: Path, made_by: str, work: Path, device: str) -> None:
    """Print what the packages of a folder give."""
    found = run_alone(folder, work, device)
    print(HEADING, flush=True)
    for name, case in CASES.items():
        alone = found.get(package_of(name), "not exported")
        head = f"{name:16} {made_by:6}"
        if isinstance(alone, str):
            print(f"{head} {alone}", flush=True)
            continue
        manifest = json.loads((folder / package_of(name) / "manifest.json").read_text())
        ours = run_in_process(case, manifest, device)
        both = [case.kernel, load_package(folder / package_of(name))]
        us, beside = time_in_turns(both, on(device, samples(case)[1]))
        others = torch.load(work / f"{package_of(name)}.results.pt", map_location="cpu")
        bits = [same_bits(a, b) for a, b in zip(ours, others)]
        errors = [relative_error(case, results[0]) for results in (ours, others)]
        print(
            f"{head} {manifest['toolchain'].get('triton'):7} "
            f"{' '.join('same' if same else 'OTHER' for same in bits):12}"
            f"{errors[0]:8.1e} {errors[1]:8.1e} {us:9.2f} {beside:8.2f} {alone:8.2f}",
            flush=True,
        )


def main() -> None:
    """Export, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--made", type=Path, help="packages that were exported elsewhere")
    parser.add_argument("--target", help="instead of this machine's device")
    parser.add_argument("--only-export", action="store_true")
    parser.add_argument("--small", action="store_true", help="small arguments only")
    parser.add_argument("--jobs", type=int, default=1, help="processes that export")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--case", choices=sorted(CASES), help="prepare this one alone")
    given = parser.parse_args()
    device = given.device
    here = str(target_of(torch.device(device))) if device == "cuda" else "cpu"
    target = given.target or here
    parse_target(target)
    if given.case:
        prepare_case(given.folder, target, device, given.case)
        return
    if given.only_export:
        export(given.folder, target)
        return
    prepare(given.folder, target, device, given.jobs)
    torch.set_num_threads(1)
    folders = {"here": given.folder, **({"other": given.made} if given.made else {})}
    work = given.folder / "work"
    work.mkdir(exist_ok=True)
    for made_by, folder in folders.items():
        report(folder, made_by, work, device)


if __name__ == "__main__":
    main()
