"""Themis (NSDI'20): auctions of leased GPUs by finish-time fairness."""
