"""Values that loops hand from one variable to another."""
