"""One process of a training on several: ``python -m ... kind rank num_ranks steps folder``.

Trains the small transformer with our kernels on this rank's share of each batch and writes the
mean loss of all ranks for each step.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from examples.models.operators import KERNELS
from examples.models.transformer import SMALL, Transformer, tokens_of_steps


def spread(model: Transformer, kind: str) -> Any:
    """The model as FSDP2 or DDP train it."""
    if kind == "ddp":
        return DistributedDataParallel(model)
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def train(kind: str, rank: int, num_ranks: int, steps: int) -> torch.Tensor:
    """The losses of all steps, over all ranks."""
    torch.set_num_threads(1)
    shape = replace(SMALL, batch=SMALL.batch // num_ranks)
    model = spread(Transformer(shape, KERNELS, torch.float32), kind)
    optimizer = KERNELS.optimizer(model.parameters())
    losses: list[torch.Tensor] = []
    for tokens in tokens_of_steps(SMALL, steps, "cpu"):
        loss = model(tokens.chunk(num_ranks)[rank])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean / num_ranks)
    return torch.stack(losses).double()


def main() -> None:
    kind, rank, num_ranks, steps, folder = sys.argv[1:]
    store = dist.FileStore(f"{folder}/{kind}-store", int(num_ranks))
    dist.init_process_group("gloo", store=store, rank=int(rank), world_size=int(num_ranks))
    losses = train(kind, int(rank), int(num_ranks), int(steps))
    torch.save(losses, Path(folder) / f"{kind}-{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
