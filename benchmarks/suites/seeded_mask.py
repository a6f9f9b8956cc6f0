"""The elements a seed keeps, by the rule of ``hl.rand``, as a stored mask."""

from __future__ import annotations

from math import prod

import torch

WORD = 0xFFFFFFFF
ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


def kept(shape: tuple[int, ...], p: float, seed: int, device: torch.device) -> torch.Tensor:
    """Where the uniform number of an element is above ``p``."""
    count = prod(shape)
    # Four neighbours share a counter, whose words they are.
    words = four_words(torch.arange(-(-count // 4), device=device), seed)
    word = torch.stack(words, -1).view(-1)[:count]
    # Of a negative int32 the complement: 31 bits, as a fraction in float32.
    folded = torch.where(word > WORD >> 1, word ^ WORD, word)
    uniform = folded.to(torch.float32) * torch.tensor(4.6566127342e-10, device=device)
    return (uniform > torch.tensor(p, device=device)).view(shape)


def four_words(counter: torch.Tensor, seed: int) -> list[torch.Tensor]:
    """The words of Philox 4x32-10, as int64 below 2^32."""
    low, high = counter & WORD, (counter >> 32) & WORD
    words = [low, high, torch.zeros_like(low), torch.zeros_like(low)]
    keys = [seed & WORD, (seed >> 32) & WORD]
    for _ in range(ROUNDS):
        # Products of 32-bit words wrap around in int64 but keep all 64 bits.
        left, right = words[0] * MULTIPLIERS[0], words[2] * MULTIPLIERS[1]
        words = [
            ((right >> 32) & WORD) ^ words[1] ^ keys[0],
            right & WORD,
            ((left >> 32) & WORD) ^ words[3] ^ keys[1],
            left & WORD,
        ]
        keys = [(key + step) & WORD for key, step in zip(keys, KEY_STEPS)]
    return words
