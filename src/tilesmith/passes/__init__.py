"""Function in, function out: one pass a file. ``compiler/pipeline.py`` lists them in order."""
