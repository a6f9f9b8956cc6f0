"""Sums that loops add to lane by lane, and that are reduced once."""
