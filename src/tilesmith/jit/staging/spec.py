"""What a Config of a kernel of several launches may say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilesmith.jit.staging.configs import STAGES
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.schedule.spec_lists import SizeItem

Split = Callable[[Config, int], Config]
"""The part of a Config that is about one stage."""


class StagedSpec:
    """What a Config of all stages may say. None stands for a stage that host code has not come to.

    Lists have the entries of all stages, in the order of the source; ``default_config`` and
    ``normalize`` give Configs that list one Config for each stage.
    """

    def __init__(self, stages: Sequence[ConfigSpec | None], split: Split) -> None:
        self.stages = tuple(stages)
        self._split = split

    @property
    def _known(self) -> list[ConfigSpec]:
        return [spec for spec in self.stages if spec is not None]

    @property
    def block_sizes(self) -> tuple[SizeItem, ...]:
        """The tile axes of all stages."""
        return tuple(item for spec in self._known for item in spec.block_sizes)

    @property
    def reduction_loops(self) -> tuple[SizeItem, ...]:
        """The rows of all stages that may be reduced chunk by chunk."""
        return tuple(item for spec in self._known for item in spec.reduction_loops)

    def default_config(self) -> Config:
        """A sensible Config of every stage."""
        return joined([Config() if s is None else s.default_config() for s in self.stages])

    def normalize(self, config: Config | Mapping[str, Any]) -> Config:
        """Every stage's part in full; raises ``InvalidConfig`` when one does not fit."""
        whole = Config.from_dict(config)
        parts = [self._split(whole, number) for number in range(len(self.stages))]
        full = [
            part if spec is None else spec.normalize(part) for spec, part in zip(self.stages, parts)
        ]
        return joined(full)

    def supports_config_key(self, key: str) -> bool:
        """Whether a Config may have this key."""
        return key == STAGES or any(spec.supports_config_key(key) for spec in self._known)

    def unsupported_config_keys(self, config: Mapping[str, object]) -> list[str]:
        """The keys of a Config that would be refused."""
        return sorted(key for key in config if not self.supports_config_key(key))


def joined(configs: Sequence[Config]) -> Config:
    """One Config for each stage, as one."""
    return Config(**{STAGES: [config.config for config in configs]})
