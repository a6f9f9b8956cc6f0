"""Torch's functions in device code by family, and what ``hl`` adds to each; the table of all."""
