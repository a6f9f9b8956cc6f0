"""What others see of kernels: users, profilers, notebooks, torch where it wants determinism."""
