"""What a tile costs besides its turns: its beginning, its end, and which one comes next."""
