"""Kernels written out as modules that need no Tilesmith: for a GPU here, or for GPUs elsewhere.

Code is generated for any target without a device. A saved module holds the Triton kernel, its
config and the host code around it, and needs only torch and triton where it is imported.
"""

from __future__ import annotations

import ast
import importlib.util
import tempfile
from pathlib import Path
from types import ModuleType

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

TARGETS = ("cuda:80", "cuda:90", "cuda:100", "hip:gfx942", "hip:gfx950")


@helion.kernel(static_shapes=False)
def scaled_add(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] + scale * y[tile]
    return out


def save_modules(folder: Path, args: tuple[object, ...]) -> dict[str, Path]:
    """One module per target; the arguments only say types and shapes."""
    bound = scaled_add.bind(args)
    config = helion.Config(block_sizes=[16, 128], num_warps=4)
    paths = {target: folder / f"scaled_add_{target.replace(':', '_')}.py" for target in TARGETS}
    for target, path in paths.items():
        path.write_text(bound.to_triton_code(config, target=target))
    return paths


def imported_packages(path: Path) -> set[str]:
    """What a module needs to be installed."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


def import_file(path: Path) -> ModuleType:
    """The module in a file, wherever that is."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y = torch.randn(200, 300, device=device), torch.randn(200, 300, device=device)
    exact = x.double() + 0.5 * y.double()
    with tempfile.TemporaryDirectory() as folder:
        paths = save_modules(Path(folder), (x, y, 0.5))
        for target, path in paths.items():
            assert "tilesmith" not in imported_packages(path)
            print(f"aot_compile_example: {len(path.read_text().splitlines())} lines for {target}")
        if device == "cuda" and torch.version.cuda:
            saved = import_file(paths["cuda:90"])
            check_against(saved.scaled_add(x, y, 0.5), exact, reduction_length=2)
    report = check_against(scaled_add(x, y, 0.5), exact, reduction_length=2)
    print(f"aot_compile_example: run here, relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
