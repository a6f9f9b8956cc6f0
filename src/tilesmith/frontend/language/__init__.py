"""What ``hl`` has and torch has not: loops, memory, printing, inline code, host functions."""
