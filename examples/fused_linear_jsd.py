"""Jensen-Shannon divergence between two language-model heads, from hidden states to one number.

`fused_linear_jsd` is a module of two kernels: a matrix product per head, then one kernel that takes
both softmaxes and the divergence. `recomputing_linear_jsd` is one kernel that never stores the
logits: it runs the products twice, for the normalisers and for the terms.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


def divergence(log_q: torch.Tensor, log_p: torch.Tensor, beta: float) -> torch.Tensor:
    """Terms of `beta * KL(p, m) + (1 - beta) * KL(q, m)`, `m` being the mixture."""
    apart = log_p - log_q
    is_more = apart > 0
    shrink = torch.expm1(-torch.abs(apart))
    below = torch.log1p(torch.where(is_more, 1 - beta, beta) * shrink)
    p_over_m = torch.where(is_more, -below, apart - below)
    # The smaller of both probabilities is a share of the larger: one exponential does.
    larger = torch.exp(torch.maximum(log_q, log_p))
    smaller = larger + larger * shrink
    q, p = torch.where(is_more, smaller, larger), torch.where(is_more, larger, smaller)
    return beta * p * p_over_m + (1 - beta) * q * (p_over_m - apart)


@helion.kernel
def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    (n, k), v = x.size(), weight.size(0)
    wide = torch.promote_types(x.dtype, torch.float32)
    out = torch.empty([n, v], dtype=wide, device=x.device)
    for tile_n, tile_v in hl.tile([n, v]):
        acc = hl.zeros([tile_n, tile_v], dtype=wide)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_n, tile_k], weight[tile_v, tile_k].T)
        out[tile_n, tile_v] = acc
    return out


@helion.kernel(ignore_warnings=[helion.exc.TensorOperationInWrapper])
def jsd_of_logits(
    student: torch.Tensor, teacher: torch.Tensor, beta: float, temperature: float
) -> torch.Tensor:
    n, _ = student.size()
    losses = torch.empty([n], dtype=student.dtype, device=student.device)
    # Each logit is read three times, and a division takes as long as a function.
    scale = 1 / temperature
    for tile_n in hl.tile(n):
        log_q = torch.log_softmax(student[tile_n, :] * scale, dim=-1)
        log_p = torch.log_softmax(teacher[tile_n, :] * scale, dim=-1)
        losses[tile_n] = divergence(log_q, log_p, beta).sum(-1)
    return losses.mean()


def fused_linear_jsd(
    student: torch.Tensor,
    student_weight: torch.Tensor,
    teacher: torch.Tensor,
    teacher_weight: torch.Tensor,
    beta: float = 0.5,
    temperature: float = 1.0,
) -> torch.Tensor:
    """Mean divergence over rows; each head is `hidden @ weight.T`."""
    logits = linear(student, student_weight), linear(teacher, teacher_weight)
    return jsd_of_logits(*logits, beta, temperature)


def add_chunk(
    peak: torch.Tensor, total: torch.Tensor, chunk: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Running maximum and sum of exponentials with one more chunk of columns."""
    new_peak = torch.maximum(peak, chunk.amax(-1))
    powers = torch.exp(chunk - new_peak[:, None]).sum(-1)
    return new_peak, total * torch.exp(peak - new_peak) + powers


@helion.kernel(ignore_warnings=[helion.exc.TensorOperationInWrapper])
def recomputing_linear_jsd(
    student: torch.Tensor,
    student_weight: torch.Tensor,
    teacher: torch.Tensor,
    teacher_weight: torch.Tensor,
    beta: float = 0.5,
    temperature: float = 1.0,
) -> torch.Tensor:
    (n, k), v = student.size(), student_weight.size(0)
    assert teacher.size(1) == k, "hidden states of one width"
    wide = torch.promote_types(student.dtype, torch.float32)
    losses = torch.empty([n], dtype=wide, device=student.device)
    block_v, block_k = hl.register_block_size(v), hl.register_block_size(k)
    for tile_n in hl.tile(n):
        peak_q = hl.full([tile_n], float("-inf"), dtype=wide)
        peak_p = hl.full([tile_n], float("-inf"), dtype=wide)
        total_q, total_p = hl.zeros([tile_n], dtype=wide), hl.zeros([tile_n], dtype=wide)
        for tile_v in hl.tile(v, block_size=block_v):
            q = hl.zeros([tile_n, tile_v], dtype=wide)
            p = hl.zeros([tile_n, tile_v], dtype=wide)
            for tile_k in hl.tile(k, block_size=block_k):
                q = torch.addmm(q, student[tile_n, tile_k], student_weight[tile_v, tile_k].T)
                p = torch.addmm(p, teacher[tile_n, tile_k], teacher_weight[tile_v, tile_k].T)
            peak_q, total_q = add_chunk(peak_q, total_q, q / temperature)
            peak_p, total_p = add_chunk(peak_p, total_p, p / temperature)
        lse_q, lse_p = peak_q + torch.log(total_q), peak_p + torch.log(total_p)
        loss = hl.zeros([tile_n], dtype=wide)
        for tile_v in hl.tile(v, block_size=block_v):
            q = hl.zeros([tile_n, tile_v], dtype=wide)
            p = hl.zeros([tile_n, tile_v], dtype=wide)
            for tile_k in hl.tile(k, block_size=block_k):
                q = torch.addmm(q, student[tile_n, tile_k], student_weight[tile_v, tile_k].T)
                p = torch.addmm(p, teacher[tile_n, tile_k], teacher_weight[tile_v, tile_k].T)
            log_q, log_p = q / temperature - lse_q[:, None], p / temperature - lse_p[:, None]
            loss = loss + divergence(log_q, log_p, beta).sum(-1)
        losses[tile_n] = loss
    return losses.mean()


def reference_of_logits(
    student: torch.Tensor, teacher: torch.Tensor, beta: float, temperature: float
) -> torch.Tensor:
    q, p = (torch.softmax(logits.double() / temperature, -1) for logits in (student, teacher))
    m = beta * p + (1 - beta) * q
    terms = beta * p * (p.log() - m.log()) + (1 - beta) * q * (q.log() - m.log())
    return terms.sum(-1).mean()


def reference_linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x.double() @ weight.double().T


def reference(
    student: torch.Tensor,
    student_weight: torch.Tensor,
    teacher: torch.Tensor,
    teacher_weight: torch.Tensor,
    beta: float = 0.5,
    temperature: float = 1.0,
) -> torch.Tensor:
    logits = reference_linear(student, student_weight), reference_linear(teacher, teacher_weight)
    return reference_of_logits(*logits, beta, temperature)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n, k, v = (1024, 4096, 32_064) if device == "cuda" else (64, 64, 1000)
    hidden = [torch.randn(n, k, device=device) for _ in range(2)]
    weights = [torch.randn(v, k, device=device) * k**-0.5 for _ in range(2)]
    args = (hidden[0], weights[0], hidden[1], weights[1], 0.25, 2.0)
    for name, compute in (
        ("fused_linear_jsd", fused_linear_jsd),
        ("fused_linear_jsd, recomputing", recomputing_linear_jsd),
    ):
        report = check_against(compute(*args), reference(*args), reduction_length=k * v)
        print(f"{name}: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
