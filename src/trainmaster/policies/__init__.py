"""Scheduling policies: one file or package per system, with its paper and deviations in the docstring."""
