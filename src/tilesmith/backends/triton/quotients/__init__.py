"""Quotients that need not be exact, since what is made of them is rounded."""
