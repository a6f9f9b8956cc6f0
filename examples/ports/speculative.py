"""Verification of drafted tokens (speculative sampling), one sequence per program.

A token of the draft is kept with the chance `target / draft`. The first one that is not ends the
walk, and is drawn anew from what the target has more than the draft; after a draft that was kept
as a whole one more token is drawn from the target.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl

Two = tuple[torch.Tensor, torch.Tensor]


@helion.kernel
def verify(
    draft: torch.Tensor, target: torch.Tensor, tokens: torch.Tensor, uniform: torch.Tensor
) -> Two:
    """How many tokens of each draft are kept, and what comes out of it, -1 behind its end.

    Args:
        draft: chances of the draft model, `[batch, drafted, vocabulary]`.
        target: those of the model itself, `[batch, drafted + 1, vocabulary]`.
        tokens: what was drafted, `[batch, drafted]`.
        uniform: numbers in `[0, 1)`: one for each token, and one for what is drawn.
    """
    batch, drafted, vocabulary = draft.size()
    num_kept = torch.empty([batch], dtype=torch.int32, device=tokens.device)
    out = torch.full([batch, drafted + 1], -1, dtype=tokens.dtype, device=tokens.device)
    for i in hl.grid(batch):
        kept = hl.zeros([], dtype=torch.int32)
        for j in range(drafted):
            token = tokens[i, j]
            if uniform[i, j] * draft[i, j, token] > target[i, j, token]:
                break
            out[i, j] = token
            kept = kept + 1
        num_kept[i] = kept
        is_cut = kept < drafted
        total = hl.zeros([], dtype=torch.float32)
        for tile in hl.tile(vocabulary):
            less = hl.load(draft, [i, kept, tile], extra_mask=is_cut)
            total = total + torch.clamp(target[i, kept, tile] - less, min=0).sum()
        bound, begin = uniform[i, drafted] * total, hl.zeros([], dtype=torch.float32)
        drawn = hl.zeros([], dtype=torch.int64)
        for tile in hl.tile(vocabulary):
            less = hl.load(draft, [i, kept, tile], extra_mask=is_cut)
            more = torch.clamp(target[i, kept, tile] - less, min=0)
            drawn = drawn + (begin + torch.cumsum(more, 0) <= bound).sum()
            begin = begin + more.sum()
        out[i, kept] = drawn.to(tokens.dtype)
    return num_kept, out


def reference(
    draft: torch.Tensor, target: torch.Tensor, tokens: torch.Tensor, uniform: torch.Tensor
) -> Two:
    drafted = tokens.size(1)
    ratio = (target[:, :drafted].double() / draft.double()).gather(2, tokens[..., None])[..., 0]
    is_kept = (uniform[:, :drafted] <= ratio).long().cumprod(1)
    num_kept = is_kept.sum(1)
    out = torch.where(is_kept.bool(), tokens, -1)
    out = torch.cat([out, torch.full_like(out[:, :1], -1)], 1)
    nothing = torch.zeros_like(target[:, :1])
    more = (target - torch.cat([draft, nothing], 1)).double().clamp(min=0)
    rows = more[torch.arange(tokens.size(0), device=tokens.device), num_kept]
    bound = uniform[:, drafted, None].double() * rows.sum(1, keepdim=True)
    drawn = (rows.cumsum(1) <= bound).sum(1, keepdim=True)
    return num_kept.to(torch.int32), out.scatter(1, num_kept[:, None], drawn)


def random_drafts(batch: int, drafted: int, vocabulary: int) -> tuple[torch.Tensor, ...]:
    """Drafts, what the model says, and numbers; products and sums of all of them are exact."""
    generator = torch.Generator().manual_seed(0)
    shape = [batch, drafted + 1, vocabulary]
    draft = torch.randint(1, 9, shape, generator=generator)
    target = torch.randint(0, 9, shape, generator=generator)
    tokens = torch.randint(0, vocabulary, [batch, drafted], generator=generator)
    # Never such that a product with a chance is a chance, where rounding would decide.
    uniform = torch.randint(1, 8, [batch, drafted + 1], generator=generator) / 8 - 2**-9
    return draft[:, :drafted].float() / 32, target.float() / 32, tokens, uniform


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, drafted, vocabulary = (256, 8, 8000) if device == "cuda" else (9, 4, 500)
    args = [x.to(device) for x in random_drafts(batch, drafted, vocabulary)]
    for found, right in zip(verify(*args), reference(*args)):
        assert torch.equal(found, right)
    kept = verify(*args)[0].double().mean().item()
    print(f"speculative: {kept:.1f} of {drafted} tokens are kept, as they should be")


if __name__ == "__main__":
    main()
