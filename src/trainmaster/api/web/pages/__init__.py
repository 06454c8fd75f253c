"""One page per file; what several show is in `parts`."""
