"""Printed code: what a user may ask of it, its forms, and the decorator line of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tilesmith.exc as errors
from tilesmith.artifacts import Artifact
from tilesmith.runtime.native.machine_code import code_maker
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings

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


def show_form(artifact: Artifact, form: str) -> str:
    """The code of an artifact in one of the forms of its backend."""
    if form == "llvm":
        return artifact.llvm
    if form == "assembly":
        return code_maker(artifact.target).make_assembly(artifact.llvm)
    return artifact.readable


def check_form(form: str, known: Sequence[str]) -> str:
    """The form by its full name; raises unless it is empty or one of the known ones."""
    full = _ALIASES.get(form, form)
    if full and full not in known:
        raise errors.InvalidArgumentValue(
            function="to_code", problem=f"there is no form {form!r}", expected=", ".join(known)
        )
    return full
