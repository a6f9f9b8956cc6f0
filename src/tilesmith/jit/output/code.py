"""Printed code: what a user may ask of it, its forms, and the decorator line of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tilesmith.exc as errors
from tilesmith.artifacts import Artifact
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.runtime.native.machine_code import code_maker
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings
from tilesmith.targets import Target, parse_target

DEFAULT_GPU_TARGET = "cuda:90"
"""What Triton code is shown for when there is no GPU."""
_USUAL_GPUS = {
    **dict.fromkeys(("ttir", "ttgir", "llir", "ptx", "cubin"), DEFAULT_GPU_TARGET),
    **dict.fromkeys(("amdgcn", "hsaco"), "hip:gfx942"),
}
_ALIASES = {"asm": "assembly"}


@dataclass(frozen=True)
class OutputCodeOptions:
    """Options of ``bound.to_code``.

    Example:
        ``bound.to_code(options=OutputCodeOptions(allow_helion_deps=False))``
    """

    allow_helion_deps: bool = True
    """Whether the module may import this package; it never does, so both give the same text."""
    jax_fn: bool = False
    """Code for JAX, which there is none of: asking for it raises."""

    def check(self) -> None:
        """Raise for what no code can be made for."""
        if self.jax_fn:
            raise errors.BackendUnsupported(
                operation="code for JAX (jax_fn=True)",
                backend="triton",
                fix="leave out jax_fn: kernels here take tensors of torch",
            )


def decorator_line(config: Config, settings: Settings) -> str:
    """The decorator that makes a kernel with this config and these settings."""
    spelled = repr(config)
    package, _, _ = spelled.partition(".")
    parts = [f"config={spelled}", f"static_shapes={settings.static_shapes}"]
    if settings.index_dtype is not None:
        parts.append(f"index_dtype=torch.{settings.index_dtype}")
    return f"@{package}.kernel({', '.join(parts)})"


def usual_target(form: str) -> Target | None:
    """A GPU for whose kind there is code of a form; None for a form of a CPU."""
    name = _USUAL_GPUS.get(form)
    return None if name is None else parse_target(name)


def show_form(artifact: Artifact, form: str, sizes: Mapping[str, int]) -> Any:
    """The code of an artifact in one of the forms of its backend: text, or bytes of a binary.

    ``sizes`` are runtime values that compile-time ones are made from.
    """
    if form == "llvm":
        return artifact.llvm
    if form in ("assembly", "object"):
        maker = code_maker(artifact.target)
        make = maker.make_assembly if form == "assembly" else maker.make_object
        return make(artifact.llvm)
    if form not in _USUAL_GPUS:
        return artifact.readable
    compiled = compile_artifact(artifact, scalars=sizes)
    binary = "cubin" if "ptx" in compiled.assembly else "hsaco"
    made = {**compiled.assembly, binary: compiled.binary}
    if form not in made:
        problem = f"code for {artifact.target} has no form {form!r}"
        expected = ", ".join(name for name in made if name != "source")
        raise errors.InvalidArgumentValue(function="to_code", problem=problem, expected=expected)
    return made[form]


def check_form(form: str, known: Sequence[str]) -> str:
    """The form by its full name; raises unless it is empty or one of the known ones."""
    full = _ALIASES.get(form, form)
    if full and full not in known:
        raise errors.InvalidArgumentValue(
            function="to_code", problem=f"there is no form {form!r}", expected=", ".join(known)
        )
    return full
