"""What a user may ask of printed code, and the decorator line that a kernel would have to have."""

from __future__ import annotations

from dataclasses import dataclass

import tilesmith.exc as errors
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings


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
