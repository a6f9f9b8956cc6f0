"""Calls of `torch.vmap` in one launch: kernels with a grid axis more."""
