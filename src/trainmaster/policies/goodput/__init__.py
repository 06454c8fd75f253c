"""Goodput: sizes that maximise the sum of speedups (after Pollux, OSDI'21)."""
