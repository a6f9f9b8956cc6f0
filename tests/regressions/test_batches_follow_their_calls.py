"""vmap in one launch: what else than shapes decides about a call decides about its batch."""

from __future__ import annotations

import torch

import tilesmith
import tilesmith.language as hl

FACTOR = 2.0


@tilesmith.kernel
def flagged(x: torch.Tensor, flag: bool) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * (3 if flag else 2)
    return out


@tilesmith.kernel
def noisy(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + torch.rand_like(x[tile])
    return out


@tilesmith.kernel
def by_device(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    factor = 2.0 if x.device.type == "cpu" else 3.0
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * factor
    return out


@tilesmith.kernel
def by_global(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * FACTOR
    return out


@tilesmith.kernel
def every_third(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(0), 4], dtype=x.dtype, device=x.device)
    part = out[:, ::3]
    for tile in hl.tile(x.size(0)):
        part[tile, 1] = x[tile]
    return out


@tilesmith.kernel
def beside_sevens(x: torch.Tensor) -> torch.Tensor:
    out = x.new_full([x.size(0)], 7.0)
    for tile in hl.tile(x.size(0)):
        out[tile] = out[tile] + x[tile]
    return out


def test_flags_have_code_of_their_own():
    x = torch.ones(3, 5)
    for flag in (False, True, False):
        found = torch.vmap(lambda row, flag=flag: flagged(row, flag))(x)
        assert torch.equal(found, x * (3 if flag else 2))


def test_random_numbers_differ_between_elements_and_calls():
    draw = torch.vmap(noisy, randomness="different")
    first, second = draw(torch.zeros(3, 50)), draw(torch.zeros(3, 50))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, second)


def test_host_code_sees_the_device_of_its_arguments():
    assert torch.equal(torch.vmap(by_device)(torch.ones(3, 5)), torch.full([3, 5], 2.0))


def test_globals_count_at_each_call(monkeypatch):
    x = torch.ones(3, 5)
    assert torch.equal(torch.vmap(by_global)(x), 2 * x)
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    assert torch.equal(torch.vmap(by_global)(x), 5 * x)


def test_memory_that_is_used_through_a_view_first_is_filled_whole():
    x = torch.randn(3, 5)
    expected = torch.zeros(3, 5, 4)
    expected[:, :, 3] = x
    assert torch.equal(torch.vmap(every_third)(x), expected)


def test_new_full_fills_with_its_value():
    x = torch.randn(3, 5)
    assert torch.equal(torch.vmap(beside_sevens)(x), x + 7.0)
