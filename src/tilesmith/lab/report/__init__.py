"""What reports of searches and of benchmarks are made of: pictures, pages, files of lines."""
