"""Function in, function out. ``compiler/pipeline.py`` lists all passes in order."""
