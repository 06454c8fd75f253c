"""Workloads from files, and synthetic ones: readers, one writer, a generator and statistics."""
