"""Searches on the GPUs of this machine by lanes, also for arguments that lie on the CPU.

    python -m benchmarks.fleet_on_gpu [--budget 6]

The winner is stored under the GPU's name in every case; a call of the kernel on the GPU takes it.
"""

from __future__ import annotations

import argparse
import tempfile
import time

import torch

import tilesmith as helion
from examples.softmax import softmax
from tilesmith.fleet.tuning import FleetRequest, tune_fleet
from tilesmith.jit.tuner import TuneRequest
from tilesmith.store.winners import Winners


def main() -> None:
    """Print what lanes found, and what is stored."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=6.0)
    given = parser.parse_args()
    on_gpu = torch.randn(4096, 4096, device="cuda")
    for on, x in (("local", on_gpu), ("local:2", on_gpu), ("local", on_gpu.cpu())):
        folder = tempfile.mkdtemp()
        kernel = helion.kernel(softmax.fn, cache_dir=folder)
        start = time.monotonic()
        request = FleetRequest(on, TuneRequest(True, given.budget), "cuda")
        (found,) = tune_fleet([(kernel, (x,))], request)
        assert found.result is not None
        took = time.monotonic() - start
        print(f"{on}, {x.device}: {found.result.ms:.4f} ms, {found.num_measured} configs by")
        print(f"  {', '.join(found.lanes)}, {took:.1f} s, {found.result.stop}", flush=True)
        for winner in Winners(folder).entries():
            print(f"  stored for {winner.key.device}, {winner.key.target}: {winner.median_ms:.4f}")
        again = kernel.bind((on_gpu,))
        again.ensure_config_exists((on_gpu,))
        error = (kernel(on_gpu).double() - torch.softmax(on_gpu.double(), 1)).abs().max().item()
        print(f"  a call has largest error {error:.1e}", flush=True)


if __name__ == "__main__":
    main()
