"""What a search starts from: Configs of the user, of the model, of searches for other shapes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from tilesmith.diagnostics.errors import InvalidConfig
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.store.outcome import Candidate

LOG = logging.getLogger("tilesmith.autotune")
DEFAULT_ORIGIN = "default"
NUM_RANKED = 16


def make_seeds(
    spec: ConfigSpec, given: Sequence[Config], known: Iterable[Config]
) -> tuple[Candidate, ...]:
    """Ranked, best first, none twice; what does not fit the kernel is left out and logged."""
    seeds: dict[Config, Candidate] = {}
    for config, origin in _ordered(spec, given, known):
        normal = _normal(spec, config, origin)
        if normal is not None and normal not in seeds:
            seeds[normal] = Candidate(normal, origin, spec.predict(normal).total_ms)
    return tuple(seeds.values())


def _ordered(
    spec: ConfigSpec, given: Sequence[Config], known: Iterable[Config]
) -> Iterator[tuple[Config, str]]:
    for config in given:
        yield config, "user"
    yield spec.default_config(), DEFAULT_ORIGIN
    for config in known:
        yield config, "journal"
    for ranked in spec.ranked_configs(NUM_RANKED):
        yield ranked.config, "model"


def _normal(spec: ConfigSpec, config: Config, origin: str) -> Config | None:
    try:
        return spec.normalize(config)
    except InvalidConfig as error:
        level = logging.WARNING if origin == "user" else logging.DEBUG
        LOG.log(level, "a seed config (%s) is left out: %s", origin, str(error).splitlines()[0])
        return None
