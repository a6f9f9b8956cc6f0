"""Forms that Triton or ptxas compile wrongly or not at all, and what is emitted instead."""
