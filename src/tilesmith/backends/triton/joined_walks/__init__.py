"""Maxima and sums of powers around them, in one walk over long rows."""
