"""Launch arguments of candidates: one capture serves them all unless host code looks at Configs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilesmith.artifacts import Artifact
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.numerics.reference_tiles import choose_num_programs, reference_sizes
from tilesmith.schedule.config import Config
from tilesmith.tune.jobs import Binding, ReferenceJob
from tilesmith.tune.workload.capture import Captured, capture
from tilesmith.tune.workload.saving import save


class Candidates:
    """Binds artifacts of one kernel call, whose first capture is saved in ``folder``."""

    def __init__(
        self, bound: BoundKernel, args: tuple[Any, ...], basis: Captured, folder: Path
    ) -> None:
        self._bound = bound
        self._args = args
        self._basis = basis
        self._folder = folder

    @property
    def depends_on_config(self) -> bool:
        """Whether host code looks at Configs."""
        return self._basis.depends_on_config

    def bind(self, config: Config, artifact: Artifact) -> Binding:
        """The launch arguments of the artifact of a Config."""
        captured, extra = self._capture(config)
        return captured.bind_artifact(artifact, extra)

    def reference(self, config: Config, *, seed: int = 0) -> ReferenceJob:
        """How to find out what the kernel gives under a Config (and, as a rule, under all)."""
        captured, extra = self._capture(config)
        blocks = config.get("block_sizes", [])
        is_fixed = captured.depends_on_config
        sizes = reference_sizes(captured.function, blocks, may_grow=not is_fixed)
        is_on_host = captured.launch.device.type == "cpu"
        return ReferenceJob(
            captured.function,
            _as_pairs(sizes),
            captured.bind_function(extra),
            choose_num_programs(captured.function, sizes, is_on_host=is_on_host),
            seed,
        )

    def release(self, binding: Binding) -> None:
        """Remove what was saved for this binding alone."""
        if binding.extra_storages is not None:
            binding.extra_storages.unlink(missing_ok=True)

    def _capture(self, config: Config) -> tuple[Captured, Path | None]:
        if not self._basis.depends_on_config:
            return self._basis, None
        captured = capture(self._bound, self._args, config, self._basis)
        return captured, save(captured, self._folder)


def _as_pairs(sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(sizes.items()))
