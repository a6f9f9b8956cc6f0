"""What others see of kernels: profilers, notebooks, and torch where it asks for determinism."""
