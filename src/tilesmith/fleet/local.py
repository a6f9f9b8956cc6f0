"""The devices of this machine as lanes: every visible GPU, or the CPU (once, unless asked)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilesmith.fleet.work import FleetError, Kind
from tilesmith.runtime.device import describe_device
from tilesmith.targets import Target
from tilesmith.tune.places.place import LocalPlace, Place

MAX_LANES = 64


@dataclass
class LocalLane:
    """A device of this machine. Its processes come back by themselves: it is never lost."""

    name: str
    kind: Kind
    place: Place
    loss: str = ""

    def revive(self, is_wanted: Callable[[], bool]) -> bool:
        """There is no other."""
        return False

    def close(self) -> None:
        """Its processes were given back after each search."""


def local_lanes(on: str, devices: list[tuple[str, Target]]) -> list[LocalLane]:
    """Lanes for ``local`` or ``local:N``, of the devices that kernels can run on here."""
    _, has_count, text = on.partition(":")
    if has_count and not (text.isdecimal() and 1 <= int(text) <= MAX_LANES):
        raise FleetError(f"--on {on}: expected local, or local:N with N from 1 to {MAX_LANES}")
    count = int(text) if has_count else len(devices)
    chosen = [devices[number % len(devices)] for number in range(count)]
    lanes: list[LocalLane] = []
    for number, (name, target) in enumerate(chosen):
        kind = Kind(target, describe_device(target))
        lanes.append(LocalLane(f"{name}#{number}", kind, LocalPlace(name, count)))
    return lanes
