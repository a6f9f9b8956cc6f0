"""Op declarations, one file per family; ``catalog.py`` lists them all."""
