"""The loss of connectionist temporal classification (torch's `ctc_loss`), one sequence per program.

States are the labels with blanks around each. A row holds the log likelihoods of all states; from
step to step two rows take turns in memory, behind two states that nothing can be in.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

NOTHING = float("-inf")


def log_sum(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """The logarithm of a sum, of three logarithms of which all may be -inf."""
    most = torch.maximum(torch.maximum(a, b), c)
    shift = torch.where(most == NOTHING, 0.0, most)
    return torch.log(torch.exp(a - shift) + torch.exp(b - shift) + torch.exp(c - shift)) + shift


@helion.kernel
def ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int = 0,
) -> torch.Tensor:
    """Losses `[batch]`; ``log_probs`` are `[step, batch, class]`, ``targets`` `[batch, length]`."""
    _, batch, _ = log_probs.size()
    num_states = 2 * targets.size(1) + 1
    rows = torch.full([batch, 2, num_states + 2], NOTHING, device=log_probs.device)
    out = torch.empty([batch], dtype=torch.float32, device=log_probs.device)
    for i in hl.grid(batch):
        length = target_lengths[i]
        rows[i, 0, 2] = log_probs[0, i, blank].to(torch.float32)
        if length > 0:
            rows[i, 0, 3] = log_probs[0, i, targets[i, 0]].to(torch.float32)
        for step in range(1, input_lengths[i]):
            now, before = step % 2, (step + 1) % 2
            for tile in hl.tile(num_states):
                state = tile.index
                is_label = state % 2 == 1
                label = hl.load(targets, [i, state // 2], extra_mask=is_label)
                last = hl.load(targets, [i, state // 2 - 1], extra_mask=is_label & (state > 1))
                can_skip = is_label & ((state == 1) | (label != last))
                skipped = torch.where(can_skip, rows[i, before, state], NOTHING)
                total = log_sum(rows[i, before, state + 2], rows[i, before, state + 1], skipped)
                emitted = log_probs[step, i, torch.where(is_label, label, blank)]
                total = total + emitted.to(torch.float32)
                rows[i, now, state + 2] = torch.where(state <= 2 * length, total, NOTHING)
        last_row = (input_lengths[i] - 1) % 2
        without_blank = torch.where(length > 0, rows[i, last_row, 2 * length + 1], NOTHING)
        out[i] = -torch.logaddexp(rows[i, last_row, 2 * length + 2], without_blank)
    return out


def reference(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int = 0,
) -> torch.Tensor:
    lengths = input_lengths, target_lengths
    return torch.nn.functional.ctc_loss(
        log_probs.double(), targets, *lengths, blank, reduction="none"
    )


def random_inputs(
    steps: int, batch: int, classes: int, length: int, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """Sequences of different lengths, all of which their steps can hold; class 0 is the blank."""
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.randn(steps, batch, classes, generator=generator).log_softmax(-1)
    targets = torch.randint(1, classes, [batch, length], generator=generator)
    least = min(steps, 2 * length + 1)
    input_lengths = torch.randint(least, steps + 1, [batch], generator=generator)
    most = min(length, (least - 1) // 2)
    target_lengths = torch.randint(0, most + 1, [batch], generator=generator)
    return log_probs.to(dtype), targets, input_lengths, target_lengths


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    steps, batch, classes, length = (500, 64, 1000, 100) if device == "cuda" else (60, 8, 30, 12)
    inputs = random_inputs(steps, batch, classes, length, torch.float32)
    log_probs, targets, *lengths = (x.to(device) for x in inputs)
    found = ctc_loss(log_probs, targets, lengths[0], lengths[1])
    right = reference(log_probs, targets, lengths[0], lengths[1])
    report = check_against(found, right, reduction_length=steps)
    print(f"ctc_loss: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
