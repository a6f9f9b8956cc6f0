"""Products with experts, quantised weights and filters as people port them, as data."""

from __future__ import annotations

import torch

from examples.ports import causal_conv1d, cholesky, conv2d, fp8_blockwise, moe_permute, nf4_matmul
from tests.examples.case import Args, Size, blocks, last
from tests.examples.ports.port import Port
from tilesmith.numerics.inputs import random_tensor

# Tokens, experts, experts of each token, width.
TOKENS: tuple[Size, ...] = (
    (0, 4, 2, 3),
    (1, 1, 1, 1),
    (16, 16, 4, 16),
    (17, 5, 3, 15),
    (37, 13, 2, 53),
)
# Rows, columns, inner; a block of fp8 has 128.
QUANTISED: tuple[Size, ...] = ((1, 1, 1), (16, 128, 128), (17, 129, 131), (5, 37, 257))
ROWS: tuple[Size, ...] = ((1, 1), (16, 128), (17, 127), (5, 257))
# Rows, columns, inner (even); a group of NF4 has 64.
PACKED: tuple[Size, ...] = ((1, 1, 2), (16, 16, 64), (17, 15, 66), (7, 37, 134))
# Batch, channels, length, taps.
FILTERS: tuple[Size, ...] = (
    (0, 3, 4, 4),
    (1, 1, 1, 1),
    (1, 16, 16, 4),
    (2, 17, 15, 3),
    (2, 13, 37, 4),
)
# Images, channels in and out, rows, columns, filter, stride, padding.
IMAGES: tuple[Size, ...] = (
    (1, 1, 1, 1, 1, 1, 1, 0),
    (1, 16, 16, 4, 4, 3, 1, 1),
    (2, 3, 17, 7, 5, 3, 2, 1),
    (1, 17, 5, 11, 13, 2, 1, 0),
)
# Batch, rows.
MATRICES: tuple[Size, ...] = ((1, 1), (16, 2), (17, 8), (5, 13))


def logits(size: Size, dtype: torch.dtype, device: str) -> Args:
    tokens, experts, chosen, _ = size
    # Distinct in every type, so that the best are the same in all.
    order = torch.rand(tokens, experts, generator=torch.Generator().manual_seed(0)).argsort(-1)
    return (order / 8).to(dtype).to(device), chosen


def choices(size: Size, dtype: torch.dtype, device: str) -> Args:
    _, experts, chosen, _ = size
    found = logits(size, torch.float32, device)[0].topk(chosen, -1).indices
    return found.to(torch.int32), experts


def places(size: Size, device: str) -> torch.Tensor:
    return moe_permute.reference_sort(*choices(size, torch.float32, device))[0]


def tokens(size: Size, dtype: torch.dtype, device: str) -> Args:
    x = random_tensor((size[0], size[3]), dtype, seed=0, device=device)
    return x, places(size, device)


def results(size: Size, dtype: torch.dtype, device: str) -> Args:
    y = random_tensor((size[0] * size[2], size[3]), dtype, seed=0, device=device)
    weights = random_tensor((size[0], size[2]), torch.float32, seed=1, device=device)
    return y, places(size, device), weights


def rows(size: Size, dtype: torch.dtype, device: str) -> Args:
    return (random_tensor(size, dtype, seed=0, device=device),)


