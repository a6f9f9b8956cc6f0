"""Products of fp32 that keep all bits: multiply-adds by warps with roles (Gluon, Hopper)."""
