"""Where tiles end, and where their tensors do."""
