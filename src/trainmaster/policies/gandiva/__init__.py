"""Gandiva (OSDI'18): time-slicing, packing on trial, migration, grow and shrink."""
