"""docs/torch.md: what of torch works with kernels, as it was really run."""
