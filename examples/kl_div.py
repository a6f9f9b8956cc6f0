"""Kullback-Leibler divergence of predicted log-probabilities from targets, as `torch.nn.KLDivLoss`.

Shows compile-time arguments: the reduction is a string, whether targets are logarithms a flag; of
each branch only what is taken is compiled, and even the shape of the result depends on them.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

REDUCTIONS = ("none", "sum", "mean", "batchmean")


@helion.kernel(ignore_warnings=[helion.exc.TensorOperationInWrapper])
def kl_div(
    log_pred: torch.Tensor,
    target: torch.Tensor,
    reduction: str = "batchmean",
    log_target: hl.constexpr = False,
) -> torch.Tensor:
    n, v = log_pred.size()
    wide = torch.promote_types(log_pred.dtype, torch.float32)
    if reduction == "none":
        loss = torch.empty_like(log_pred)
    else:
        loss = torch.empty([n], dtype=wide, device=log_pred.device)
    # Rows are divided where they are summed up: on the host that would be one more launch.
    divisor = {"none": 1, "sum": 1, "mean": n * v, "batchmean": n}[reduction]
    for tile_n in hl.tile(n):
        total = hl.zeros([tile_n], dtype=wide)
        for tile_v in hl.tile(v):
            pred = log_pred[tile_n, tile_v].to(wide)
            wanted = target[tile_n, tile_v].to(wide)
            if log_target:
                terms = torch.exp(wanted) * (wanted - pred)
            else:
                # No probability, no term: the limit of x * log(x) at zero.
                terms = torch.where(wanted != 0, wanted * (torch.log(wanted) - pred), 0.0)
            if reduction == "none":
                loss[tile_n, tile_v] = terms
            else:
                total = total + terms.sum(-1)
        if reduction != "none":
            loss[tile_n] = total / divisor
    if reduction == "none":
        return loss
    return loss.sum() if divisor else loss.mean()  # of nothing: NaN


def reference(
    log_pred: torch.Tensor,
    target: torch.Tensor,
    reduction: str = "batchmean",
    log_target: bool = False,
) -> torch.Tensor:
    terms = torch.nn.functional.kl_div(
        log_pred.double(), target.double(), reduction="none", log_target=log_target
    )
    if reduction == "none":
        return terms
    divisors = {"sum": 1, "mean": terms.numel(), "batchmean": len(terms)}
    return terms.sum() / divisors[reduction]


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n, v = (4096, 65_536) if device == "cuda" else (32, 1000)
    log_pred = torch.randn(n, v, device=device).log_softmax(-1)
    log_wanted = torch.randn(n, v, device=device).log_softmax(-1)
    for reduction in REDUCTIONS:
        for target, is_log in ((log_wanted, True), (log_wanted.exp(), False)):
            report = check_against(
                kl_div(log_pred, target, reduction, is_log),
                reference(log_pred, target, reduction, is_log),
                reduction_length=n * v,
            )
        print(f"kl_div: {reduction}, relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
