"""Matrix products of tiles: packing, register-blocked micro-kernels and the loops around them."""
