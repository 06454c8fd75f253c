"""Dividing GPUs between queues: max-min shares, decayed usage, reclaiming, an inner policy for each queue."""
