"""Which Config a bound kernel uses when a call names none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilesmith.analysis.run_order import SharedUpdate
from tilesmith.compiler.split_tiles import split_tile_sizes
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.determinism import choose_deterministic
from tilesmith.jit.runners import Runner
from tilesmith.jit.specs import SpecStore
from tilesmith.jit.variants import VariantStore
from tilesmith.schedule.config import Config
from tilesmith.schedule.single_programs import find_order_dependence
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
        return self.default(target)

    def default(self, target: Target) -> Config:
        """What nobody has chosen; with the kernel's tunables as determinism wants them."""
        config = self.spec(target).default_config()
        if not self._definition.settings.deterministic:
            return config
        tunables = self._variants.default.trace.session.tunable_fragments
        return choose_deterministic(config, tunables, self._find_update)

    def order_dependence(self, config: Config) -> str:
        """Why the last bits of results depend on the order of programs; empty if they do not."""
        update = self._find_update(config)
        return "" if update is None else str(update)

    def _find_update(self, config: Config) -> SharedUpdate | None:
        return find_order_dependence(self._variants.find(config).function, config)

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
