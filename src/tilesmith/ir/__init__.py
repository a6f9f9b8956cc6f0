"""The tile IR: immutable SSA with nested regions. Standard library only."""
