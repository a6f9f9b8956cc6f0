# type: ignore
"""Kernels that work and are remarked on, and those that are not."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl


def prepared(x):
    return torch.exp(x).t().contiguous()


def reshaped(x):
    return x.t().reshape(-1).view(x.size(0), -1)


def adds_on_the_host(x):
    shifted = x + 1
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = shifted[tile, :]
    return out


def calls_a_function_that_computes(x):
    other = prepared(x)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = other[tile, :]
    return out


def sums_after_the_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :]
    return out.sum(0)


def changes_in_place(x):
    out = torch.empty_like(x)
    out.add_(1)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :]
    return out


def product_of_indices(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile.index, x[tile, 0].to(torch.int64)] = 1.0
    return out


def takes_a_tensor_elsewhere(x):
    out = torch.empty_like(x)
    other = torch.empty(3, device="meta")
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :] * other.size(0)
    return out


def only_sets_the_stage(x):
    n, m = x.shape
    flat = x.view(-1)[1:].unsqueeze(0)
    turned = reshaped(x)
    out = x.new_zeros(m, n).t()
    ones = torch.full_like(x, 1.0)
    noise = torch.rand(n)
    assert n == m
    for tile in hl.tile(n):
        out[tile, :] = turned[tile, :] + ones[tile, :]
    return out.view(n, m).transpose(0, 1), flat, noise


def scaled_products(a, b):
    out = torch.empty(a.size(0), b.size(1))
    for tm, tn in hl.tile([a.size(0), b.size(1)]):
        acc = hl.zeros([tm, tn])
        for tk in hl.tile(a.size(1)):
            acc += (a[tm, tk] @ b[tk, tn]) * 0.5
        out[tm, tn] = acc
    return out


def products_added_up_in_half(a, b):
    out = torch.empty(a.size(0), b.size(1))
    for tm, tn in hl.tile([a.size(0), b.size(1)]):
        acc = hl.zeros([tm, tn], dtype=torch.bfloat16)
        for tk in hl.tile(a.size(1)):
            acc += a[tm, tk] @ b[tk, tn]
        out[tm, tn] = acc
    return out


def half_accumulator_of_a_dot(a, b):
    out = torch.empty(a.size(0), b.size(1))
    for tm, tn in hl.tile([a.size(0), b.size(1)]):
        acc = hl.zeros([tm, tn], dtype=torch.bfloat16)
        for tk in hl.tile(a.size(1)):
            acc = torch.addmm(acc, a[tm, tk], b[tk, tn])
        out[tm, tn] = acc
    return out


def plain_products(a, b):
    out = torch.empty(a.size(0), b.size(1))
    for tm, tn in hl.tile([a.size(0), b.size(1)]):
        acc = hl.zeros([tm, tn])
        for tk in hl.tile(a.size(1)):
            acc += a[tm, tk] @ b[tk, tn]
        out[tm, tn] = acc
    return out


def fresh(function, **settings):
    """A kernel that has not warned yet."""
    return helion.kernel(function, **settings)
