"""``deterministic=True``: the same bits every time, however programs are ordered.

Schedules under which programs add floats to one element, or do to it what else depends on their
order, are refused; where the source itself wants that, an error says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from tilesmith.analysis.run_order import SharedUpdate
from tilesmith.diagnostics.errors import NondeterministicKernel
from tilesmith.ir.function import Function
from tilesmith.schedule.config import Config
from tilesmith.schedule.single_programs import find_order_dependence
from tilesmith.schedule.space.fragments import Fragment
from tilesmith.settings import Settings

MAX_TRIED = 32
"""Values of tunables that are tried for a default; each may be a new trace."""
FindUpdate = Callable[[Config], "SharedUpdate | None"]


def check_deterministic(function: Function, config: Config, settings: Settings) -> None:
    """Raise if it is asked for, and results depend on the order of programs under the Config."""
    update = find_order_dependence(function, config) if settings.deterministic else None
    if update is not None:
        deed, harm = update.hazard.value
        raise NondeterministicKernel(
            deed=deed, tensor=update.tensor, harm=harm, meeting=update.meeting, loc=update.op.loc
        )


def choose_deterministic(
    config: Config, tunables: dict[str, Fragment], find_update: FindUpdate
) -> Config:
    """The Config, with other values of the kernel's own tunables if that makes it deterministic."""
    if find_update(config) is None:
        return config
    for values in _combinations(tunables):
        other = config.updated(**values)
        if find_update(other) is None:
            return other
    return config


def _combinations(tunables: dict[str, Fragment]) -> Iterator[dict[str, Any]]:
    names = list(tunables)
    lists = [_values(tunables[name]) for name in names]
    for count, values in enumerate(product(*lists)):
        if count == MAX_TRIED:
            return
        yield dict(zip(names, values))


def _values(fragment: Fragment) -> list[Any]:
    """The default and what can be reached from it, step by step."""
    found = [fragment.default]
    for value in found:
        found += [other for other in fragment.neighbours(value) if other not in found]
        if len(found) >= MAX_TRIED:
            break
    return found
