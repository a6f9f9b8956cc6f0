"""When exact products of fp32 have wide tiles, and warps with roles, by default."""
