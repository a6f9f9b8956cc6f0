"""Places that do not exist, each with the whole text of its error."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest

from tilesmith.fleet.lanes import cluster_lanes, connect, local_lanes, require_reachable
from tilesmith.fleet.work import FleetError
from tilesmith.runtime.device import device_targets


def message(call: Any) -> str:
    with pytest.raises(FleetError) as caught:
        call()
    return str(caught.value)


def test_an_address_where_nothing_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"ray://127.0.0.1:{port}"
    expected = f"no Ray cluster answers at {address}: Connection refused"
    assert message(lambda: require_reachable(address)) == expected


@pytest.mark.parametrize("address", ["ray://host", "cluster", "ray://:x", ""])
def test_no_address(address: str) -> None:
    expected = f"{address!r} is no address of Ray: expected ray://host:port or host:port"
    assert message(lambda: require_reachable(address)) == expected


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert message(lambda: connect("ray", "")) == (
        "tuning on a cluster needs Ray, which is not installed: pip install 'tilesmith[ray]'"
    )


class Resources:
    def __init__(self, **found: float) -> None:
        self._found = found

    def cluster_resources(self) -> dict[str, float]:
        return self._found


def test_a_cluster_without_what_is_asked_for() -> None:
    assert message(lambda: cluster_lanes(Resources(CPU=8), "cuda")) == (
        "no node of the cluster has a GPU: start its nodes with ray start --num-gpus N"
    )
    assert message(lambda: cluster_lanes(Resources(CPU=8), "cpu")) == (
        "no node of the cluster has a resource 'tilesmith_timer', which lets a CPU be timed: start "
        "its nodes with ray start --resources '{\"tilesmith_timer\": 1}'"
    )
    assert message(lambda: cluster_lanes(Resources(GPU=1), "cuda")) == (
        "no node of the cluster has a CPU for builds: ray start --num-cpus N"
    )


@pytest.mark.parametrize("on", ["local:0", "local:x", "local:999", "local:-1"])
def test_a_number_of_workers_that_cannot_be(on: str) -> None:
    expected = f"--on {on}: expected local, or local:N with N from 1 to 64"
    assert message(lambda: local_lanes(on, device_targets("cpu"))) == expected


def test_every_gpu_is_a_lane_and_the_cpu_is_one() -> None:
    assert [lane.place.device for lane in local_lanes("local", device_targets("cpu"))] == ["cpu"]
    (device,) = device_targets("cpu")
    gpus = [("cuda:0", device[1]), ("cuda:1", device[1])]
    assert [lane.place.device for lane in local_lanes("local", gpus)] == ["cuda:0", "cuda:1"]
    names = [lane.name for lane in local_lanes("local:3", gpus)]
    assert names == ["cuda:0#0", "cuda:1#1", "cuda:0#2"]
