"""State-space models and gated delta nets, chunk by chunk."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

from benchmarks.suites.arguments import Size, inputs
from benchmarks.suites.widening import by_parts
from examples import gdn_fwd_h, mamba2_chunk_scan, mamba2_chunk_state
from tilesmith.bench.case import Arguments, Operator

FP32 = torch.float32
# Batch, heads, groups, length, chunk, width of a head, width of the state.
MODELS = (
    *((batch, 80, 1, 4096, 256, 64, 128) for batch in (1, 2, 4, 8)),
    (8, 80, 1, 8192, 256, 64, 128),
)
SMALL_MODELS = (
    (1, 2, 1, 40, 16, 16, 16),
    (1, 4, 2, 150, 64, 32, 16),
    (1, 8, 1, 1024, 128, 64, 64),
)
# Batch, heads, length, chunk, width of keys, width of values.
STATES = (
    *((batch, 32, 4096, 64, 128, 128) for batch in (1, 2, 4)),
    (2, 80, 4096, 64, 128, 128),
    (2, 80, 8192, 64, 128, 128),
)
SMALL_STATES = ((1, 2, 40, 16, 16, 16), (1, 4, 200, 32, 32, 48), (1, 8, 1024, 64, 64, 64))


def moved(tensors: tuple[torch.Tensor, ...], device: torch.device) -> Arguments:
    return tuple(tensor.to(device) for tensor in tensors)


def chunk_states(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    batch, heads, groups, length, chunk, p, n = size
    sizes = (batch, heads, groups, length)
    return moved(mamba2_chunk_state.random_inputs(sizes, chunk, (p, n), dtype), device)


def chunk_scans(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    batch, heads, groups, length, chunk, p, n = size
    sizes = (batch, heads, groups, length)
    return moved(mamba2_chunk_scan.random_scan_inputs(sizes, chunk, (p, n), dtype), device)


def delta_states(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    batch, heads, length, chunk, dk, dv = size
    made = gdn_fwd_h.random_inputs((batch, heads, length), chunk, (dk, dv), dtype)
    return *moved(made, device), chunk


def in_chunks(x: torch.Tensor, chunks: int, chunk: int) -> torch.Tensor:
    """``[batch, length, head, width]`` padded and cut into chunks."""
    batch, length, heads, width = x.shape
    padded = pad(x, (0, 0, 0, 0, 0, chunks * chunk - length))
    return padded.view(batch, chunks, chunk, heads, width)


def eager_chunk_state(
    b: torch.Tensor, x: torch.Tensor, dt: torch.Tensor, decay: torch.Tensor
) -> torch.Tensor:
    chunks, chunk = dt.shape[2:]
    weight = torch.exp(decay[..., -1:] - decay) * dt
    inward = in_chunks(b.repeat_interleave(x.size(2) // b.size(2), 2), chunks, chunk)
    scaled = in_chunks(x, chunks, chunk) * weight.permute(0, 2, 3, 1)[..., None]
    return torch.einsum("bclhp,bclhn->bchpn", scaled.to(x.dtype), inward)


def eager_chunk_scan(
    cb: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    decay: torch.Tensor,
    c: torch.Tensor,
    states: torch.Tensor,
    *d: torch.Tensor,
) -> torch.Tensor:
    (batch, length, heads, p), (chunks, chunk) = x.shape, dt.shape[2:]
    repeats = heads // c.size(2)
    inputs_ = in_chunks(x, chunks, chunk)
    outward = in_chunks(c.repeat_interleave(repeats, 2), chunks, chunk)
    entering = torch.einsum("bclhn,bchpn->bclhp", outward, states).float()
    entering = entering * decay.permute(0, 2, 3, 1).exp()[..., None]
    # Later positions count for nothing, and must not overflow on the way there.
    passed = (decay[..., :, None] - decay[..., None, :]).tril().exp().tril()
    weights = cb.repeat_interleave(repeats, 2).permute(0, 2, 1, 3, 4) * passed * dt[..., None, :]
    own = torch.einsum("bhclk,bckhp->bclhp", weights.to(x.dtype), inputs_)
    out = entering + own + inputs_ * d[0][:, None]
    return out.to(x.dtype).reshape(batch, chunks * chunk, heads, p)[:, :length]


def exact_chunk_scan(*arguments: torch.Tensor) -> torch.Tensor:
    """In float64, some batches at a time; the last argument has no batches."""
    return by_parts(mamba2_chunk_scan.reference, 6, num_weights)(*arguments)


def num_weights(cb: torch.Tensor, x: torch.Tensor, *others: Any) -> int:
    return cb.numel() * x.size(2)


def eager_delta_states(
    k: torch.Tensor, w: torch.Tensor, u: torch.Tensor, g: torch.Tensor, chunk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    keys, correction, values, gates = (x.transpose(1, 2) for x in (k, w, u, g))
    batch, heads, length, dk = keys.shape
    state = torch.zeros(batch, heads, dk, u.size(-1), dtype=FP32, device=k.device)
    states: list[torch.Tensor] = []
    corrected: list[torch.Tensor] = []
    for begin in range(0, length, chunk):
        now = slice(begin, begin + chunk)
        states.append(state.to(k.dtype))
        rest = values[:, :, now].float() - (correction[:, :, now] @ states[-1]).float()
        corrected.append(rest.to(u.dtype))
        gate = gates[:, :, now].float()
        last = gate[..., -1:]
        decayed = rest * torch.exp(last - gate)[..., None]
        added = keys[:, :, now].transpose(-1, -2) @ decayed.to(k.dtype)
        state = state * torch.exp(last)[..., None] + added.float()
    return torch.stack(states, 1), torch.cat(corrected, 2).transpose(1, 2)


def state_flops(b: torch.Tensor, x: torch.Tensor, *others: Any) -> float:
    return 2.0 * x.numel() * b.size(-1)


def scan_flops(*arguments: torch.Tensor) -> float:
    """States times projections, and half of the square of each chunk times its inputs."""
    _, x, dt, _, c, *_ = arguments
    return 2.0 * x.numel() * (c.size(-1) + dt.size(-1) / 2)


def delta_flops(k: torch.Tensor, w: torch.Tensor, u: torch.Tensor, *others: Any) -> float:
    return 4.0 * k.numel() * u.size(-1)


def operators() -> tuple[Operator, ...]:
    """Those of this family."""
    return (
        Operator(
            "mamba2_chunk_state",
            inputs=inputs(chunk_states, MODELS),
            cpu_inputs=inputs(chunk_states, SMALL_MODELS, FP32),
            kernels={"mamba2_chunk_state": "examples.mamba2_chunk_state:mamba2_chunk_state"},
            eager=eager_chunk_state,
            exact=by_parts(mamba2_chunk_state.reference, 4),
            flops=state_flops,
            reduction_length=lambda b, x, dt, decay: dt.size(-1),
            # The weighted inputs are rounded before the product.
            roundings=1,
            num_products=1,
        ),
        Operator(
            "mamba2_chunk_scan",
            inputs=inputs(chunk_scans, MODELS),
            cpu_inputs=inputs(chunk_scans, SMALL_MODELS, FP32),
            kernels={"mamba2_chunk_scan": "examples.mamba2_chunk_scan:mamba2_chunk_scan"},
            eager=eager_chunk_scan,
            exact=exact_chunk_scan,
            flops=scan_flops,
            reduction_length=lambda cb, x, dt, *others: dt.size(-1) + others[1].size(-1),
            # Weights before the product; eager also rounds both products.
            roundings=2,
            num_products=1,
        ),
        Operator(
            "gdn_fwd_h",
            inputs=inputs(delta_states, STATES),
            cpu_inputs=inputs(delta_states, SMALL_STATES, FP32),
            kernels={"gdn_fwd_h": "examples.gdn_fwd_h:gdn_fwd_h"},
            eager=eager_delta_states,
            exact=gdn_fwd_h.reference,
            flops=delta_flops,
            reduction_length=lambda k, *others: k.size(1),
            # The state, what is predicted, what is added: errors pass from chunk to chunk.
            roundings=4,
            num_products=2,
        ),
    )
