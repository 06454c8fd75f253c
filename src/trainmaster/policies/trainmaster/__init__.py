"""Trainmaster's own policy."""
