"""What tuning and benchmarking share: child processes, captured workloads, failures, reports."""
