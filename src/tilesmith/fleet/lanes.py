"""The devices of a place as lanes: those of this machine, or of a Ray cluster.

Ray is an optional package (``pip install tilesmith[ray]``), named here alone.
"""

from __future__ import annotations

import importlib
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tilesmith.fleet.node import TimingWorker, is_importable
from tilesmith.fleet.ray_lane import RayLane
from tilesmith.fleet.work import FleetError, Kind
from tilesmith.runtime.device import describe_device
from tilesmith.targets import Target
from tilesmith.tune.places import LocalPlace, Place

TIMER = "tilesmith_timer"
"""The resource of a node whose CPU may be used for timing; as many as should be timed at once."""
CONNECT_S = 3.0
WARM_S = 60.0
"""So long the first search waits for processes that build."""
NAMESPACE = "tilesmith"
MAX_LANES = 64
PLACES = (
    "local (all GPUs of this machine), local:2 (two workers), ray (the cluster of RAY_ADDRESS or "
    "of this machine), ray://host:port"
)
"""What a place may be called, for people."""
CLIENT = "ray://"


def connect(on: str, environment_address: str) -> Any:
    """Ray, connected to a cluster; FleetError if there is none."""
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise FleetError(
            "tuning on a cluster needs Ray, which is not installed: pip install 'tilesmith[ray]'"
        ) from None
    address = environment_address or "auto" if on == "ray" else on
    if ray.is_initialized():
        return ray
    require_reachable(address)
    try:
        ray.init(
            address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR
        )
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise FleetError(f"no Ray cluster at {address}: {_short(error)}") from None
    return ray


def require_reachable(address: str) -> None:
    """Raise soon where nothing listens: Ray itself would try for a minute."""
    host, colon, port = address.removeprefix(CLIENT).rpartition(":")
    if not colon or not port.isdecimal():
        if address == "auto":
            return
        raise FleetError(f"{address!r} is no address of Ray: expected ray://host:port or host:port")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise FleetError(f"no Ray cluster answers at {address}: {reason}") from None


def _short(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def cluster_lanes(ray: Any, device: str) -> tuple[list[RayLane], list[str]]:
    """A lane for each GPU (``cuda``), or for each timer of a node (``cpu``).

    Returns those that came up, and what the others said. FleetError if none did.
    """
    total = ray.cluster_resources()
    count = int(total.get("GPU" if device == "cuda" else TIMER, 0))
    if not count:
        start = (
            "ray start --num-gpus N"
            if device == "cuda"
            else (f"ray start --resources '{{\"{TIMER}\": 1}}'")
        )
        what = "GPU" if device == "cuda" else f"resource {TIMER!r}, which lets a CPU be timed"
        raise FleetError(f"no node of the cluster has a {what}: start its nodes with {start}")
    cores = int(total.get("CPU", 0))
    if not cores:
        raise FleetError("no node of the cluster has a CPU for builds: ray start --num-cpus N")
    needs: dict[str, Any] = {"num_gpus": 1} if device == "cuda" else {"resources": {TIMER: 1}}
    worker = ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy="SPREAD", **needs)(
        TimingWorker
    )
    name = "cuda:0" if device == "cuda" else "cpu"
    make: Callable[[], Any] = lambda: worker.remote(name)  # noqa: E731
    lanes = [RayLane(ray, make, name, max(1, cores // count)) for _ in range(count)]
    # Processes for builds import torch now, not while the first search waits for them.
    warm = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(is_importable)
    ray.wait([warm.remote() for _ in range(cores)], num_returns=cores, timeout=WARM_S)
    return _started(lanes)


def _started(lanes: Sequence[RayLane]) -> tuple[list[RayLane], list[str]]:
    problems = {lane: problem for lane in lanes if (problem := lane.find_problem())}
    for lane in problems:
        with suppress(Exception):
            lane.close()
    usable = [lane for lane in lanes if lane not in problems]
    if not usable:
        raise FleetError("\n".join(dict.fromkeys(problems.values())))
    return usable, list(problems.values())


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
