"""Random numbers: every backend and every config gives the same bits."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, randn
from tests.frontend import philox_reference

SEED = 0x1234_5678_9ABC_DEF0


@helion.kernel
def noise(x: torch.Tensor, seed: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for t, u in hl.tile(x.shape):
        out[t, u] = hl.rand([t, u], seed=seed)
    return out


@helion.kernel
def noise_in_rows(x: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = hl.rand([t, x.size(1)], seed[0])
    return out


@helion.kernel
def noise_in_a_loop(x: torch.Tensor, seed: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        for u in hl.tile(x.size(1)):
            out[t, u] = hl.rand(x[t, u].shape, seed)
    return out


@helion.kernel
def whole_numbers(x: torch.Tensor, seed: int) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=torch.int32, device=x.device)
    for t in hl.grid(x.size(0)):
        for u in hl.tile(x.size(1)):
            out[t, u] = hl.randint([u], -3, 9, seed)
    return out


@helion.kernel
def four_at_once(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty([4, x.size(0)])
    for t in hl.tile(x.size(0)):
        a, b, c, d = hl.rand4x(7, t.index * 3)
        out[0, t] = a
        out[1, t] = b
        out[2, t] = c
        out[3, t] = d
    return out


@helion.kernel
def dropout(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        keep = hl.rand([t], seed) > p
        out[t] = torch.where(keep, x[t] * 2, 0.0)
    return out


@helion.kernel
def torch_noise(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    first, second, third = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
    for t, u in hl.tile(x.shape):
        first[t, u] = torch.rand([t, u])
        second[t, u] = torch.rand_like(x[t, u])
        third[t, u] = torch.nn.functional.dropout(x[t, u], 0.25)
    return first, second, third


def seeded(*shape: int) -> tuple[torch.Tensor]:
    torch.manual_seed(11)
    return (randn(*shape),)


def drawn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    seed = torch.randint(2**63 - 1, (), device="cpu").item()
    noise = [philox_reference.rand(tuple(x.shape), int(seed), series=n) for n in (1, 2, 3)]
    kept = torch.where(noise[2] >= 0.25, x.cpu() * torch.tensor(4 / 3), 0.0)
    return noise[0], noise[1], kept


def dropped(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    keep = philox_reference.rand((x.size(0),), seed) > torch.tensor(p)
    return torch.where(keep, x.cpu() * 2, 0.0)


def four(x: torch.Tensor) -> torch.Tensor:
    words = philox_reference.words_at(torch.arange(x.size(0), device="cpu").numpy() * 3, 7)
    return torch.stack([philox_reference.uniform(word) for word in words])


# fmt: off
RANDOM = (
    Case("noise", noise, lambda: (randn(5, 13), SEED),
         lambda x, seed: philox_reference.rand((5, 13), seed), blocks(4, 8), EXACT),
    Case("noise_of_seed_one", noise, lambda: (randn(5, 13), 1),
         lambda x, seed: philox_reference.rand((5, 13), seed), blocks(2, 4), EXACT),
    Case("noise_in_rows", noise_in_rows, lambda: (randn(5, 13), torch.tensor([SEED])),
         lambda x, seed: philox_reference.rand((5, 13), SEED), blocks(4), EXACT),
    Case("noise_in_a_loop", noise_in_a_loop, lambda: (randn(5, 13), 7),
         lambda x, seed: philox_reference.rand((5, 13), seed), blocks(4, 8), EXACT),
    Case("whole_numbers", whole_numbers, lambda: (randn(3, 13), -5),
         lambda x, seed: philox_reference.randint((13,), -3, 9, seed).expand(3, 13).contiguous(),
         blocks(8), EXACT),
    Case("four_at_once", four_at_once, lambda: (randn(13),), four, blocks(8), EXACT),
    Case("torch_noise", torch_noise, lambda: seeded(5, 13), drawn, blocks(2, 8), EXACT),
    Case("dropout", dropout, lambda: (randn(133), 0.25, 99), dropped, blocks(32), EXACT),
)
# fmt: on
