"""Configs whose code copies nothing through descriptors, for tensors that have none."""

from __future__ import annotations

from tilesmith.schedule.config import Config
from tilesmith.schedule.resolution import MultiFormSpec
from tilesmith.schedule.spec import ConfigSpec


def by_pointers(spec: MultiFormSpec, config: Config) -> Config:
    """The same with pointers; where launches before it or its form copy, the kernel's own form."""
    form, _ = spec.of(spec.normalize(config))
    # Launches before another have Configs of their own; warps with roles copy in no other way.
    if form.function.before is not None or (form is not spec and "indexing" not in form.lists):
        config = ConfigSpec.default_config(spec)
    # Of launch axes only the first has no limit.
    kept = {key: value for key, value in config.items() if value != "xyz"}
    return Config.from_dict(kept).updated(indexing="pointer", atomic_indexing="pointer")
