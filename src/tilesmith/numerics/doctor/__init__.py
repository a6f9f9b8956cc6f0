"""Why results differ: implementations measured against fp64, their disagreements explained."""
