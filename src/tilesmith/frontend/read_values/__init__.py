"""What device code reads by itself, beside its arguments: globals, and attributes of objects."""
