"""What tensors hold, without memory of their size."""
