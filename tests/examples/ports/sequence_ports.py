"""Sparse rows, transforms and walks along sequences as people port them, as data."""

from __future__ import annotations

import torch

from examples.ports import ctc_loss, fft, sparse_rows, speculative
from tests.examples.case import Args, Size, blocks
from tests.examples.ports.port import Port
from tilesmith.numerics.inputs import random_tensor

# Steps, sequences, classes, longest target.
LABELLED: tuple[Size, ...] = ((1, 1, 2, 1), (3, 2, 2, 1), (16, 2, 5, 7), (37, 3, 17, 8))
# Sequences, drafted tokens, vocabulary.
DRAFTS: tuple[Size, ...] = ((0, 2, 3), (1, 1, 1), (3, 2, 16), (5, 4, 17), (17, 5, 53))
# Rows, columns, columns of what is multiplied.
SPARSE: tuple[Size, ...] = ((1, 1, 1), (2, 3, 5), (16, 16, 16), (17, 37, 19))
ROWS: tuple[Size, ...] = ((1, 4), (1, 1), (15, 2), (16, 16), (17, 64))


def labelled(size: Size, dtype: torch.dtype, device: str) -> Args:
    steps, batch, classes, length = size
    inputs = ctc_loss.random_inputs(steps, batch, classes, length, dtype)
    return tuple(x.to(device) for x in inputs)


def drafts(size: Size, dtype: torch.dtype, device: str) -> Args:
    return tuple(x.to(device) for x in speculative.random_drafts(*size))


def sparse(size: Size, dtype: torch.dtype, device: str) -> Args:
    starts, columns = (x.to(device) for x in sparse_rows.random_rows(size[0], size[1], 0.3))
    values = random_tensor((columns.size(0),), dtype, seed=0, device=device)
    return starts, columns, values, random_tensor(size[1:], dtype, seed=1, device=device)


def at_places(size: Size, dtype: torch.dtype, device: str) -> Args:
    starts, columns, _, right = sparse(size, dtype, device)
    return starts, columns, random_tensor(size[::2], dtype, seed=2, device=device), right


def parts(size: Size, dtype: torch.dtype, device: str) -> Args:
    return tuple(random_tensor(size, dtype, seed=seed, device=device) for seed in (0, 1))


FP32 = (torch.float32,)
# fmt: off
SEQUENCE_PORTS: tuple[Port, ...] = (
    Port("ctc_loss", ctc_loss.ctc_loss, labelled, ctc_loss.reference, blocks(16), LABELLED,
         lambda size: 4 * size[0], typical=(200, 32, 500, 60)),
    Port("speculative", speculative.verify, drafts, speculative.reference, blocks(16, 16), DRAFTS,
         dtypes=FP32, typical=(64, 8, 32000)),
    Port("sparse_multiply", sparse_rows.multiply, sparse, sparse_rows.reference_multiply,
         blocks(16, 16), SPARSE, lambda size: size[1], typical=(1024, 1024, 256)),
    Port("sparse_multiply_at", sparse_rows.multiply_at, at_places,
         sparse_rows.reference_multiply_at, blocks(4, 8, 16), SPARSE, lambda size: size[2],
         typical=(1024, 1024, 256)),
    Port("fft", fft.fft, parts, fft.reference, blocks(16), ROWS, lambda size: 4 * size[1],
         dtypes=FP32, typical=(4096, 256)),
)
# fmt: on
