"""What a trace is made of: the tracer, the proxies of device code, and the vocabulary of rules."""
