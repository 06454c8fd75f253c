"""Several jobs on the same GPUs: by turns, packed on trial, as guests, in slots.

For `gandiva`, `antman` and `big-brain`.
"""
