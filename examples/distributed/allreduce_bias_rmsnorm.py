"""All-reduce, bias and RMS normalisation in one kernel: the sum never goes back to memory."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.distributed.ranks import random_buffers
from tilesmith.numerics.compare import check_against


@helion.kernel
def allreduce_bias_rmsnorm(
    peers: tuple[torch.Tensor, ...], bias: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5
) -> torch.Tensor:
    rows, columns = peers[0].size()
    columns = hl.specialize(columns)
    out = torch.empty_like(peers[0])
    for tile_m in hl.tile(rows):
        total = hl.zeros([tile_m, columns], dtype=torch.float32)
        for peer in peers:
            total = total + peer[tile_m, :].to(torch.float32)
        total = total + bias[:].to(torch.float32)
        inverse = torch.rsqrt((total * total).mean(-1, keepdim=True) + eps)
        out[tile_m, :] = (total * inverse * weight[:].to(torch.float32)).to(out.dtype)
    return out


def reference(
    peers: tuple[torch.Tensor, ...], bias: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5
) -> torch.Tensor:
    total = torch.stack([peer.double() for peer in peers]).sum(0) + bias.double()
    return total * torch.rsqrt((total * total).mean(-1, keepdim=True) + eps) * weight.double()


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    peers = random_buffers(4, [128, 500], torch.bfloat16, device)
    bias, weight = random_buffers(2, [500], torch.bfloat16, device, seed=1)
    args = (peers, bias, weight)
    report = check_against(allreduce_bias_rmsnorm(*args), reference(*args), reduction_length=500)
    print(f"allreduce_bias_rmsnorm: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
