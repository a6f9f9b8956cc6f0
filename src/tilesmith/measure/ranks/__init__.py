"""How well one order agrees with another."""
