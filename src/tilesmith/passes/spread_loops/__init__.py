"""Tiles that one program would walk one after the other, shared out to many programs."""
