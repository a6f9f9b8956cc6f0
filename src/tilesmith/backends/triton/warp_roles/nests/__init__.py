"""Which loops and ops warps with roles can run."""
