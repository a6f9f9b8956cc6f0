"""The emitter and what it knows of the whole function: spellings, axes, masks, uses of values."""
