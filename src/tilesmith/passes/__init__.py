"""Function in, function out: one pass a file, in the order that ``standard.py`` lists."""
