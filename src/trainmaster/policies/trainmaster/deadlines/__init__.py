"""Deadlines: admission, booking of capacity, and replanning."""
