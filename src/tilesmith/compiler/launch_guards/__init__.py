"""What code that leaves this process asks of the values it is called with."""
