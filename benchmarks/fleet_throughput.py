"""Configs a minute against workers: measured on Ray nodes of this machine, simulated beyond.

    python -m benchmarks.fleet_throughput [--nodes 1 2] [--budget 20] [-o docs/fleet.svg]

Measured: a Ray cluster of nodes with one core each, all on this machine, that search one product on
the CPU. Simulated: workers that wait instead of timing, and a driver that takes as long for each
candidate as this one does (it traces and prints kernels one at a time).
"""

from __future__ import annotations

import argparse
import heapq
import importlib
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from examples.matmul import matmul
from tilesmith.fleet.tuning import FleetRequest, tune_fleet
from tilesmith.jit.tuner import TuneRequest

WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TRIALS_S = (0.1, 0.3, 1.0)
"""How long a worker checks and times a candidate: small kernels on a GPU, large ones, a CPU."""
SIMULATED_S = 120.0
Row = tuple[int, float]


def measure_driver() -> float:
    """Seconds that the driver takes for a candidate for sm_90: the least of several."""
    x = torch.randn(256, 256)
    bound = matmul.bind((x, x), target="cuda:90")
    configs = [ranked.config for ranked in bound.config_spec.ranked_configs(12)]
    times: list[float] = []
    for config in configs:
        start = time.perf_counter()
        bound.to_artifact(config)
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def measure_cluster(nodes: int, budget_s: float) -> float:
    """Configs a minute of a real cluster."""
    ray: Any = importlib.import_module("ray")
    cluster_utils: Any = importlib.import_module("ray.cluster_utils")
    node = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20}
    timer = {"resources": {"tilesmith_timer": 1}}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={**node, **timer})
    for _ in range(nodes - 1):
        cluster.add_node(**node, **timer)
    x = torch.randn(192, 192)
    try:
        with tempfile.TemporaryDirectory() as folder:
            request = TuneRequest(True, budget_s, {"cache_dir": folder})
            wanted = FleetRequest(str(cluster.address), request)
            (found,) = tune_fleet([(matmul, (x, x))], wanted)
    finally:
        ray.shutdown()
        cluster.shutdown()
    return found.num_measured / budget_s * 60.0


def simulate(workers: int, driver_s: float, trial_s: float) -> float:
    """Configs a minute of workers that each wait for the driver, then for the device."""
    ready = [0.0] * workers
    driver_free, done = 0.0, 0
    while ready[0] < SIMULATED_S:
        asked = heapq.heappop(ready)
        driver_free = max(driver_free, asked) + driver_s
        done += driver_free + trial_s < SIMULATED_S
        heapq.heappush(ready, driver_free + trial_s)
    return done / SIMULATED_S * 60.0


def draw(path: Path, measured: Sequence[Row], driver_s: float) -> None:
    """The picture, with what is simulated dashed."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "tilesmith"
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for trial_s in TRIALS_S:
        rates = [simulate(count, driver_s, trial_s) for count in WORKERS]
        axes.plot(WORKERS, rates, "--", label=f"simulated, {trial_s:g} s a trial")
    axes.plot(*zip(*measured), "o", color="black", label="measured: Ray nodes on two cores")
    axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="configs a minute")
    axes.set_xticks(WORKERS, [str(count) for count in WORKERS])
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measure, simulate, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--budget", type=float, default=20.0)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    driver_s = measure_driver()
    print(f"the driver takes {1e3 * driver_s:.1f} ms for a candidate")
    measured = [(count, measure_cluster(count, given.budget)) for count in given.nodes]
    for count, rate in measured:
        print(f"measured   {count:4} workers {rate:8.0f} configs a minute", flush=True)
    print("simulated  workers  " + "  ".join(f"{trial_s:g} s a trial" for trial_s in TRIALS_S))
    for count in WORKERS:
        rates = [simulate(count, driver_s, trial_s) for trial_s in TRIALS_S]
        print(f"{count:18}  " + "  ".join(f"{rate:11.0f}" for rate in rates))
    if given.output:
        draw(given.output, measured, driver_s)


if __name__ == "__main__":
    main()
