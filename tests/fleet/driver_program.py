"""A driver that searches on a cluster until it is killed, or to the end; prints a line then."""

from __future__ import annotations

import sys

import torch

from examples.softmax import softmax
from tilesmith.fleet.tuning import FleetRequest, tune_fleet
from tilesmith.jit.tuner import TuneRequest


def main() -> None:
    address, folder, budget_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    torch.set_num_threads(1)
    request = TuneRequest(True, budget_s, {"cache_dir": folder})
    (found,) = tune_fleet([(softmax, (torch.randn(32, 96),))], FleetRequest(address, request))
    assert found.result is not None
    sys.stdout.write(f"{found.result.ms} {found.result.num_recalled} {found.num_measured}\n")


if __name__ == "__main__":
    main()
