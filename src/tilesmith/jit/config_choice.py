"""Which Config a bound kernel uses when a call names none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilesmith.compiler.split_tiles import split_tile_sizes
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.runners import Runner
from tilesmith.jit.specs import SpecStore
from tilesmith.jit.variants import VariantStore
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.targets import Target

ConfigLike = Config | Mapping[str, Any] | None


class ConfigChoice:
    """The Config given, chosen before, of the decorator, or the target's default."""

    def __init__(
        self, definition: KernelDefinition, variants: VariantStore, specs: SpecStore
    ) -> None:
        self.chosen: Config | None = None
        """What ``set_config`` was given or a tuner has found."""
        self._definition = definition
        self._variants = variants
        self._specs = specs

    def spec(self, target: Target) -> ConfigSpec:
        """What a Config may contain."""
        return self._specs.get(self._variants.default, target)

    def resolve(self, config: ConfigLike, target: Target) -> Config:
        """A Config, whatever was given."""
        if config is not None:
            return config if isinstance(config, Config) else Config.from_dict(config)
        if self.chosen is not None:
            return self.chosen
        if self._definition.configs:
            return self._definition.configs[0]
        return self.spec(target).default_config()

    @property
    def is_default(self) -> bool:
        """Whether nobody has said anything about a Config."""
        return self.chosen is None and not self._definition.configs

    def first(self, runner: Runner, target: Target) -> Config | None:
        """What suits the runner; None: whole tensors as tiles."""
        configs = self._definition.configs
        if runner is Runner.REFERENCE and not configs:
            return None
        config = self.resolve(None, target)
        if runner is not Runner.CHECKED or configs:
            return config
        function = self._variants.default.function
        blocks = split_tile_sizes(function, config.get("block_sizes", []))
        return config.updated(block_sizes=blocks)
