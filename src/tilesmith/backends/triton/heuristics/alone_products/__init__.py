"""Products of programs that have a multiprocessor each."""
