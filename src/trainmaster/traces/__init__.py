"""Workloads from files and from thin air: readers, one writer, a generator and statistics."""
