"""What the end of a tile costs: its quotients, its stores, and which tile comes next."""
