"""State-space models and linear attention, as data."""

from __future__ import annotations

import torch

from examples import gdn_fwd_h, mamba2_chunk_scan, mamba2_chunk_state
from examples.linear import channel_decay, delta_rule, scalar_decay
from tests.examples.case import Args, Case, Size, blocks, larger
from tilesmith.numerics.inputs import random_tensor

# Batch, heads (groups of two), length, chunk, width of a head, width of the state.
MODELS: tuple[Size, ...] = ((1, 2, 3, 16, 2, 3), (2, 4, 37, 16, 21, 17))
# Batch, heads, length, chunk, width of keys, width of values.
STATES: tuple[Size, ...] = ((1, 1, 3, 16, 16, 2), (2, 3, 53, 16, 24, 21))
# Rows, length, width of keys, width of values.
ROWS: tuple[Size, ...] = ((1, 1, 16, 1), (3, 37, 24, 21))
CHUNK = 16


def moved(tensors: tuple[torch.Tensor, ...], device: str) -> Args:
    return tuple(tensor.to(device) for tensor in tensors)


def chunk_states(size: Size, dtype: torch.dtype, device: str) -> Args:
    batch, heads, length, chunk, p, n = size
    sizes = (batch, heads, max(heads // 2, 1), length)
    return moved(mamba2_chunk_state.random_inputs(sizes, chunk, (p, n), dtype), device)


def chunk_scans(size: Size, dtype: torch.dtype, device: str) -> Args:
    batch, heads, length, chunk, p, n = size
    sizes = (batch, heads, max(heads // 2, 1), length)
    return moved(mamba2_chunk_scan.random_scan_inputs(sizes, chunk, (p, n), dtype), device)


def delta_states(size: Size, dtype: torch.dtype, device: str) -> Args:
    batch, heads, length, chunk, dk, dv = size
    inputs = gdn_fwd_h.random_inputs((batch, heads, length), chunk, (dk, dv), dtype)
    return *moved(inputs, device), chunk


def log_decays(shape: Size, device: str) -> torch.Tensor:
    return -random_tensor(shape, torch.float32, seed=5, device=device).abs() * 0.1


def decaying(size: Size, dtype: torch.dtype, device: str) -> Args:
    rows, length, *widths = size
    inputs = scalar_decay.random_rows(rows, length, (widths[0], widths[1]), device, dtype)
    return *inputs, log_decays((rows, length), device), CHUNK


def decaying_sequences(size: Size, dtype: torch.dtype, device: str) -> Args:
    *inputs, chunk = decaying(size, dtype, device)
    length = size[1]
    bounds = [0, 0, length // 3, length // 3 + 1, length]
    return *inputs, torch.tensor(sorted(bounds), device=device), chunk


def corrected(size: Size, dtype: torch.dtype, device: str) -> Args:
    rows, length, *widths = size
    q, k, v, beta = delta_rule.random_rows(rows, length, (widths[0], widths[1]), device, dtype)
    return q, k, v, beta, log_decays((rows, length), device), CHUNK


def channels(size: Size, dtype: torch.dtype, device: str) -> Args:
    q, k, v, *_ = decaying(size, dtype, device)
    return q, k, v, log_decays(tuple(k.shape), device)


def corrected_channels(size: Size, dtype: torch.dtype, device: str) -> Args:
    q, k, v, beta, *_ = corrected(size, dtype, device)
    return q, k, v, log_decays(tuple(k.shape), device), beta


def transposed_channels(size: Size, dtype: torch.dtype, device: str) -> Args:
    rows, length, dk, dv = size
    z, _, x = scalar_decay.random_rows(rows, length, (dk, dv), device, dtype)
    y = random_tensor(x.shape, dtype, seed=7, device=device)
    return x, y, z, log_decays((rows, length, dk), device)


# Weights or states are rounded to the inputs' type before their products, chunk after chunk.
# fmt: off
RECURRENCE: tuple[Case, ...] = (
    Case("mamba2_chunk_state", mamba2_chunk_state.mamba2_chunk_state, chunk_states,
         mamba2_chunk_state.reference, blocks(16, 16, 16), MODELS, larger, (1,)),
    Case("mamba2_chunk_scan", mamba2_chunk_scan.mamba2_chunk_scan, chunk_scans,
         mamba2_chunk_scan.reference, blocks(16, 16, 16, 16), MODELS, larger, (2,)),
    Case("gdn_fwd_h", gdn_fwd_h.gdn_fwd_h, delta_states, gdn_fwd_h.reference, blocks(16),
         STATES, larger, (3, 3)),
    Case("scalar_decay", scalar_decay.scalar_decay, decaying, scalar_decay.reference, blocks(16),
         ROWS, larger, (3,)),
    Case("scalar_decay_varlen", scalar_decay.scalar_decay_varlen, decaying_sequences,
         scalar_decay.reference_varlen, blocks(16), ROWS, larger, (3,)),
    Case("delta_rule", delta_rule.delta_rule, corrected, delta_rule.reference, blocks(16), ROWS,
         larger),
    Case("channel_decay", channel_decay.channel_decay, channels, channel_decay.reference,
         blocks(16), ROWS, larger),
    Case("channel_decay_delta", channel_decay.channel_decay, corrected_channels,
         channel_decay.reference, blocks(16), ROWS, larger),
    Case("transposed_channel_decay", channel_decay.transposed_channel_decay, transposed_channels,
         channel_decay.reference_transposed, blocks(16), ROWS, larger),
)
# fmt: on
