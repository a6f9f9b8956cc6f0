"""One-shot all-reduce: every rank reads the buffers of all ranks and adds them up itself.

For small messages this beats a ring: one kernel, each element crosses each link once.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.distributed.ranks import random_buffers
from tilesmith.numerics.compare import check_against


@helion.kernel
def all_reduce(peers: tuple[torch.Tensor, ...]) -> torch.Tensor:
    out = torch.empty_like(peers[0])
    for tile in hl.tile(out.size(0)):
        total = hl.zeros([tile], dtype=torch.float32)
        for peer in peers:
            total = total + peer[tile].to(torch.float32)
        out[tile] = total.to(out.dtype)
    return out


def reference(peers: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return torch.stack([peer.double() for peer in peers]).sum(0)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    peers = random_buffers(4, [10000], torch.bfloat16, device)
    report = check_against(all_reduce(peers), reference(peers), reduction_length=len(peers))
    print(f"all_reduce: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