def reference_groups(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and scales in fp64; what is compared is the fp8 value, rounded once."""
    k = x.size(1)
    padded = torch.nn.functional.pad(x.double(), (0, -k % fp8_blockwise.BLOCK))
    groups = padded.view(x.size(0), -1, fp8_blockwise.BLOCK)
    scales = groups.abs().amax(-1).clamp(min=1e-10) / fp8_blockwise.FP8_MAX
    return (groups / scales[..., None]).flatten(1)[:, :k], scales


def fp8_operands(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    x = random_tensor((m, k), torch.float32, seed=0, device=device)
    x_scales = reference_groups(x)[1].float()
    x8 = (x.double() / fp8_blockwise.expand_scales(x_scales, 1, fp8_blockwise.BLOCK)[:, :k]).to(
        dtype
    )
    w, w_scales = fp8_blockwise.quantise_squares(
        random_tensor((n, k), torch.float32, seed=1, device=device)
    )
    return x8, w, x_scales, w_scales


def nf4_operands(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    x = random_tensor((m, k), dtype, seed=0, device=device)
    packed, scales = nf4_matmul.quantise(
        random_tensor((n, k), torch.float32, seed=1, device=device)
    )
    return x, packed, scales, torch.tensor(nf4_matmul.CODES, device=device)


def filtered(size: Size, dtype: torch.dtype, device: str) -> Args:
    batch, d, length, width = size
    x = random_tensor((batch, d, length), dtype, seed=0, device=device)
    weight = random_tensor((d, width), dtype, seed=1, device=device)
    return x, weight, random_tensor((d,), dtype, seed=2, device=device), "silu"


def filtered_only(size: Size, dtype: torch.dtype, device: str) -> Args:
    x, weight, *_ = filtered(size, dtype, device)
    return x, weight, None, None


def images(size: Size, dtype: torch.dtype, device: str) -> Args:
    n, c, o, h, w, side, stride, padding = size
    x = random_tensor((n, c, h, w), dtype, seed=0, device=device)
    weight = random_tensor((o, c, side, side), dtype, seed=1, device=device)
    return x, weight, stride, padding


def taps(size: Size) -> int:
    return size[1] * size[5] ** 2


def matrices(size: Size, dtype: torch.dtype, device: str) -> Args:
    return (cholesky.random_matrices(*size).to(dtype).to(device),)


FP8 = (fp8_blockwise.FP8,)
FP32 = (torch.float32,)
# fmt: off
PRODUCT_PORTS: tuple[Port, ...] = (
    Port("moe_route", moe_permute.route, logits, moe_permute.reference_route, blocks(16), TOKENS,
         lambda size: size[1], typical=(1024, 64, 8, 1)),
    Port("moe_sort_by_expert", moe_permute.sort_by_expert, choices, moe_permute.reference_sort,
         blocks(16, 16), TOKENS, dtypes=FP32, typical=(1024, 64, 8, 1)),
    Port("moe_permute", moe_permute.permute, tokens, moe_permute.reference_permute, blocks(16, 16),
         TOKENS, typical=(256, 64, 8, 1024)),
    Port("moe_unpermute", moe_permute.unpermute, results, moe_permute.reference_unpermute,
         blocks(16, 16), TOKENS, lambda size: size[2], typical=(256, 64, 8, 1024)),
    # Triton's interpreter truncates to fp8.
    Port("fp8_quantise_groups", fp8_blockwise.quantise_groups, rows, reference_groups, blocks(16),
         ROWS, noticeable=0.1, is_interpretable=False, missing_targets=("cuda:80",),
         typical=(512, 2048)),
    # Hopper's fp8 tensor cores keep about 14 bits of a partial sum.
    Port("fp8_blockwise", fp8_blockwise.fp8_blockwise, fp8_operands, fp8_blockwise.reference,
         blocks(16, 16), QUANTISED, last, rounded_to=(torch.float16,), dtypes=FP8, noticeable=1e-2,
         missing_targets=("cuda:80",), typical=(512, 1024, 1024)),
    Port("nf4_matmul", nf4_matmul.nf4_matmul, nf4_operands, nf4_matmul.reference,
         blocks(16, 16, 16), PACKED, last, (1,), typical=(16, 1024, 1024)),
    Port("causal_conv1d", causal_conv1d.causal_conv1d, filtered, causal_conv1d.reference,
         blocks(16, 16), FILTERS, last, typical=(2, 1024, 1024, 4)),
    Port("causal_conv1d_plain", causal_conv1d.causal_conv1d, filtered_only, causal_conv1d.reference,
         blocks(16, 16), FILTERS, last, typical=(2, 1024, 1024, 4)),
    Port("conv2d", conv2d.conv2d, images, conv2d.reference, blocks(16, 16, 16), IMAGES, taps,
         typical=(2, 128, 128, 28, 28, 3, 1, 1)),
    Port("cholesky", cholesky.cholesky, matrices, cholesky.reference, blocks(16), MATRICES,
         lambda size: size[1] ** 2, dtypes=FP32, typical=(256, 32)),
)
# fmt: on
