"""What is written for readers: a file that repeats a call, the decorator line, options of code."""
