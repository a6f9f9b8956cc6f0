"""Arithmetic of a softmax that costs less where what surrounds it allows another way."""
