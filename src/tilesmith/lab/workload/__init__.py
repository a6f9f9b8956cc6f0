"""The arguments of a kernel: from text, captured at a launch, saved for another process."""
