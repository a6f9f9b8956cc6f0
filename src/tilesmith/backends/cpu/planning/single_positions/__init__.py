"""What a kernel does at one position of a row: looked up and written there, not searched for."""
