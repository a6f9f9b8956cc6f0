"""What a kernel is measured on: its launch arguments, saved for another process."""
