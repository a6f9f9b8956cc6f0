"""What a GPU program needs and how long it takes, before anything is compiled."""
