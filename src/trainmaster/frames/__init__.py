"""Simulations and comparisons from Python, with results as pandas frames."""
