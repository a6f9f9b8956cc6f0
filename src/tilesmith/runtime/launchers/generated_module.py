"""Generated Python source as a file and as a module. Needs no torch: builders have none."""

from __future__ import annotations

import importlib.util
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import tilesmith.exc as errors
from tilesmith.artifacts import Artifact


def write_module(artifact: Artifact, directory: Path) -> Path:
    """Save the artifact's source under a name derived from its content."""
    digest = sha256(artifact.source.encode()).hexdigest()[:16]
    path = directory / "modules" / f"{artifact.name.lstrip('_')}_{digest}.py"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Several processes may write the same file: each writes its own and renames it.
        scratch = path.with_suffix(f".{id(artifact)}.tmp")
        scratch.write_text(artifact.source)
        scratch.replace(path)
    return path


def load_module(path: Path) -> ModuleType:
    """Import a generated module from its file (Triton reads kernels' source from it)."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise errors.InternalError(problem=f"cannot load the generated module {path.name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
