"""``tilesmith record``: what the kernels of a script are called with."""
