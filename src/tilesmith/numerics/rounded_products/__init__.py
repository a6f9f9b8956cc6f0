"""How far off a product may be whose left factor is rounded to a narrow type first."""
