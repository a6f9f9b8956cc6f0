"""Attention and recurrent states as people port them, as data."""

from __future__ import annotations

import torch

from examples.ports import (
    gated_delta_rule,
    paged_decode,
    selective_scan,
    split_kv_decode,
    varlen_attention,
)
from tests.examples.case import Args, Size, blocks
from tests.examples.ports.port import Port
from tilesmith.numerics.inputs import random_tensor

# Sequences, longest, heads of keys, queries of each, slots of a page, width of a head.
PAGED: tuple[Size, ...] = (
    (1, 1, 1, 1, 1, 16),
    (2, 16, 1, 2, 16, 32),
    (2, 17, 3, 1, 5, 24),
    (3, 53, 2, 5, 7, 37),
)
# Batch, length, heads of keys, queries of each, width of a head, splits.
SPLIT: tuple[Size, ...] = (
    (1, 1, 1, 1, 16, 1),
    (2, 3, 1, 2, 16, 5),
    (1, 16, 2, 1, 32, 2),
    (2, 53, 2, 3, 37, 3),
)
# Batch, heads, splits, width of a head.
JOINED: tuple[Size, ...] = ((0, 2, 3, 5), (1, 1, 1, 1), (2, 3, 16, 16), (3, 5, 17, 37))
# Longest, heads of keys, queries of each, width of a head, window.
PACKED: tuple[Size, ...] = (
    (1, 1, 1, 16, 1),
    (16, 1, 2, 32, 16),
    (17, 2, 1, 24, 1),
    (37, 2, 3, 20, 17),
)
# Batch, length, heads of keys, values of each, width of keys, width of values.
RULES: tuple[Size, ...] = (
    (1, 1, 1, 1, 1, 1),
    (2, 3, 1, 2, 16, 16),
    (1, 7, 2, 1, 24, 17),
    (2, 13, 2, 3, 20, 37),
)
# Batch, channels, length, states.
SCANS: tuple[Size, ...] = ((1, 1, 1, 1), (2, 16, 16, 4), (1, 15, 17, 3), (2, 17, 37, 5))


def on(device: str, *tensors: torch.Tensor) -> Args:
    return tuple(tensor.to(device) for tensor in tensors)


def paged(size: Size, dtype: torch.dtype, device: str) -> Args:
    sequences, longest, heads, group, page, d = size
    lengths = [max(longest * (sequences - i) // sequences, 1) for i in range(sequences)]
    return on(device, *paged_decode.random_inputs(lengths, (heads * group, heads), page, d, dtype))


def split(size: Size, dtype: torch.dtype, device: str) -> Args:
    batch, length, heads, group, d, splits = size
    inputs = split_kv_decode.random_inputs(batch, length, (heads * group, heads), d, dtype)
    return *on(device, *inputs), splits


def parts(size: Size, dtype: torch.dtype, device: str) -> Args:
    values = random_tensor(size, torch.float32, seed=0, device=device)
    sums = random_tensor(size[:3], torch.float32, seed=1, device=device)
    # One split had no keys; another always has some.
    sums[..., 1:2] = float("-inf")
    return values, sums, dtype


def packed(size: Size, dtype: torch.dtype, device: str) -> Args:
    longest, heads, group, d, window = size
    lengths = [longest, 1, longest // 2 + 1]
    *tensors, most, width = varlen_attention.random_inputs(
        lengths, (heads * group, heads), d, window, dtype
    )
    return *on(device, *tensors), most, width


def rules(size: Size, dtype: torch.dtype, device: str) -> Args:
    batch, length, heads, group, dk, dv = size
    inputs = gated_delta_rule.random_inputs(batch, length, (heads, heads * group), (dk, dv), dtype)
    return on(device, *inputs)


def continued_rules(size: Size, dtype: torch.dtype, device: str) -> Args:
    batch, _, heads, group, dk, dv = size
    state = random_tensor((batch, heads * group, dk, dv), torch.float32, seed=1, device=device)
    return *rules(size, dtype, device), state


def scans(size: Size, dtype: torch.dtype, device: str) -> Args:
    batch, channels, length, states = size
    return on(device, *selective_scan.random_inputs(batch, channels, length, states, dtype))


def scores_and_keys(size: Size) -> int:
    """A score sums the head dimension, an output element the keys."""
    return max(size) ** 2


# Weights of a softmax are rounded to the inputs' type before their product.
# fmt: off
ATTENTION_PORTS: tuple[Port, ...] = (
    Port("paged_decode", paged_decode.paged_decode, paged, paged_decode.reference, blocks(16),
         PAGED, scores_and_keys, (1,), typical=(8, 1024, 8, 4, 16, 128)),
    Port("split_kv_parts", split_kv_decode.attend_parts, split, split_kv_decode.reference_parts,
         blocks(16), SPLIT, scores_and_keys, (1,), typical=(2, 2048, 8, 4, 128, 16)),
    Port("split_kv_join", split_kv_decode.join_parts, parts, split_kv_decode.reference_join,
         blocks(16), JOINED, lambda size: size[2], typical=(2, 32, 16, 128)),
    Port("varlen_attention", varlen_attention.varlen_attention, packed, varlen_attention.reference,
         blocks(16, 16), PACKED, scores_and_keys, (1,), typical=(1024, 2, 4, 64, 128)),
    Port("gated_delta_rule", gated_delta_rule.gated_delta_rule, rules, gated_delta_rule.reference,
         blocks(16), RULES, scores_and_keys, typical=(2, 16, 4, 2, 128, 128)),
    Port("gated_delta_rule_continued", gated_delta_rule.gated_delta_rule, continued_rules,
         gated_delta_rule.reference, blocks(16), RULES, scores_and_keys,
         typical=(2, 16, 4, 2, 128, 128)),
    Port("selective_scan", selective_scan.selective_scan, scans, selective_scan.reference,
         blocks(16, 16), SCANS, scores_and_keys, typical=(1, 1024, 256, 16)),
)
# fmt: on
